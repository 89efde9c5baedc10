"""Reading and writing safetensors files."""

from __future__ import annotations

import json
import struct
import tracemalloc
from array import array
from pathlib import Path

import pytest

from candle.dtype import DType
from candle.errors import DTypeError, SafetensorsError
from candle.formats.safetensors import MAX_HEADER, SafetensorsFile
from candle.formats.safetensors_write import save_safetensors


def raw(header: str, data: bytes = b"") -> bytes:
    text = header.encode()
    return struct.pack("<Q", len(text)) + text + data


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return path


ONE = '"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'


def test_a_tensor_is_found_and_read_in_place(tmp_path: Path) -> None:
    values = array("f", [1.5, -2.0])
    with SafetensorsFile.open(write(tmp_path, raw("{" + ONE + "}", values.tobytes()))) as file:
        info = file.tensors["w"]
        assert (info.dtype, info.shape, info.nbytes) == (DType.F32, (2,), 8)
        assert info.offset == 8 + len("{" + ONE + "}")
        assert file.data("w").tobytes() == values.tobytes()
        assert file.data("w").readonly
        assert file.metadata == {}
        assert list(file.tensors) == ["w"]
        assert "w" in file.tensors and "v" not in file.tensors
        assert file.tensors.get("v") is None


def test_spaces_and_any_order_of_fields_are_read(tmp_path: Path) -> None:
    header = (
        ' {\n "w" : {"data_offsets" : [ 0 , 4 ],\t"shape":[ ], "dtype":"F32"} ,'
        '"__metadata__": {"a":"b"} } \n'
    ).lstrip()
    with SafetensorsFile.open(write(tmp_path, raw(header, b"1234"))) as file:
        assert file.tensors["w"].shape == ()
        assert file.metadata == {"a": "b"}


def test_empty_metadata_is_accepted(tmp_path: Path) -> None:
    """fastsafetensors PR 89."""
    with SafetensorsFile.open(write(tmp_path, raw('{"__metadata__":{}}'))) as file:
        assert file.metadata == {} and len(file.tensors) == 0


def test_a_file_of_no_tensors_is_read(tmp_path: Path) -> None:
    with SafetensorsFile.open(write(tmp_path, raw("{}"))) as file:
        assert len(file.tensors) == 0


@pytest.mark.parametrize("size", [4095, 4096, 4097, 65535, 65536, 99_994, 99_999, 100_000, 100_001])
def test_a_header_of_any_size_is_read(tmp_path: Path, size: int) -> None:
    """huggingface_hub#4602: 99,994 to 100,000 bytes were cut by a prefetch."""
    start = "{" + ONE + ',"__metadata__":{"k":"'
    header = start + "x" * (size - len(start) - 3) + '"}}'
    assert len(header) == size
    with SafetensorsFile.open(write(tmp_path, raw(header, b"abcdefgh"))) as file:
        assert file.data("w").tobytes() == b"abcdefgh"


def test_empty_tensors_between_others_are_read(tmp_path: Path) -> None:
    header = (
        '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},'
        '"e":{"dtype":"F32","shape":[3,0],"data_offsets":[2,2]},'
        '"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}'
    )
    with SafetensorsFile.open(write(tmp_path, raw(header, b"xyz"))) as file:
        assert file.tensors["e"].shape == (3, 0)
        assert file.data("e").nbytes == 0
        assert file.data("b").tobytes() == b"z"


@pytest.mark.parametrize(
    ("name", "bits"),
    [("F8_E4M3", 8), ("F8_E5M2", 8), ("C64", 64), ("F4", 4), ("I8", 8), ("U16", 16)],
)
def test_a_foreign_dtype_is_refused_where_it_is_asked_for(
    tmp_path: Path, name: str, bits: int
) -> None:
    size = 2 * bits // 8
    header = (
        f'{{"odd":{{"dtype":"{name}","shape":[2],"data_offsets":[0,{size}]}},'
        f'"w":{{"dtype":"U8","shape":[1],"data_offsets":[{size},{size + 1}]}}}}'
    )
    with SafetensorsFile.open(write(tmp_path, raw(header, bytes(size + 1)))) as file:
        assert file.data("w").nbytes == 1
        assert file.tensors.foreign == {"odd": name}
        for ask in (lambda: file.tensors["odd"], lambda: file.data("odd"), file.tensors.values):
            with pytest.raises(SafetensorsError, match=f"tensor 'odd'.*got {name}"):
                list(ask())  # type: ignore[call-overload]


def test_an_absent_tensor_names_its_neighbours(tmp_path: Path) -> None:
    header = '{"layer.weight":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    says = r"'layer\.wieght'.*near it: layer\.weight"
    file = SafetensorsFile.open(write(tmp_path, raw(header, b"x")))
    with file, pytest.raises(SafetensorsError, match=says):
        file.tensors["layer.wieght"]


