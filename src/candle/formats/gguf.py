"""GGUF versions 2 and 3, little-endian, read from a mapped file.

    "GGUF"  u32 version  u64 tensor count  u64 pair count
    pairs:    string key, u32 type, value
    tensors:  string name, u32 rank, u64 sizes[rank] (fastest first), u32 type, u64 offset
    padding to `general.alignment` (32 if absent), from where the offsets count
    the tensors, each at a multiple of the alignment

A string is a u64 length and that many bytes. Numbers in the file are claims: each count is held
against the bytes that are left before anything is made of it.
"""

from __future__ import annotations

import os

from ..errors import GgufError
from .gguf_metadata import MAX_PAIRS, Cursor, GgufMetadata
from .gguf_types import GGML_TYPES
from .mapped import Closing, MappedFile
from .sniff import HEAD, describe
from .table import MAX_BYTES, ForeignTensor, TensorInfo, TensorTable, count_elements

MAX_TENSORS = 1 << 18
MAX_AXES = 4
ALIGNMENT = "general.alignment"

_TOKENS = "tokenizer.ggml.tokens"
_TOKENIZER_ARRAYS = {
    _TOKENS: "list[str]",
    "tokenizer.ggml.scores": "list[float]",
    "tokenizer.ggml.token_type": "list[int]",
    "tokenizer.ggml.merges": "list[str]",
}


class GgufFile(Closing):
    """One open GGUF file, mapped: `metadata`, `tensors`, and `data(name)` without a copy.

    Shapes are row-major: `[out, in]` for a matrix, the reverse of the order in the file. A context
    manager; views stay valid after `close` (see MappedFile).
    """

    __slots__ = ("_file", "alignment", "metadata", "path", "tensors", "version")

    def __init__(self, file: MappedFile) -> None:
        """Read the head of a mapped file. Raises GgufError."""
        cursor = Cursor(f"gguf {file.path}", file.view(0, file.size))
        self._file = file
        self.path = file.path
        self.version = _read_version(cursor, file)
        tensor_count = cursor.u64("the tensor count")
        pair_count = cursor.u64("the metadata count")
        _check_counts(cursor, tensor_count, pair_count)
        self.metadata = GgufMetadata(cursor, pair_count)
        _check_tokenizer(cursor, self.metadata)
        self.alignment = _alignment(cursor, self.metadata)
        self.tensors = _read_tensors(cursor, tensor_count, self.alignment, _part(self.metadata))

    @staticmethod
    def open(path: str | os.PathLike[str]) -> GgufFile:
        """Map and check `path`. Raises GgufError, or OSError if it cannot be opened."""
        file = MappedFile(path)
        try:
            return GgufFile(file)
        except BaseException:
            file.close()
            raise

    def data(self, name: str) -> memoryview:
        """The bytes of tensor `name`, in place, read-only. Raises GgufError."""
        info = self.tensors[name]
        return self._file.view(info.offset, info.nbytes)

    def close(self) -> None:
        """Give the file up; safe to call twice."""
        self._file.close()


