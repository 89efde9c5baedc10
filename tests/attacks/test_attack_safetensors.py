"""Malformed safetensors files, each named after what it tries."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from candle.errors import SafetensorsError
from candle.formats.safetensors import SafetensorsFile

W = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def craft(header: str | bytes | dict[str, Any], data: bytes = b"", length: int = -1) -> bytes:
    """A file of a header (JSON made of a dict), a length that may lie, and data."""
    text = json.dumps(header) if isinstance(header, dict) else header
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length < 0 else length) + raw + data


def one(**fields: Any) -> bytes:
    """A file of one tensor, 8 bytes of data, some fields replaced."""
    return craft({"w": {**W, **fields}}, bytes(8))


def tensor_text(text: str) -> bytes:
    """A file whose one tensor is this JSON text."""
    return craft('{"w":' + text + "}", bytes(8))


def a_zip() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"x")
    return buffer.getvalue()


GOOD = craft({"w": W}, bytes(8))
FIELDS = '"dtype":"F32","shape":[2],"data_offsets":[0,8]'

# name: (bytes, what the error says)
ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "an empty file"),
    "seven_bytes": (b"1234567", "7 bytes that begin"),
    "length_alone": (struct.pack("<Q", 2), "8 bytes that begin"),
    "zip_instead": (a_zip(), "a PyTorch checkpoint"),
    "gguf_instead": (b"GGUF" + bytes(40), "a GGUF file"),
    "html_instead": (b"<!DOCTYPE html><html>404</html>", "an HTML page"),
    "json_instead": (b'{"error":"not found"}', "JSON text"),
    "lfs_pointer_instead": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "zeros_instead": (bytes(100), "zero bytes"),
    "length_2_63": (
        craft("{}", length=1 << 63),
        "at most 100000000 bytes, got 9223372036854775808",
    ),
    "length_all_ones": (craft("{}", length=(1 << 64) - 1), "got 18446744073709551615"),
    "length_past_the_end": (
        craft("{}", length=3),
        "expected a header of 3 bytes, got 2 bytes left",
    ),
    "length_cuts_the_header": (craft('{"a":"b"}', length=4), "expected ':' in the header"),
    "length_zero": (craft("{}", length=0), "'{' in the header, got the header's end"),
    "header_over_the_cap": (craft("{}", length=100_000_001), "at most 100000000 bytes"),
    "cut_by_one_byte": (GOOD[:-1], "8 bytes of tensors, got 7 (the file is cut off)"),
    "trailing_16_bytes": (GOOD + bytes(16), "got 16 bytes more"),
    "not_utf8": (craft(b'{"\xff":0}'), "expected a header in UTF-8, got byte 10 is not"),
    "not_json": (craft("{nonsense}"), "a string as a name"),
    "header_is_unclosed": (craft('{"w":{' + FIELDS + "}"), "got the header's end"),
    "two_headers": (craft('{}{"w":{' + FIELDS + "}}"), "nothing but spaces after"),
    "nul_padding": (craft("{}\0\0"), "nothing but spaces after"),
    "comma_at_the_end": (craft('{"w":{' + FIELDS + "},}", bytes(8)), "a string as a name"),
    "member_is_a_number": (craft('{"w":1}'), "'{' in tensor 'w'"),
    "member_is_null": (craft('{"w":null}'), "'{' in tensor 'w'"),
    "deep_nesting": (craft("{" + '"a":{' * 20_000), "'a' of tensor 'a'"),
    "deep_nesting_in_a_shape": (tensor_text('{"shape":' + "[" * 20_000), "an integer in 'shape'"),
    "name_twice": (craft('{"w":{' + FIELDS + '},"w":{' + FIELDS + "}}", bytes(8)), "'w' twice"),
    "name_twice_by_escape": (
        craft('{"w":{' + FIELDS + '},"\\u0077":{' + FIELDS + "}}", bytes(8)),
        "'w' twice",
    ),
    "field_twice": (tensor_text("{" + FIELDS + ',"shape":[2]}'), "'shape' of tensor 'w' twice"),
    "dtype_twice": (tensor_text("{" + FIELDS + ',"dtype":"F32"}'), "'dtype' of tensor 'w' twice"),
    "field_missing": (tensor_text('{"dtype":"F32","shape":[2]}'), "without one of them"),
    "field_unknown": (tensor_text("{" + FIELDS + ',"strides":[1]}'), "'strides' of tensor 'w'"),
    "metadata_twice": (craft('{"__metadata__":{},"__metadata__":{}}'), "'__metadata__' twice"),
    "metadata_key_twice": (craft('{"__metadata__":{"a":"1","a":"2"}}'), "'a' twice"),
    "metadata_of_numbers": (craft({"__metadata__": {"a": 1}}), "a string as metadata 'a'"),
    "metadata_nested": (craft({"__metadata__": {"a": {}}}), "a string as metadata 'a'"),
    "metadata_is_a_list": (craft({"__metadata__": []}), "'{' in '__metadata__'"),
    "lone_surrogate": (craft('{"\\ud800":{' + FIELDS + "}}", bytes(8)), "a string as a name"),
    "control_character_in_a_name": (craft('{"a\nb":{' + FIELDS + "}}", bytes(8)), "a string as"),
    "bad_escape": (craft('{"\\x":{' + FIELDS + "}}", bytes(8)), "a string as a name"),
    "dtype_unknown": (one(dtype="F33"), "a known dtype of tensor 'w', got 'F33'"),
    "dtype_lower_case": (one(dtype="f32"), "a known dtype of tensor 'w'"),
    "dtype_is_a_number": (one(dtype=32), "a string as 'dtype' of tensor 'w'"),
    "shape_is_a_number": (one(shape=2), "'[' in 'shape' of tensor 'w'"),
    "size_negative": (one(shape=[-2]), "an integer from 0 to 2**63-1 in 'shape'"),
    "size_twice_negative": (one(shape=[-1, -2]), "an integer from 0"),
    "size_negative_zero": (
        tensor_text('{"dtype":"F32","shape":[-0],"data_offsets":[0,8]}'),
        "got -0",
    ),
    "size_float": (one(shape=[2.0]), "got 2.0"),
    "size_exponent": (tensor_text('{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}'), "got 2e0"),
    "size_bool": (one(shape=[True]), "an integer in 'shape' of tensor 'w', got 'true]"),
    "size_text": (one(shape=["2"]), "an integer in 'shape'"),
    "size_null": (one(shape=[None]), "an integer in 'shape'"),
    "size_nan": (tensor_text('{"dtype":"F32","shape":[NaN],"data_offsets":[0,8]}'), "an integer"),
    "size_leading_zero": (
        tensor_text('{"dtype":"F32","shape":[02],"data_offsets":[0,8]}'),
        "got 02",
    ),
    "size_of_5000_digits": (one(shape=[10**4000]), "an integer from 0 to 2**63-1"),
    "size_2_63": (one(shape=[1 << 63]), "an integer from 0 to 2**63-1"),
    "shape_overflows": (one(shape=[1 << 62, 1 << 62]), "more elements than 63 bits"),
    "shape_wraps_to_its_size": (one(shape=[(1 << 62) + 2]), "bytes for tensor 'w'"),
    "shape_overflows_then_zero": (one(shape=[1 << 62, 4, 0]), "more elements than 63 bits"),
    "rank_65": (one(shape=[1] * 64 + [2]), "at most 64 numbers as 'shape'"),
    "offsets_one": (one(data_offsets=[8]), "2 data_offsets of tensor 'w', got 1"),
    "offsets_three": (one(data_offsets=[0, 8, 8]), "2 data_offsets of tensor 'w', got 3"),
    "offsets_swapped": (one(data_offsets=[8, 0]), "8 bytes for tensor 'w'"),
    "offsets_negative": (one(data_offsets=[-8, 0]), "an integer from 0"),
    "offsets_float": (one(data_offsets=[0, 8.0]), "got 8.0"),
    "offsets_too_small": (one(data_offsets=[0, 7]), "8 bytes for tensor 'w' (F32 [2]), got"),
    "offsets_past_the_end": (one(data_offsets=[8, 16]), "'w' to begin at 0, got 8"),
    "offsets_2_63": (one(data_offsets=[0, 1 << 63]), "an integer from 0 to 2**63-1"),
    "first_hole": (
        craft({"w": {**W, "data_offsets": [4, 12]}}, bytes(12)),
        "to begin at 0, got 4 (it follows a hole)",
    ),
    "hole_between": (
        craft({"a": W, "b": {**W, "data_offsets": [12, 20]}}, bytes(20)),
        "'b' to begin at 8, got 12 (it follows a hole)",
    ),
    "overlap": (
        craft({"a": W, "b": {**W, "data_offsets": [4, 12]}}, bytes(12)),
        "'b' to begin at 8, got 4 (it overlaps",
    ),
    "same_bytes_twice": (craft({"a": W, "b": W}, bytes(8)), "'b' to begin at 8, got 0"),
    "half_a_byte": (one(dtype="F4", shape=[3], data_offsets=[0, 1]), "whole bytes in tensor 'w'"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_refused(name: str, tmp_path: Path, watched: Callable[..., Any]) -> None:
    """safetensors#668, airllm#137, ComfyUI#15602: one clear error each, nothing allocated."""
    content, says = ATTACKS[name]
    path = tmp_path / f"{name}.safetensors"
    path.write_bytes(content)
    with pytest.raises(SafetensorsError) as caught:
        watched(SafetensorsFile.open, path)
    assert says in str(caught.value), str(caught.value)
    assert str(path) in str(caught.value)


def test_the_file_that_the_attacks_change_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good"
    for content in (GOOD, one()):
        path.write_bytes(content)
        with SafetensorsFile.open(path) as file:
            assert file.data("w").nbytes == 8
