"""Reading a `.candle` file: every check of structure before any use, and views in place."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from ..errors import PackageError
from ..formats.atomic import atomic_file
from ..formats.mapped import Closing, MappedFile
from .archive import Archive
from .format import MANIFEST, Record
from .manifest import MAX_MANIFEST, Entry, Manifest

CHUNK = 4 << 20
Progress = Callable[[int, int], None]  # bytes done, bytes in all


class PackageReader(Closing):
    """One open package: `manifest`, `digest`, and `view(entry)` without a copy.

    Opening checks the structure and the manifest, whose own checksum too; hashes of the entries
    are for `verify` and `extract`, which an installation does. A context manager; views stay valid
    after `close` (see MappedFile).
    """

    def __init__(self, file: MappedFile) -> None:
        """Check a mapped file. Raises PackageError."""
        self._file = file
        self._op = f"package {file.path}"
        self.path = file.path
        records = Archive(file).records
        self._records = {record.path: record for record in records}
        self.manifest_bytes = self._read_manifest(records[0])
        self.manifest = Manifest.from_toml(self.manifest_bytes, self._op)
        self.digest = f"sha256:{sha256(self.manifest_bytes).hexdigest()}"
        self._check_entries()
        self._listed = {entry.path: entry for entry in self.manifest.entries}

    @staticmethod
    def open(path: str | os.PathLike[str]) -> PackageReader:
        """Map and check `path`. Raises PackageError, or OSError if it cannot be opened."""
        file = MappedFile(path)
        try:
            return PackageReader(file)
        except BaseException:
            file.close()
            raise

    def _read_manifest(self, record: Record) -> bytes:
        if record.size > MAX_MANIFEST:
            raise PackageError(self._op, f"a manifest of at most {MAX_MANIFEST} bytes", record.size)
        data = bytes(self._file.view(record.data, record.size))
        if zlib.crc32(data) != record.crc:
            raise PackageError(self._op, "the manifest's checksum", "another", "it is damaged")
        return data

    def _check_entries(self) -> None:
        """Archive and manifest must list the same entries, of the same sizes."""
        stated = {MANIFEST: len(self.manifest_bytes)}
        stated.update((entry.path, entry.size) for entry in self.manifest.entries)
        for path in stated.keys() | self._records.keys():
            record, size = self._records.get(path), stated.get(path)
            if record is None or size is None:
                where = "the manifest alone" if record is None else "the archive alone"
                raise PackageError(self._op, f"entry {path!r} in manifest and archive", where)
            if record.size != size:
                expected = f"{size} bytes of entry {path!r}, as the manifest says"
                raise PackageError(self._op, expected, record.size)

    def _record(self, entry: str) -> Record:
        record = self._records.get(entry)
        if record is None:
            names = ", ".join(sorted(self._records)[:10])
            raise PackageError(self._op, f"an entry named {entry!r}", names)
        return record

    def __contains__(self, entry: object) -> bool:
        return entry in self._records

    def part(self, entry: str) -> MappedFile:
        """An entry as a mapped file of its own, in place. Raises PackageError."""
        record = self._record(entry)
        return self._file.part(record.data, record.size)

    def view(self, entry: str) -> memoryview:
        """An entry's bytes, in place, read-only, aligned to 64 in the file. Raises PackageError."""
        record = self._record(entry)
        return self._file.view(record.data, record.size)

    def location(self, entry: str) -> tuple[int, int]:
        """Where an entry's bytes lie in the file: offset and size. Raises PackageError."""
        record = self._record(entry)
        return record.data, record.size

    def verify(self, progress: Progress | None = None) -> None:
        """Hash every entry against the manifest. Raises PackageError that names the first wrong."""
        total, done = sum(entry.size for entry in self.manifest.entries), 0
        for entry in self.manifest.entries:
            self._copy(entry, None)
            done += entry.size
            if progress is not None:
                progress(done, total)

    def extract(self, entry: str, target: str | os.PathLike[str]) -> Path:
        """Write an entry to the file `target`, atomically, hashing as it goes.

        Raises PackageError if the bytes are not those that the manifest names; then there is no
        file.
        """
        with atomic_file(target) as stream:
            self.copy(entry, stream)
        return Path(target)

    def copy(self, entry: str, stream: BinaryIO) -> None:
        """Write an entry to an open file, hashing as it goes. Raises PackageError at its end."""
        if entry == MANIFEST:
            stream.write(self.manifest_bytes)
            return
        self._record(entry)
        self._copy(self._listed[entry], stream)

    def _copy(self, entry: Entry, stream: BinaryIO | None) -> None:
        hasher, crc = sha256(), 0
        data = self.view(entry.path)
        for start in range(0, entry.size, CHUNK):
            chunk = data[start : start + CHUNK]
            hasher.update(chunk)
            crc = zlib.crc32(chunk, crc)
            if stream is not None:
                stream.write(chunk)
        if hasher.hexdigest() != entry.sha256:
            expected = f"SHA-256 {entry.sha256} of entry {entry.path!r}"
            raise PackageError(self._op, expected, hasher.hexdigest(), "the file is damaged")
        if crc != self._record(entry.path).crc:
            expected = f"the checksum of entry {entry.path!r} in its header"
            raise PackageError(self._op, expected, "another", "the file is damaged")

    def close(self) -> None:
        """Give the file up; safe to call twice."""
        self._file.close()
