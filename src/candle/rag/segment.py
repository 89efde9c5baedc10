"""Segments: immutable files of vectors that are mapped, never read whole.

The byte layout is in docs/reference/knowledge-base.md. A segment is a fixed header, a table of
sections and the sections, each aligned to 64 bytes. It is written through `atomic_file`, so a name
that exists is a file that is complete.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from ..dtype import DType
from ..errors import FormatError, OptionError, StoreError
from ..formats.mapped import MappedFile

MAGIC = b"CANDLSEG"
VERSION = 1
ALIGNMENT = 64
MAX_SECTIONS = 16
VECTORS = "vectors"
IDS = "ids"
INFO = "info"
_HEADER = struct.Struct("<8sIIQQ32s")  # magic, version, sections, file size, rows, digest
_ENTRY = struct.Struct("<8sQQIII28x32s")  # kind, offset, size, dtype, columns, flags, digest
_REQUIRED = 1  # flag: a reader that does not know this kind must refuse the file
_KINDS = (VECTORS, IDS, INFO)
_DTYPES = {dtype.number: dtype for dtype in (DType.F32, DType.I64, DType.U8)}
_MAX = 1 << 48  # no size in a header may exceed this


@dataclass(frozen=True, slots=True)
class Section:
    """One section: `size` bytes at `offset`, elements of `dtype` in rows of `columns`."""

    kind: str
    offset: int
    size: int
    dtype: DType
    columns: int
    digest: bytes


class Segment:
    """A mapped segment. It stays mapped for as long as anything refers to its bytes."""

    def __init__(
        self, path: Path, data: memoryview, rows: int, sections: dict[str, Section], digest: str
    ) -> None:
        self.path = path
        self.rows = rows
        self.digest = digest
        self.sections = sections
        self._data = data

    @classmethod
    def open(cls, path: Path) -> Segment:
        """Maps `path`. Raises FileNotFoundError, or StoreError for anything but a whole segment."""
        try:
            file = MappedFile(path)
        except FormatError as error:
            raise StoreError(f"segment {path}", error.expected, error.got) from None
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"segment {path}", "a file that can be read", error) from error
        return cls.of_bytes(file.view(0, file.size), path)

    @classmethod
    def of_bytes(cls, data: memoryview, path: Path) -> Segment:
        """A segment in memory, or within a larger mapped file; `path` is for messages."""
        if len(data) < _HEADER.size:
            _refuse(path, f"a segment of at least {_HEADER.size} bytes", f"{len(data)} bytes")
        rows, sections, digest = _read_header(path, data)
        return cls(path, data, rows, sections, digest)

    def data(self, kind: str) -> memoryview:
        """The bytes of a section, in place. Raises StoreError when there is none."""
        section = self.sections.get(kind)
        if section is None:
            _refuse(self.path, f"a section {kind!r}", ", ".join(self.sections) or "none")
        return self._data[section.offset : section.offset + section.size]

    def vectors(self, dimension: int) -> memoryview:
        """The rows of f32, checked to be `dimension` wide. Raises StoreError."""
        data = self.data(VECTORS)
        section = self.sections[VECTORS]
        if section.dtype is not DType.F32 or section.columns != dimension:
            got = f"{section.dtype} of {section.columns}"
            _refuse(self.path, f"vectors of f32, {dimension} wide", got)
        return data

    def verify(self) -> None:
        """Reads every byte and compares the hashes. Raises StoreError."""
        for section in self.sections.values():
            if hashlib.sha256(self.data(section.kind)).digest() != section.digest:
                _refuse(self.path, f"section {section.kind!r} as it was written", "other bytes")


class SegmentWriter:
    """Writes one segment into `file`, which `atomic_file` opened: `write` the rows, then `finish`.

    `sections` names them in the order of writing, each with its dtype and columns.
    """

    def __init__(self, file: BinaryIO, sections: dict[str, tuple[DType, int]]) -> None:
        if not 1 <= len(sections) <= MAX_SECTIONS:
            raise OptionError("segment", f"1 to {MAX_SECTIONS} sections", len(sections))
        self._file = file
        self._kinds = list(sections.items())
        self._done: list[Section] = []
        self._offset = 0
        self._put(bytes(_align(_HEADER.size + _ENTRY.size * len(sections))))
        self._begin()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Appends bytes to the present section."""
        self._hash.update(data)
        self._put(data)

    def next_section(self) -> None:
        """Ends the present section; what is written now belongs to the next."""
        kind, (dtype, columns) = self._kinds[len(self._done)]
        size = self._offset - self._start
        digest = self._hash.digest()
        self._done.append(Section(kind, self._start, size, dtype, columns, digest))
        if len(self._done) < len(self._kinds):
            self._put(bytes(_align(self._offset) - self._offset))
            self._begin()

    def finish(self, rows: int) -> str:
        """Writes the header of a segment of `rows` rows; returns its digest in hex."""
        while len(self._done) < len(self._kinds):
            self.next_section()
        head, digest = _header(rows, self._offset, self._done)
        self._file.seek(0)
        self._file.write(head)
        return digest

    def _begin(self) -> None:
        self._start = self._offset
        self._hash = hashlib.sha256()

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)
        self._offset += memoryview(data).nbytes


