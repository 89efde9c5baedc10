"""Crafted `.candle` files: refused when opened, before memory or disk is used for what they claim.

Entries are stored, never compressed, so a file of n bytes holds at most n: there is no bomb to be
unpacked. Every other trick of ZIP is another sequence of bytes than the one that is allowed.
"""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from candle.errors import PackageError
from candle.package.format import (
    FULL,
    MANIFEST,
    Record,
    central_header,
    end_records,
    local_header,
)
from candle.package.manifest import MAX_MANIFEST
from candle.package.reader import PackageReader
from candle.package.store import Store

HEAD = 'format = 1\nname = "m"\nversion = "1.0"\nkind = "encoder"\n'


def manifest(*entries: tuple[str, bytes], head: str = HEAD) -> bytes:
    lines = [
        f'\n[[entries]]\npath = "{path}"\nsize = {len(data)}\n'
        f'sha256 = "{sha256(data).hexdigest()}"\n'
        for path, data in sorted(entries)
    ]
    return (head + "".join(lines)).encode()


def archive(
    *parts: tuple[str, bytes], change: Callable[[bytearray], object] | None = None
) -> bytes:
    """Parts in the canonical form, whatever they are."""
    out, records = bytearray(), []
    for path, data in parts:
        record = Record(path, len(data), zipfile.crc32(data), len(out))
        records.append(record)
        out += local_header(record) + data
    directory = b"".join(map(central_header, records))
    out += directory + end_records(len(records), len(directory), len(out))
    if change is not None:
        change(out)
    return bytes(out)


