"""Writing a `.candle` file: hash every source, then lay the archive out, atomically."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Union

from ..errors import PackageError
from ..formats.atomic import atomic_file
from ..formats.paths import as_path
from .format import MANIFEST, Record, central_header, end_records, local_header
from .manifest import Entry, Manifest

if TYPE_CHECKING:
    from typing_extensions import Buffer

# an entry's bytes: one buffer, several in a row, or a file
Source = Union["Buffer", Sequence["Buffer"], Path]
Progress = Callable[[int, int], None]  # bytes done, bytes in all

CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class _Hashed:
    """A source with what its headers and its line in the manifest say."""

    source: Source
    size: int
    crc: int
    sha256: str


def write_package(
    path: str | os.PathLike[str],
    manifest: Manifest,
    entries: Mapping[str, Source],
    progress: Progress | None = None,
) -> Manifest:
    """Write `{path: source}` under `manifest` to `path`, atomically; the manifest with entries.

    The file depends on the manifest and the entries' bytes alone: not on their order, on a clock
    or on this machine. Sources are read twice. Raises PackageError for a path that some system
    does not take or a file that changes while it is read, OSError if the disk refuses.
    """
    path = as_path(path, "write package")
    op = f"write {path}"
    if MANIFEST in entries:
        raise PackageError(op, f"entries other than {MANIFEST}", MANIFEST, "it is made here")
    total = 2 * sum(_size(source) for source in entries.values())
    meter = _Meter(progress, total)
    hashed = {name: _hash(entries[name], meter) for name in sorted(entries)}
    listed = tuple(Entry(name, h.size, h.sha256) for name, h in hashed.items())
    full = replace(manifest, entries=listed)
    parts = {MANIFEST: _hash(full.to_toml(), _Meter(None, 0)), **hashed}
    with atomic_file(path) as stream:
        records = [_write_entry(op, stream, name, part, meter) for name, part in parts.items()]
        directory = b"".join(map(central_header, records))
        start = stream.tell()
        stream.write(directory + end_records(len(records), len(directory), start))
    return full


class _Meter:
    """Counts bytes towards a progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def _write_entry(op: str, stream: BinaryIO, name: str, part: _Hashed, meter: _Meter) -> Record:
    record = Record(name, part.size, part.crc, stream.tell())
    stream.write(local_header(record))
    crc = 0
    for chunk in _chunks(part.source):
        stream.write(chunk)
        crc = zlib.crc32(chunk, crc)
        meter.add(len(chunk))
    if stream.tell() != record.end or crc != part.crc:
        raise PackageError(op, f"entry {name!r} as it was when hashed", "a file that changed")
    return record


def _hash(source: Source, meter: _Meter) -> _Hashed:
    size = crc = 0
    hasher = sha256()
    for chunk in _chunks(source):
        size += len(chunk)
        crc = zlib.crc32(chunk, crc)
        hasher.update(chunk)
        meter.add(len(chunk))
    return _Hashed(source, size, crc, hasher.hexdigest())


def _chunks(source: Source) -> Iterator[bytes | memoryview]:
    if isinstance(source, Path):
        with source.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                yield chunk
        return
    for buffer in _buffers(source):
        for start in range(0, buffer.nbytes, CHUNK):
            yield buffer[start : start + CHUNK]


def _buffers(source: Buffer | Sequence[Buffer]) -> Iterator[memoryview]:
    for buffer in source if isinstance(source, list | tuple) else (source,):
        view = memoryview(buffer)
        yield view.cast("B") if view.nbytes else memoryview(b"")


def _size(source: Source) -> int:
    if isinstance(source, Path):
        return source.stat().st_size
    return sum(buffer.nbytes for buffer in _buffers(source))
