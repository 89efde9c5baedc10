"""The bytes of a `.candle` file, version 1: docs/reference/package-format.md, line for line.

A package is a ZIP archive in one canonical form: for given entries there is exactly one sequence
of bytes. The functions here make each record of it; the writer writes them, and the reader makes
them again and compares, so that no field is left for a hostile file to use.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

ALIGNMENT = 64  # of every entry's data: a cache line, and the widest vector load
MANIFEST = "manifest.toml"
MAX_ENTRIES = 10_000
MAX_PATH = 200
MAX_DEPTH = 16
MAX_SIZE = (1 << 63) - 1

LOCAL_MAGIC = b"PK\x03\x04"
CENTRAL_MAGIC = b"PK\x01\x02"
END_MAGIC = b"PK\x05\x06"
END64_MAGIC = b"PK\x06\x06"
LOCATOR_MAGIC = b"PK\x06\x07"

LOCAL = struct.Struct("<4s5H3I2H")
CENTRAL = struct.Struct("<4s6H3I5H2I")
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR = struct.Struct("<4sIQI")

FULL = 0xFFFFFFFF  # "look in the zip64 field"
ZIP64_FIELD = 0x0001
ALIGNMENT_FIELD = 0xD935  # the id that Android's zipalign uses for the same purpose
PLAIN, ZIP64 = 10, 45  # "version needed": 1.0, and 4.5 where zip64 fields are used
MADE_BY_UNIX = 3 << 8
MODE = 0o100644 << 16  # a regular file; nothing else can be in a package
DATE, TIME = 0x0021, 0  # 1 January 1980, the first day of ZIP: bytes must not depend on a clock


class Record(NamedTuple):
    """One entry: what the two headers say of it, and where its local header begins."""

    path: str
    size: int
    crc: int
    start: int

    @property
    def data(self) -> int:
        """Where its bytes begin: a multiple of 64."""
        return self.start + len(local_header(self))

    @property
    def end(self) -> int:
        """Where the next local header, or the directory, begins."""
        return self.data + self.size


def local_header(record: Record) -> bytes:
    """The header before an entry's data, padded so that the data is aligned."""
    name = record.path.encode()
    large = record.size >= FULL
    extra = struct.pack("<2H2Q", ZIP64_FIELD, 16, record.size, record.size) if large else b""
    fixed = record.start + LOCAL.size + len(name) + len(extra) + 6
    padding = -fixed % ALIGNMENT
    extra += struct.pack("<3H", ALIGNMENT_FIELD, 2 + padding, ALIGNMENT) + bytes(padding)
    size = FULL if large else record.size
    needed = ZIP64 if large else PLAIN
    head = LOCAL.pack(
        LOCAL_MAGIC, needed, 0, 0, TIME, DATE, record.crc, size, size, len(name), len(extra)
    )
    return head + name + extra


def central_header(record: Record) -> bytes:
    """The entry's line in the directory."""
    name = record.path.encode()
    wide = [record.size, record.size] if record.size >= FULL else []
    wide += [record.start] if record.start >= FULL else []
    extra = struct.pack(f"<2H{len(wide)}Q", ZIP64_FIELD, 8 * len(wide), *wide) if wide else b""
    size, start = min(record.size, FULL), min(record.start, FULL)
    needed = ZIP64 if wide else PLAIN
    head = CENTRAL.pack(
        CENTRAL_MAGIC,
        MADE_BY_UNIX | needed,
        needed,
        0,
        0,
        TIME,
        DATE,
        record.crc,
        size,
        size,
        len(name),
        len(extra),
        0,
        0,
        0,
        MODE,
        start,
    )
    return head + name + extra


def end_records(count: int, size: int, start: int) -> bytes:
    """What follows a directory of `count` entries and `size` bytes that begins at `start`."""
    wide = b""
    if size >= FULL or start >= FULL:
        made = MADE_BY_UNIX | ZIP64
        wide = END64.pack(END64_MAGIC, 44, made, ZIP64, 0, 0, count, count, size, start)
        wide += LOCATOR.pack(LOCATOR_MAGIC, 0, start + size, 1)
    return wide + END.pack(END_MAGIC, 0, 0, count, count, min(size, FULL), min(start, FULL), 0)


_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@-]*")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


def path_fault(path: str) -> str:
    """What makes `path` unfit to be an entry's path on some system, or nothing."""
    for fault, found in (
        ("an empty path", not path),
        ("a NUL character", "\0" in path),
        ("a backslash", "\\" in path),
        ("an absolute path", path.startswith("/")),
        ("a drive letter", path[1:2] == ":"),
        ("a folder entry", path.endswith("/")),
        (f"more than {MAX_PATH} characters", len(path) > MAX_PATH),
    ):
        if found:
            return fault
    parts = path.split("/")
    if len(parts) > MAX_DEPTH:
        return f"more than {MAX_DEPTH} folders"
    return next((fault for fault in map(_part_fault, parts) if fault), "")


def _part_fault(part: str) -> str:
    if part in ("", ".", ".."):
        return f"{part!r} as a part of the path"
    if not _PART.fullmatch(part):
        return f"characters other than A-Z a-z 0-9 . _ + = @ - in {part!r}"
    if part.endswith("."):
        return f"a dot at the end of {part!r}, which Windows drops"
    if _RESERVED.fullmatch(part):
        return f"{part!r}, a device name on Windows"
    return ""


def collision(paths: list[str]) -> str:
    """Two paths that cannot both be files on some system, in words, or nothing."""
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(path.lower(), path)
        if other is not path:
            same = "twice" if other == path else "differs only in case"
            return f"{other!r} and {path!r} ({same})"
    for path in paths:
        parts = path.lower().split("/")
        for depth in range(1, len(parts)):
            folder = seen.get("/".join(parts[:depth]))
            if folder is not None:
                return f"{folder!r} is a file, and the folder of {path!r}"
    return ""