def _header(rows: int, size: int, sections: list[Section]) -> tuple[bytes, str]:
    table = b"".join(
        _ENTRY.pack(
            s.kind.encode(), s.offset, s.size, s.dtype.number, s.columns, _REQUIRED, s.digest
        )
        for s in sections
    )
    start = _HEADER.pack(MAGIC, VERSION, len(sections), size, rows, bytes(32))
    digest = hashlib.sha256(start[:32] + table).digest()
    return start[:32] + digest + table, digest.hex()


def _read_header(path: Path, data: memoryview) -> tuple[int, dict[str, Section], str]:
    magic, version, count, size, rows, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        _refuse(path, f"a segment, which begins with {MAGIC!r}", repr(magic))
    if version != VERSION:
        _refuse(path, f"segment version {VERSION}", version)
    if size != len(data):
        _refuse(path, f"{size} bytes", f"{len(data)}", "the file was cut or grew")
    if not 1 <= count <= MAX_SECTIONS or not 0 <= rows < _MAX:
        _refuse(path, f"1 to {MAX_SECTIONS} sections", f"{count} sections, {rows} rows")
    table = _HEADER.size + _ENTRY.size * count
    if table > size:
        _refuse(path, f"a table of {count} sections", f"{size} bytes")
    if hashlib.sha256(bytes(data[:32]) + data[_HEADER.size : table]).digest() != digest:
        _refuse(path, "a header that matches its hash", "another")
    sections: dict[str, Section] = {}
    end = table
    for i in range(count):
        section = _read_entry(path, data, _HEADER.size + _ENTRY.size * i, end, rows)
        end = section.offset + section.size
        if section.kind in sections:
            _refuse(path, "each section once", repr(section.kind))
        sections[section.kind] = section
    if end != size:
        _refuse(path, f"sections up to byte {size}", end)
    return rows, {k: s for k, s in sections.items() if k in _KINDS}, digest.hex()


def _read_entry(path: Path, data: memoryview, at: int, end: int, rows: int) -> Section:
    raw, offset, size, number, columns, flags, digest = _ENTRY.unpack_from(data, at)
    kind = raw.rstrip(b"\0").decode("ascii", "replace")
    if offset != _align(end) or size > len(data) - offset or not size <= _MAX:
        _refuse(path, f"section {kind!r} at byte {_align(end)}", f"{size} bytes at {offset}")
    if kind not in _KINDS and flags & _REQUIRED:
        _refuse(path, f"a known section ({', '.join(_KINDS)})", repr(kind))
    dtype = _DTYPES.get(number)
    if kind in _KINDS and dtype is None:
        _refuse(path, f"section {kind!r} of a known dtype", number)
    if kind in (VECTORS, IDS) and dtype is not None and size != rows * columns * dtype.size:
        _refuse(path, f"{rows} rows of {columns} {dtype} in {kind!r}", f"{size} bytes")
    return Section(kind, offset, size, dtype or DType.U8, columns, digest)


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _refuse(path: Path, expected: object, got: object, hint: str = "") -> NoReturn:
    raise StoreError(f"segment {path}", expected, got, hint)