def _read_version(cursor: Cursor, file: MappedFile) -> int:
    head = file.head(HEAD)
    if head[:4] != b"GGUF":
        raise GgufError(cursor.op, "a GGUF file", describe(head, file.size))
    cursor.skip(4, "the magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        cursor.refuse("a little-endian GGUF file", "a big-endian one", "convert it again")
    if version not in (2, 3):
        cursor.refuse("GGUF version 2 or 3", f"version {version}")
    return version


def _check_counts(cursor: Cursor, tensors: int, pairs: int) -> None:
    for what, count, smallest, most in (
        ("tensors", tensors, 24, MAX_TENSORS),
        ("metadata pairs", pairs, 13, MAX_PAIRS),
    ):
        if count > most:
            cursor.refuse(f"at most {most} {what}", count)
        if count > cursor.left() // smallest:
            cursor.refuse(f"{count} {what}", f"{cursor.left()} bytes", "the file is cut off")


def _check_tokenizer(cursor: Cursor, metadata: GgufMetadata) -> None:
    """The arrays of a vocabulary run side by side: their types and lengths must agree."""
    for key, kind in _TOKENIZER_ARRAYS.items():
        if key in metadata:
            metadata.check(key, kind)
    if _TOKENS not in metadata:
        return
    count = metadata.count(_TOKENS)
    for key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if key in metadata and metadata.count(key) != count:
            got = metadata.count(key)
            raise GgufError(cursor.op, f"{count} elements of {key!r}, one a token", got)


def _alignment(cursor: Cursor, metadata: GgufMetadata) -> int:
    if ALIGNMENT not in metadata:
        return 32
    value = metadata[ALIGNMENT]
    if metadata.type_name(ALIGNMENT) != "u32" or value < 8 or value & (value - 1):
        got = f"{value!r} ({metadata.type_name(ALIGNMENT)})"
        raise GgufError(cursor.op, f"{ALIGNMENT!r} a u32, a power of two from 8", got)
    return int(value)


def _part(metadata: GgufMetadata) -> str:
    """The hint for an absent tensor, if this file is one of several."""
    count = metadata.optional("split.count", "int", 1)
    number = metadata.optional("split.no", "int", 0)
    return f"this file is part {number + 1} of {count}" if count > 1 else ""


def _read_tensors(cursor: Cursor, count: int, alignment: int, part: str) -> TensorTable:
    found: dict[str, tuple[tuple[int, ...], int, int]] = {}
    for _ in range(count):
        name = cursor.string("a tensor name")
        if name in found:
            cursor.refuse("each tensor name once", f"{name!r} twice")
        found[name] = (_shape(cursor, name), cursor.u32("a type"), cursor.u64("an offset"))
    start = -(-cursor.at // alignment) * alignment
    tensors = [
        _place(cursor, name, *claim, start=start, alignment=alignment)
        for name, claim in found.items()
    ]
    _check_overlap(cursor, [t for t in tensors if isinstance(t, TensorInfo)])
    return TensorTable(cursor.op, tensors, GgufError, part)


def _shape(cursor: Cursor, name: str) -> tuple[int, ...]:
    """The sizes in row-major order."""
    rank = cursor.u32(f"the rank of tensor {name!r}")
    if rank > MAX_AXES:
        cursor.refuse(f"at most {MAX_AXES} axes of tensor {name!r}", rank)
    sizes = [cursor.u64(f"the sizes of tensor {name!r}") for _ in range(rank)]
    if 0 in sizes:
        cursor.refuse(f"sizes of at least 1 in tensor {name!r}", sizes)
    return tuple(reversed(sizes))


def _place(
    cursor: Cursor,
    name: str,
    shape: tuple[int, ...],
    number: int,
    offset: int,
    *,
    start: int,
    alignment: int,
) -> TensorInfo | ForeignTensor:
    """One tensor, its claims checked against each other and the size of the file."""
    kind = GGML_TYPES.get(number)
    if kind is None:  # its size is unknown, so nothing can be read from it
        return ForeignTensor(name, f"GGUF type number {number}", shape)

    def refuse(reason: str) -> GgufError:
        return GgufError(cursor.op, f"a countable shape of tensor {name!r}", reason)

    row = shape[-1] if shape else 1
    if row % kind.block:
        cursor.refuse(f"rows of whole {kind.name} blocks in tensor {name!r}", f"{row} elements")
    nbytes = count_elements(shape, refuse) // kind.block * kind.size
    if nbytes > MAX_BYTES:
        raise refuse("more bytes than 63 bits can count")
    if offset % alignment:
        cursor.refuse(f"tensor {name!r} at a multiple of {alignment}", offset)
    if offset > cursor.size - start or nbytes > cursor.size - start - offset:
        cursor.refuse(
            f"{nbytes} bytes of tensor {name!r} at {offset}",
            f"{max(0, cursor.size - start)} bytes of tensors",
            "the file is cut off",
        )
    if kind.dtype is None:
        return ForeignTensor(name, kind.name, shape)
    return TensorInfo(name, kind.dtype, shape, start + offset, nbytes)


def _check_overlap(cursor: Cursor, tensors: list[TensorInfo]) -> None:
    end, before = 0, ""
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset < end:
            cursor.refuse("tensors apart from each other", f"{before!r} and {tensor.name!r}")
        end, before = tensor.offset + tensor.nbytes, tensor.name
