"""Segments: whole or refused."""

from __future__ import annotations

import hashlib
import random
import struct
from array import array
from pathlib import Path

import pytest

from candle.dtype import DType
from candle.errors import CandleError, OptionError, StoreError
from candle.formats.atomic import atomic_file
from candle.rag.segment import IDS, INFO, VECTORS, Segment, SegmentWriter


def write(path: Path, rows: int = 5, columns: int = 4) -> str:
    with atomic_file(path) as file:
        kinds = {VECTORS: (DType.F32, columns), IDS: (DType.I64, 1), INFO: (DType.U8, 1)}
        writer = SegmentWriter(file, kinds)
        for row in range(rows):
            writer.write(array("f", [row] * columns))
        writer.next_section()
        writer.write(array("q", range(rows)))
        writer.next_section()
        writer.write(b"{}")
        return writer.finish(rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "a.seg")
    return tmp_path / "a.seg"


def test_sections_come_back_aligned(path: Path) -> None:
    segment = Segment.open(path)
    assert segment.rows == 5
    assert segment.vectors(4).cast("f").tolist()[4:8] == [1.0] * 4
    assert segment.data(IDS).cast("q").tolist() == [0, 1, 2, 3, 4]
    assert bytes(segment.data(INFO)) == b"{}"
    assert all(section.offset % 64 == 0 for section in segment.sections.values())
    segment.verify()


def test_the_layout_is_the_documented_one(path: Path) -> None:
    """docs/reference/knowledge-base.md, read with nothing but struct."""
    data = path.read_bytes()
    magic, version, count, size, rows, digest = struct.unpack_from("<8sIIQQ32s", data)
    assert (magic, version, count, size, rows) == (b"CANDLSEG", 1, 3, len(data), 5)
    assert hashlib.sha256(data[:32] + data[64 : 64 + 96 * 3]).digest() == digest
    kind, offset, size, dtype, columns, flags, checksum = struct.unpack_from(
        "<8sQQIII28x32s", data, 64
    )
    assert (kind, offset, size, dtype, columns, flags) == (b"vectors\0", 384, 80, 0, 4, 1)
    assert hashlib.sha256(data[384:464]).digest() == checksum


def test_the_same_content_is_the_same_bytes(tmp_path: Path, path: Path) -> None:
    assert write(tmp_path / "b.seg") == Segment.open(path).digest
    assert (tmp_path / "b.seg").read_bytes() == path.read_bytes()


def test_cut_anywhere_it_is_refused(path: Path) -> None:
    """chroma#7238 (R10)."""
    data = path.read_bytes()
    for size in range(len(data)):
        path.with_name("cut.seg").write_bytes(data[:size])
        with pytest.raises(StoreError):
            Segment.open(path.with_name("cut.seg"))


def test_trailing_bytes_are_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(64))
    with pytest.raises(StoreError, match="cut or grew"):
        Segment.open(path)


@pytest.mark.parametrize(
    "offset, value, wanted",
    [(0, b"GGUF", "begins with"), (8, b"\2", "segment version 1"), (40, b"\7", "hash")],
)
def test_a_foreign_header_is_named(path: Path, offset: int, value: bytes, wanted: str) -> None:
    data = bytearray(path.read_bytes())
    data[offset : offset + len(value)] = value
    path.write_bytes(data)
    with pytest.raises(StoreError, match=wanted):
        Segment.open(path)


def test_a_header_that_matches_its_hash_is_still_not_trusted(path: Path) -> None:
    """Every field set to hostile values, the hash made anew."""
    whole = path.read_bytes()
    for field in [*range(8, 32, 4), *range(64, 64 + 96 * 3, 4)]:
        for value in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
            data = bytearray(whole)
            struct.pack_into("<I", data, field, value)
            (count,) = struct.unpack_from("<I", data, 12)
            table = bytes(data[:32]) + bytes(data[64 : 64 + 96 * count])
            data[32:64] = hashlib.sha256(table).digest()
            path.write_bytes(data)
            try:
                segment = Segment.open(path)
                segment.vectors(4)
                for kind in segment.sections:
                    segment.data(kind)
            except StoreError:
                continue


def test_random_mutations_raise_only_our_errors(path: Path) -> None:
    whole = path.read_bytes()
    rng = random.Random(5)
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            segment = Segment.open(path)
            segment.vectors(4)
            segment.verify()
        except CandleError:
            continue


def test_a_flipped_byte_of_a_vector_is_found_by_verify(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[390] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="'vectors' as it was written"):
        Segment.open(path).verify()


def test_another_dimension_is_refused_with_both(path: Path) -> None:
    """uteke PR 918 (R25)."""
    with pytest.raises(StoreError, match="8 wide, got f32 of 4"):
        Segment.open(path).vectors(8)


def test_a_missing_file_or_section_and_a_folder(path: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Segment.open(tmp_path / "none.seg")
    with pytest.raises(StoreError):
        Segment.open(tmp_path)
    with pytest.raises(StoreError, match="'codes'"):
        Segment.open(path).data("codes")


def test_a_segment_has_sections(tmp_path: Path) -> None:
    with pytest.raises(OptionError), atomic_file(tmp_path / "x.seg") as file:
        SegmentWriter(file, {})
    assert not list(tmp_path.glob("*x.seg*"))