def refused(tmp_path: Path, data: bytes, says: str) -> None:
    """Neither opened nor installed, in little memory, and nothing is left on the disk."""
    path = tmp_path / "bad.candle"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(PackageError, match=says):
            PackageReader.open(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (8 << 20) + 40 * min(len(data), MAX_MANIFEST)
    store = Store(tmp_path / "home")
    with pytest.raises(PackageError):
        store.install(path)
    assert not (tmp_path / "home").exists()


def zipped(method: int, name: str = "weights", data: bytes = bytes(1 << 20), **entry: int) -> bytes:
    """An ordinary ZIP archive, as any program writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as out:
        out.writestr(MANIFEST, manifest((name, data)))
        info = zipfile.ZipInfo(name)
        info.compress_type = method
        for key, value in entry.items():
            setattr(info, key, value)
        out.writestr(info, data)
    return buffer.getvalue()


def test_the_builder_builds_what_is_accepted(tmp_path: Path) -> None:
    entries = [("a/b", b"1"), ("weights", b"22")]
    (tmp_path / "good.candle").write_bytes(archive((MANIFEST, manifest(*entries)), *entries))
    assert Store(tmp_path / "home").install(tmp_path / "good.candle").size == 3


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bomb_is_not_unpacked(tmp_path: Path, method: int) -> None:
    refused(tmp_path, zipped(method, data=bytes(50 << 20)), "stored|flags")


@pytest.mark.parametrize("mode", [0o120777, 0o040755, 0o100755, 0o020666, 0o010644])
def test_links_folders_and_devices_are_no_entries(tmp_path: Path, mode: int) -> None:
    entry = [("link", b"/etc/passwd")]
    data = archive((MANIFEST, manifest(*entry)), *entry)
    at = data.rindex(b"link") - 46
    attributes = struct.pack("<I", mode << 16)
    refused(tmp_path, data[: at + 38] + attributes + data[at + 42 :], "regular file")


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a/../x", "a//b", "a/", "C:x", "a\\b", "con", "x.", "é", "a" * 201]
)
def test_paths_that_lead_elsewhere(tmp_path: Path, path: str) -> None:
    refused(tmp_path, archive((MANIFEST, HEAD.encode()), (path, b"1")), "path")


@pytest.mark.parametrize("twin", ["weights", "WEIGHTS", "weights/a", MANIFEST])
def test_the_same_name_twice(tmp_path: Path, twin: str) -> None:
    parts = [("weights", b"1"), (twin, b"2")]
    refused(tmp_path, archive((MANIFEST, manifest(("weights", b"1"))), *parts), "apart")
    refused(tmp_path, archive((MANIFEST, manifest(*parts)), *parts), "apart")


def test_entries_that_share_bytes(tmp_path: Path) -> None:
    """The quoted-overlap bomb: many entries of the directory over one stretch of data."""
    data = b"x" * 5000
    names = [f"e{n:04}" for n in range(2000)]
    head = manifest(*((name, data) for name in names))
    first = Record(MANIFEST, len(head), zipfile.crc32(head), 0)
    shared = Record(names[0], len(data), zipfile.crc32(data), first.end)
    records = [first, *(Record(n, len(data), shared.crc, shared.start) for n in names)]
    directory = b"".join(map(central_header, records))
    body = local_header(first) + head + local_header(shared) + data
    end = end_records(len(records), len(directory), len(body))
    refused(tmp_path, body + directory + end, "overlaps")


def test_sizes_in_zip64_fields_are_claims(tmp_path: Path) -> None:
    """An exbyte in a file of a kilobyte, in directory and local header alike."""
    head = manifest(("w", b"1"))
    for size in (1 << 60, FULL, (1 << 64) - 1):
        first = Record(MANIFEST, len(head), zipfile.crc32(head), 0)
        huge = Record("w", size, 0, first.end)
        body = local_header(first) + head + local_header(huge) + b"1"
        directory = central_header(first) + central_header(huge)
        end = end_records(2, len(directory), len(body))
        refused(tmp_path, body + directory + end, "up to the directory")


def test_zip64_end_records_that_claim_other_places(tmp_path: Path) -> None:
    good = archive((MANIFEST, manifest()))
    end = len(good) - 22
    count, size, _ = struct.unpack("<HII", good[end + 10 : end + 20])
    for places in ((FULL, FULL), ((1 << 63) - 1, 1 << 63), (size, 1 << 40)):
        wide = end_records(count, *places)
        refused(tmp_path, good[:end] + wide, "directory|end record")
    refused(tmp_path, good[:end] + good[end : end + 12] + b"\xff" * 8 + b"\0\0", "zip64")


def test_a_count_of_entries_beyond_the_directory(tmp_path: Path) -> None:
    def claim(count: int) -> Callable[[bytearray], object]:
        return lambda out: out.__setitem__(slice(-14, -10), struct.pack("<2H", count, count))

    for count in (0, 2, 65535):
        refused(tmp_path, archive((MANIFEST, manifest()), change=claim(count)), "entries|record")


@pytest.mark.parametrize(
    "line",
    [
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{b = " * 50_000 + "1" + "}" * 50_000,
        "a." * 100_000 + "a = 1",
        "[" + "a." * 100_000 + "a]",
        'description = "' + "x" * 100_000 + '"',
        "format = 1",
        "size = " + "9" * 100_000,
    ],
    ids=lambda line: line[:12],
)
def test_a_manifest_made_to_hurt(tmp_path: Path, line: str) -> None:
    refused(tmp_path, archive((MANIFEST, (HEAD + line + "\n").encode())), "plain lines")


def test_a_manifest_that_is_too_large_or_of_too_many_entries(tmp_path: Path) -> None:
    refused(tmp_path, archive((MANIFEST, b"#" * (MAX_MANIFEST + 1))), "at most")
    entries = [(f"e{n:05}", b"") for n in range(10_000)]
    refused(tmp_path, archive((MANIFEST, manifest(*entries)), *entries), "entries")


@pytest.mark.parametrize("where", ["before", "between", "behind"])
def test_bytes_that_no_entry_owns(tmp_path: Path, where: str) -> None:
    good = archive((MANIFEST, manifest()))
    at = {"before": 0, "between": good.rindex(b"PK\x01\x02"), "behind": len(good)}[where]
    refused(tmp_path, good[:at] + b"evil" + good[at:], "begin with|ends at|nothing behind")