def test_the_cap_on_headers_is_stated_and_costs_nothing(tmp_path: Path) -> None:
    """safetensors#668: a header of 132,095,296 bytes, for 1.29 million tensors."""
    path = tmp_path / "large.safetensors"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", 132_095_296) + b'{"')
        stream.truncate(132_095_296 + 8)
    tracemalloc.start()
    with pytest.raises(SafetensorsError, match=f"at most {MAX_HEADER} bytes, got 132095296"):
        SafetensorsFile.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_many_small_tensors_take_bounded_memory(tmp_path: Path) -> None:
    """safetensors#668: memory grows with the header, by a small factor."""
    count = 5_000
    header = ",".join(
        f'"layers.{i}.bias":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{i + 1}]}}'
        for i in range(count)
    )
    path = write(tmp_path, raw("{" + header + "}", bytes(count)))
    tracemalloc.start()
    with SafetensorsFile.open(path) as file:
        assert len(file.tensors) == count
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15 * len(header)


@pytest.mark.parametrize(
    "dtype",
    [
        DType.F32,
        DType.F64,
        DType.F16,
        DType.BF16,
        DType.I64,
        DType.I32,
        DType.U32,
        DType.U8,
        DType.BOOL,
    ],
)
def test_every_dtype_makes_the_round_trip_to_the_byte(tmp_path: Path, dtype: DType) -> None:
    """tinygrad PR 3310; safetensors#436: bf16 and the others, read and written."""
    data = bytes(range(dtype.size * 6))
    first, second = tmp_path / "a", tmp_path / "b"
    save_safetensors(first, {"w": (dtype, (2, 3), data)}, {"format": "pt"})
    with SafetensorsFile.open(first) as file:
        assert file.tensors["w"].dtype is dtype
        assert file.data("w").tobytes() == data
        again = {n: (i.dtype, i.shape, file.data(n)) for n, i in file.tensors.items()}
        save_safetensors(second, again, file.metadata)
    assert first.read_bytes() == second.read_bytes()


def test_the_layout_is_the_reference_implementations(tmp_path: Path) -> None:
    """Widest type first, then by name; compact JSON, padded with spaces to 8 bytes."""
    path = tmp_path / "out"
    tensors = {
        "b": (DType.U8, (3,), b"xyz"),
        "a": (DType.U8, (1,), b"w"),
        "é\n": (DType.F16, (1,), b"hh"),
        "z": (DType.I64, (), b"12345678"),
    }
    save_safetensors(path, tensors, {})
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert content[8 : 8 + length].rstrip(b" ").decode() == (
        '{"__metadata__":{},"z":{"dtype":"I64","shape":[],"data_offsets":[0,8]},'
        '"é\\n":{"dtype":"F16","shape":[1],"data_offsets":[8,10]},'
        '"a":{"dtype":"U8","shape":[1],"data_offsets":[10,11]},'
        '"b":{"dtype":"U8","shape":[3],"data_offsets":[11,14]}}'
    )
    assert content[8 + length :] == b"12345678hhwxyz"
    save_safetensors(path, dict(reversed(tensors.items())), {})
    assert path.read_bytes() == content


def test_the_reference_implementation_agrees(tmp_path: Path) -> None:
    reference = pytest.importorskip("safetensors.numpy")
    numpy = pytest.importorskip("numpy")
    arrays = {
        "one": numpy.ones((2, 2), numpy.float16),
        "two": numpy.zeros((0, 4), numpy.float32),
        "тре": numpy.array([7], numpy.int32),
        "four": numpy.array([True, False, True]),
        "five": numpy.array(5, numpy.int64),
        "a": numpy.ones((3,), numpy.uint8),
    }
    kinds = [DType.F16, DType.F32, DType.I32, DType.BOOL, DType.I64, DType.U8]
    tensors = {n: (d, a.shape, a) for (n, a), d in zip(arrays.items(), kinds, strict=True)}
    save_safetensors(tmp_path / "out", tensors, {"format": "np"})
    theirs = reference.save(arrays, {"format": "np"})
    assert (tmp_path / "out").read_bytes() == theirs


def test_what_cannot_be_saved_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out"
    good = (DType.F32, (2,), bytes(8))
    for tensors, metadata, says in [
        ({"w": (DType.Q8_0, (32,), bytes(34))}, None, "dequantize"),
        ({"w": (DType.F32, (2,), bytes(7))}, None, "8 contiguous bytes"),
        ({"w": (DType.F32, (-1, -2), bytes(8))}, None, "at least 0"),
        ({"__metadata__": good}, None, "reserves"),
        ({"\ud800": good}, None, "text"),
        ({"w": good}, {"a": 1}, "text to text"),
        ({"w": (DType.F32, (2,), memoryview(bytes(16))[::2])}, None, "contiguous"),
    ]:
        with pytest.raises((SafetensorsError, DTypeError), match=says):
            save_safetensors(path, tensors, metadata)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


def test_numpy_arrays_are_sources(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    source = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    save_safetensors(tmp_path / "out", {"w": (DType.F32, source.shape, source)})
    with SafetensorsFile.open(tmp_path / "out") as file:
        found = numpy.frombuffer(file.data("w"), numpy.float32).reshape(2, 3)
        assert (found == source).all()


def test_the_header_is_what_json_says(tmp_path: Path) -> None:
    """Escapes in names, against Python's own parser."""
    names = ['q"uote', "back\\slash", "tab\t", "nul\0", "é", "\U0001f56f", "</script>", "a/b"]
    for ascii_only in (True, False):
        members = {n: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for n in names}
        header = json.dumps(members, ensure_ascii=ascii_only)
        with SafetensorsFile.open(write(tmp_path, raw(header))) as file:
            assert list(file.tensors) == names
