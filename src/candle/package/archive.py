"""The strict ZIP reader: a mapped `.candle` file to its records, or one error that says why not.

Nothing is searched for and nothing is believed. The end record stands at a fixed place, the
directory is bounded by it, and every header must equal, byte for byte, the one that `format.py`
makes for the entry at that place. So there is one reading of a file, the same for every reader:
no hidden bytes, no overlapping entries, no two headers that disagree.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from ..errors import PackageError
from ..formats.mapped import MappedFile
from ..formats.sniff import HEAD, describe
from .format import (
    CENTRAL,
    CENTRAL_MAGIC,
    END,
    END64,
    END64_MAGIC,
    END_MAGIC,
    FULL,
    LOCAL,
    LOCAL_MAGIC,
    LOCATOR,
    LOCATOR_MAGIC,
    MANIFEST,
    MAX_ENTRIES,
    MAX_PATH,
    MODE,
    ZIP64_FIELD,
    Record,
    central_header,
    collision,
    end_records,
    local_header,
    path_fault,
)


class Archive:
    """The records of one mapped package, in the file's order; the manifest's is the first."""

    def __init__(self, file: MappedFile) -> None:
        """Check all of the structure. Raises PackageError."""
        self._file = file
        self._op = f"package {file.path}"
        head = file.head(HEAD)
        if head[:4] != LOCAL_MAGIC:
            self._refuse("a .candle package", describe(head, file.size))
        count, size, start = self._end()
        self.records = self._directory(count, size, start)
        self._check_paths()
        self._check_layout(start)
        self._check_canonical(size, start)

    def _refuse(self, expected: object, got: object, hint: str = "") -> NoReturn:
        raise PackageError(self._op, expected, got, hint)

    def _end(self) -> tuple[int, int, int]:
        """Entries, and size and place of the directory, as the end record says."""
        at = self._file.size - END.size
        if at < 0 or bytes(self._file.view(at, 4)) != END_MAGIC:
            self._refuse_end()
        _, disk, first_disk, here, count, size, start, comment = END.unpack(
            self._file.view(at, END.size)
        )
        if disk or first_disk or here != count:
            self._refuse("one archive", "a part of several", "the end record names other disks")
        if comment:
            self._refuse("no archive comment", f"{comment} bytes of it")
        if size == FULL or start == FULL:
            at, size, start = self._end64(at)
        if not 0 < count <= MAX_ENTRIES:
            self._refuse(f"1 to {MAX_ENTRIES} entries", count)
        if start > at or size != at - start:
            self._refuse(f"a directory that ends at {at}", f"{size} bytes at {start}")
        return count, size, start

    def _refuse_end(self) -> NoReturn:
        """Say whether the end is cut off, or something was added behind it."""
        tail = min(self._file.size, END.size + 0xFFFF)
        found = bytes(self._file.view(self._file.size - tail, tail)).rfind(END_MAGIC)
        extra = tail - found - END.size
        if found < 0 or extra < 0:
            self._refuse("the end record of an archive", "none", "the file is cut off")
        self._refuse("nothing behind the end record", f"{extra} bytes", "a comment or an addition")

    def _end64(self, end: int) -> tuple[int, int, int]:
        """The same from the records for large archives, before the end record at `end`."""
        at = end - LOCATOR.size - END64.size
        if at < 0:
            self._refuse("zip64 end records", f"{end} bytes before the end record")
        magic, _, place, _ = LOCATOR.unpack(self._file.view(end - LOCATOR.size, LOCATOR.size))
        fields = END64.unpack(self._file.view(at, END64.size))
        if magic != LOCATOR_MAGIC or fields[0] != END64_MAGIC or place != at:
            self._refuse("zip64 end records before the end record", "other bytes")
        return at, fields[8], fields[9]

    def _directory(self, count: int, size: int, start: int) -> list[Record]:
        data = self._file.view(start, size)
        records: list[Record] = []
        at = 0
        for _ in range(count):
            record, at = self._central(data, at)
            records.append(record)
        if at != size:
            self._refuse(f"a directory of {at} bytes for {count} entries", f"{size}")
        return records

    def _central(self, data: memoryview, at: int) -> tuple[Record, int]:
        """The directory's record at `at`, and where the next begins."""
        if len(data) - at < CENTRAL.size:
            self._refuse("a whole directory record", f"{len(data) - at} bytes")
        fields = CENTRAL.unpack(data[at : at + CENTRAL.size])
        magic, _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = fields[:12]
        comment_size, _, _, attributes, start = fields[12:]
        if magic != CENTRAL_MAGIC:
            self._refuse("a directory record", f"{bytes(magic)!r}")
        end = at + CENTRAL.size + name_size + extra_size + comment_size
        if end > len(data):
            self._refuse("a whole directory record", "one that runs over the directory's end")
        at += CENTRAL.size
        path = self._path(bytes(data[at : at + name_size]))
        what = f"entry {path!r}"
        self._check_flags(what, flags, method, attributes)
        if comment_size:
            self._refuse(f"no comment on {what}", f"{comment_size} bytes of it")
        extra = bytes(data[at + name_size : end])
        size, packed, start = self._wide(what, extra, size, packed, start)
        if size != packed:
            self._refuse(f"equal sizes of stored {what}", f"{packed} and {size}")
        return Record(path, size, crc, start), end

    def _path(self, raw: bytes) -> str:
        try:
            path = raw.decode()
        except UnicodeDecodeError:
            self._refuse("paths in ASCII", repr(raw[:MAX_PATH]))
        fault = path_fault(path)
        if fault:
            self._refuse(f"a portable path of entry {path[:MAX_PATH]!r}", fault)
        return path

    def _check_flags(self, what: str, flags: int, method: int, attributes: int) -> None:
        if flags & 0x2041:
            self._refuse(f"{what} in the clear", "an encrypted one")
        if flags & 8:
            self._refuse(f"the sizes of {what} in its header", "a data descriptor behind it")
        if flags:
            self._refuse(f"no flags on {what}", f"{flags:#06x}")
        if method:
            self._refuse(f"{what} stored", f"compression method {method}", "pack it with candle")
        if attributes != MODE:
            kind = "a symbolic link" if attributes >> 28 == 0o12 else f"mode {attributes:#x}"
            self._refuse(f"{what} as a regular file", kind)

    def _wide(
        self, what: str, extra: bytes, size: int, packed: int, start: int
    ) -> tuple[int, int, int]:
        """The same three, from the zip64 field where the header has them full."""
        full = (size, packed, start).count(FULL)
        head = struct.pack("<2H", ZIP64_FIELD, 8 * full) if full else b""
        if extra[:4] != head or len(extra) != len(head) + 8 * full:
            self._refuse(
                f"{'just a zip64' if full else 'no extra'} field of {what}", f"{len(extra)} bytes"
            )
        wide = iter(struct.unpack_from(f"<{full}Q", extra, len(head)))
        size, packed, start = (next(wide) if v == FULL else v for v in (size, packed, start))
        return size, packed, start

    def _check_paths(self) -> None:
        paths = [record.path for record in self.records]
        clash = collision(paths)
        if clash:
            self._refuse("paths apart from each other", clash)
        if paths[0] != MANIFEST:
            self._refuse(f"{MANIFEST} as the first entry", paths[0])

    def _check_layout(self, directory: int) -> None:
        """Local headers and data must fill the file up to the directory, in order."""
        at = 0
        for record in self.records:
            what = f"entry {record.path!r}"
            if record.start != at:
                fault = "overlaps the one before" if record.start < at else "follows a gap"
                self._refuse(f"{what} at {at}", f"{record.start}", f"it {fault}")
            expected = local_header(record)
            found = bytes(self._file.view(at, min(len(expected), directory - at)))
            if found != expected:
                self._refuse(f"the local header of {what} to agree", _difference(found, expected))
            if record.end > directory:
                left = directory - record.data
                self._refuse(f"{record.size} bytes of {what}", f"{left} up to the directory")
            at = record.end
        if at != directory:
            self._refuse("the directory right after the entries", f"{directory - at} bytes between")

    def _check_canonical(self, size: int, start: int) -> None:
        """Whatever field no check above has named."""
        expected = b"".join(map(central_header, self.records))
        expected += end_records(len(self.records), size, start)
        found = bytes(self._file.view(start, self._file.size - start))
        if found != expected:
            pairs = zip(found, expected, strict=False)
            at = next((i for i, (a, b) in enumerate(pairs) if a != b), len(expected))
            self._refuse("a directory in its canonical form", f"another byte at {start + at}")


_LOCAL_FIELDS = (
    ("signature", 0, 4),
    ("version needed", 4, 6),
    ("flags", 6, 8),
    ("compression method", 8, 10),
    ("time", 10, 14),
    ("checksum", 14, 18),
    ("sizes", 18, 26),
    ("lengths of name and extra field", 26, 30),
)


def _difference(found: bytes, expected: bytes) -> str:
    for name, begin, end in _LOCAL_FIELDS:
        if found[begin:end] != expected[begin:end]:
            return f"{name} other than the directory's"
    name_end = LOCAL.size + int.from_bytes(expected[26:28], "little")
    if found[:name_end] != expected[:name_end]:
        return "a name other than the directory's"
    return "another alignment field, so that data would not begin at a multiple of 64"
