"""Malformed GGUF files, each named after what it tries."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from candle.errors import GgufError
from candle.formats.gguf import GgufFile

U8, U32, F32, BOOL, STR, ARRAY = 0, 4, 6, 7, 8, 9


def string(text: str | bytes, length: int = -1) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw) if length < 0 else length) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


def array(key: str, kind: int, count: int, elements: bytes = b"") -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", kind, count) + elements)


def tensor(
    name: str | bytes = "w",
    dims: tuple[int, ...] = (2,),
    kind: int = 0,
    offset: int = 0,
    rank: int = -1,
) -> bytes:
    """A tensor's line; the fastest size first."""
    head = string(name) + struct.pack("<I", len(dims) if rank < 0 else rank)
    return head + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def craft(
    pairs: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    data: int = 64,
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    pair_count: int = -1,
    tensor_count: int = -1,
) -> bytes:
    """A file of crafted parts, `data` zero bytes behind them; counts may lie."""
    pairs, tensors = pairs or [], tensors or []
    counts = (
        len(tensors) if tensor_count < 0 else tensor_count,
        len(pairs) if pair_count < 0 else pair_count,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + bytes(data)


def scores(kind: int, count: int, elements: bytes) -> list[bytes]:
    tokens = array("tokenizer.ggml.tokens", STR, 4, string("a") * 4)
    return [tokens, array("tokenizer.ggml.scores", kind, count, elements)]


def nested(depth: int) -> bytes:
    inner = struct.pack("<IQ", ARRAY, 1) * depth + struct.pack("<IQ", U8, 0)
    return pair("k", ARRAY, inner)


def alignment(value: int, kind: int = U32) -> bytes:
    raw = struct.pack("<I", value) if kind == U32 else struct.pack("<Q", value)
    return craft([pair("general.alignment", kind, raw)], [tensor()])


GOOD = craft([pair("k", U32, struct.pack("<I", 1))], [tensor()])
BIG_ENDIAN = b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(100)

# name: (bytes, what the error says)
ATTACKS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "expected a GGUF file, got an empty file"),
    "magic_alone": (b"GGUF", "4 bytes of the version, got 0 left"),
    "cut_in_the_counts": (craft()[:20], "8 bytes of the metadata count"),
    "zip_instead": (b"PK\x03\x04" + bytes(60), "a ZIP archive"),
    "safetensors_instead": (struct.pack("<Q", 2) + b"{}", "a safetensors file"),
    "html_instead": (b"<html>404</html>" + bytes(60), "an HTML page"),
    "ggml_instead": (b"tjgg" + bytes(60), "older than GGUF"),
    "big_endian": (BIG_ENDIAN, "expected a little-endian GGUF file, got a big-endian one"),
    "version_0": (craft(version=0), "version 2 or 3, got version 0"),
    "version_1": (craft(version=1), "version 2 or 3, got version 1"),
    "version_4": (craft(version=4), "version 2 or 3, got version 4"),
    "tensor_count_2_63": (craft(tensor_count=1 << 63), "at most 262144 tensors"),
    "tensor_count_wraps": (craft(tensor_count=(1 << 64) // 24 + 1), "at most 262144 tensors"),
    "tensor_count_too_large": (craft(tensor_count=1000), "1000 tensors, got 72 bytes"),
    "pair_count_2_63": (craft(pair_count=1 << 63), "at most 262144 metadata pairs"),
    "pair_count_too_large": (craft(pair_count=1000), "1000 metadata pairs, got 72 bytes"),
    "pair_count_one_more": (craft(pair_count=1, data=0), "the file is cut off"),
    "key_length_2_64": (craft([string("k", (1 << 64) - 1) + bytes(40)]), "bytes of a metadata key"),
    "key_not_utf8": (craft([pair(b"\xff", U8, b"\1")]), "UTF-8 in a metadata key"),
    "key_twice": (craft([pair("k", U8, b"\1")] * 2), "'k' twice"),
    "value_type_13": (
        craft([pair("k", 13, bytes(8))]),
        "a known type of metadata 'k', got number 13",
    ),
    "value_cut_off": (craft([pair("k", 12, b"")], data=0)[:40], "8 bytes of metadata 'k'"),
    "bool_of_2": (craft([pair("k", BOOL, b"\2")]), "0 or 1 as a bool in metadata 'k'"),
    "text_not_utf8": (craft([pair("k", STR, string(b"a\xff"))]), "UTF-8 in metadata 'k'"),
    "text_length_2_63": (
        craft([pair("k", STR, string("a", 1 << 63) + bytes(50))]),
        "bytes of metadata 'k'",
    ),
    "array_type_99": (
        craft([array("k", 99, 1, bytes(50))]),
        "a known element type of metadata 'k'",
    ),
    "array_count_2_64": (craft([array("k", U8, (1 << 64) - 1)]), "elements of metadata 'k'"),
    "array_count_wraps": (craft([array("k", F32, 1 << 62)]), "elements of metadata 'k'"),
    "strings_cut_off": (craft([array("k", STR, 2, string("a", 500))]), "2 strings of metadata 'k'"),
    "last_string_cut_off": (craft([array("k", STR, 1, string("a", 500))]), "1 strings of metadata"),
    "string_length_2_64": (
        craft([array("k", STR, 2, string("a", (1 << 64) - 8))]),
        "2 strings of metadata 'k'",
    ),
    "arrays_in_arrays_for_ever": (craft([nested(5000)]), "at most 4 arrays in each other"),
    "many_arrays_in_an_array": (craft([array("k", ARRAY, 1 << 40)]), "elements of metadata 'k'"),
    "scores_of_bytes": (
        craft(scores(U8, 4, bytes(4))),
        "'tokenizer.ggml.scores' of type list[float], got array[u8]",
    ),
    "scores_of_text": (
        craft(scores(STR, 4, string("a") * 4)),
        "'tokenizer.ggml.scores' of type list[float], got array[str]",
    ),
    "scores_one_short": (
        craft(scores(F32, 3, bytes(12))),
        "4 elements of 'tokenizer.ggml.scores', one a token, got 3",
    ),
    "tokens_of_numbers": (
        craft([array("tokenizer.ggml.tokens", U32, 2, bytes(8))]),
        "'tokenizer.ggml.tokens' of type list[str], got array[u32]",
    ),
    "tokens_not_an_array": (
        craft([pair("tokenizer.ggml.tokens", STR, string("a"))]),
        "'tokenizer.ggml.tokens' of type list[str], got str",
    ),
    "alignment_0": (alignment(0), "a power of two from 8, got 0 (u32)"),
    "alignment_24": (alignment(24), "a power of two from 8, got 24 (u32)"),
    "alignment_1": (alignment(1), "a power of two from 8, got 1 (u32)"),
    "alignment_of_64_bits": (alignment(32, 10), "got 32 (u64)"),
    "alignment_2_31": (alignment(1 << 31), "got 0 bytes of tensors (the file is cut off)"),
    "tensor_twice": (craft(tensors=[tensor(), tensor(offset=32)]), "'w' twice"),
    "tensor_name_not_utf8": (craft(tensors=[tensor(b"\xff\xfe")]), "UTF-8 in a tensor name"),
    "zero_dimension": (
        craft(tensors=[tensor(dims=(4, 0))]),
        "sizes of at least 1 in tensor 'w', got [4, 0]",
    ),
    "rank_5": (craft(tensors=[tensor(dims=(1,) * 5)]), "at most 4 axes of tensor 'w', got 5"),
    "rank_2_32": (craft(tensors=[tensor(rank=(1 << 32) - 1)]), "at most 4 axes of tensor 'w'"),
    "dim_2_42": (
        craft(tensors=[tensor(dims=((1 << 42) + 1,))]),
        "of tensor 'w' at 0, got 64 bytes",
    ),
    "dims_wrap": (craft(tensors=[tensor(dims=(1 << 32, 1 << 32))]), "more elements than 63 bits"),
    "dims_wrap_to_two": (
        craft(tensors=[tensor(dims=(1 << 63, 2, 1, 1))]),
        "more elements than 63 bits",
    ),
    "bytes_wrap": (
        craft(tensors=[tensor(dims=(1 << 62,), kind=28)]),
        "more bytes than 63 bits can count",
    ),
    "rows_not_whole_blocks": (
        craft(tensors=[tensor(dims=(33,), kind=8)]),
        "rows of whole Q8_0 blocks in tensor 'w', got 33",
    ),
    "offset_unaligned": (craft(tensors=[tensor(offset=4)]), "a multiple of 32, got 4"),
    "offset_past_the_end": (
        craft(tensors=[tensor(offset=96)]),
        "8 bytes of tensor 'w' at 96, got 64",
    ),
    "offset_wraps": (
        craft(tensors=[tensor(offset=(1 << 64) - 32)]),
        "of tensor 'w' at 18446744073709551584",
    ),
    "overlap": (
        craft(tensors=[tensor("a", (16,)), tensor("b", offset=32)]),
        "tensors apart from each other, got 'a' and 'b'",
    ),
    "same_bytes_twice": (craft(tensors=[tensor("a"), tensor("b")]), "got 'a' and 'b'"),
    "cut_by_one_byte": (craft(tensors=[tensor(dims=(16,))])[:-1], "64 bytes of tensor 'w' at 0"),
    "cut_in_a_tensor_line": (craft(tensors=[tensor()], data=0)[:50], "the file is cut off"),
    "split_count_of_text": (
        craft([pair("split.count", STR, string("3"))], [tensor()]),
        "'split.count' of type int, got str",
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_refused(name: str, tmp_path: Path, watched: Callable[..., Any]) -> None:
    """llama.cpp PR 24263, 26946, 18674, 14595, 26690, #15711: errors, never a signal."""
    content, says = ATTACKS[name]
    path = tmp_path / f"{name}.gguf"
    path.write_bytes(content)
    with pytest.raises(GgufError) as caught:
        watched(GgufFile.open, path)
    assert says in str(caught.value), str(caught.value)
    assert str(path) in str(caught.value)


def test_text_in_an_array_is_checked_when_it_is_read(tmp_path: Path) -> None:
    """Decoding is put off, not left out."""
    path = tmp_path / "m"
    path.write_bytes(craft([array("k", STR, 2, string("a") + string(b"\xff"))]))
    with GgufFile.open(path) as file, pytest.raises(GgufError, match="UTF-8 in element 1 of"):
        file.metadata["k"]
    path.write_bytes(craft([array("k", BOOL, 2, b"\0\7")]))
    with GgufFile.open(path) as file, pytest.raises(GgufError, match="0 or 1 as a bool"):
        file.metadata["k"]


def test_the_file_that_the_attacks_change_is_good(tmp_path: Path) -> None:
    path = tmp_path / "good"
    path.write_bytes(GOOD)
    with GgufFile.open(path) as file:
        assert file.data("w").nbytes == 8 and file.metadata["k"] == 1
