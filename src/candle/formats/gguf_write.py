"""Writing a GGUF file, version 3: enough to make small models and to convert into it."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ..dtype import DType
from ..errors import GgufError
from .atomic import atomic_file
from .gguf import ALIGNMENT
from .gguf_types import GGML_NUMBERS, VALUE_NUMBERS, VALUE_TYPES
from .paths import as_path
from .table import count_elements

if TYPE_CHECKING:
    from typing_extensions import Buffer

Source = tuple[DType, tuple[int, ...], "Buffer"]  # dtype, row-major shape, contiguous bytes


class Typed(NamedTuple):
    """A metadata value with its type named: `Typed("u8", 3)`, `Typed("array[f32]", [0.5])`."""

    type_name: str
    value: Any


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, Source],
    alignment: int = 32,
) -> None:
    """Write metadata and `{name: (dtype, shape, bytes)}` to `path`, atomically, in their order.

    A Python value takes the type that GGUF files use for it: bool, str, u32 (i32, u64 or i64 where
    u32 is too small), f32, and arrays of one of these; `Typed` names another. Raises GgufError.
    """
    path = as_path(path, "write gguf")
    op = f"write gguf {path}"
    pairs = dict(metadata)
    if alignment != 32:
        pairs[ALIGNMENT] = Typed("u32", alignment)
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    for key, value in pairs.items():
        typed = _typed(op, key, value)
        head += [_string(key), _encode(op, key, typed)]
    buffers: list[memoryview] = []
    offset = 0
    for name, (dtype, shape, source) in tensors.items():
        buffers.append(_check_tensor(op, name, dtype, shape, source))
        sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += [_string(name), sizes, struct.pack("<IQ", GGML_NUMBERS[dtype], offset)]
        offset += -(-buffers[-1].nbytes // alignment) * alignment
    with atomic_file(path) as stream:
        _write_padded(stream, b"".join(head), alignment)
        for buffer in buffers:
            _write_padded(stream, buffer, alignment)


def _write_padded(stream: BinaryIO, data: bytes | memoryview, alignment: int) -> None:
    stream.write(data)
    stream.write(bytes(-len(data) % alignment))


def _check_tensor(
    op: str, name: str, dtype: DType, shape: tuple[int, ...], source: Buffer
) -> memoryview:
    if dtype not in GGML_NUMBERS:
        raise GgufError(op, f"tensor {name!r} in a type of GGUF", dtype)
    if len(shape) > 4 or any(size < 1 for size in shape):
        raise GgufError(op, f"at most 4 sizes, each from 1, of tensor {name!r}", list(shape))
    if shape and shape[-1] % dtype.block:
        raise GgufError(op, f"rows of whole {dtype} blocks in tensor {name!r}", list(shape))

    def refuse(reason: str) -> GgufError:
        return GgufError(op, f"a countable shape of tensor {name!r}", reason)

    expected = dtype.nbytes(count_elements(shape, refuse))
    view = memoryview(source)
    if not view.c_contiguous or view.nbytes != expected:
        raise GgufError(op, f"{expected} contiguous bytes of tensor {name!r}", view.nbytes)
    return view.cast("B")


def _typed(op: str, key: str, value: Any) -> Typed:
    """The value with a type: as named, or as guessed from the Python type."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, list | tuple):
        return Typed(f"array[{_common_type(op, key, value)}]", value)
    return Typed(_common_type(op, key, [value]), value)


def _common_type(op: str, key: str, values: list[Any] | tuple[Any, ...]) -> str:
    kinds = {type(v) for v in values}
    if kinds == {bool}:
        return "bool"
    if kinds == {str}:
        return "str"
    if kinds == {float}:
        return "f32"
    if kinds != {int}:
        names = ", ".join(sorted(k.__name__ for k in kinds)) or "an empty list"
        raise GgufError(op, f"bool, str, int or float as metadata {key!r}", names, "use Typed")
    low, high = min(values), max(values)
    for name, least, most in (
        ("u32", 0, (1 << 32) - 1),
        ("i32", -(1 << 31), (1 << 31) - 1),
        ("u64", 0, (1 << 64) - 1),
        ("i64", -(1 << 63), (1 << 63) - 1),
    ):
        if least <= low and high <= most:
            return name
    raise GgufError(op, f"64 bits for metadata {key!r}", f"{low} to {high}")


def _encode(op: str, key: str, typed: Typed) -> bytes:
    """Type number and value."""
    kind, _, rest = typed.type_name.partition("[")
    inner = rest.removesuffix("]") or kind
    if kind not in VALUE_NUMBERS or inner not in VALUE_NUMBERS or inner == "array":
        raise GgufError(op, f"a type of GGUF for metadata {key!r}", typed.type_name)
    number = VALUE_NUMBERS[inner]
    try:
        if kind != "array":
            return struct.pack("<I", number) + _values(number, [typed.value])
        head = struct.pack("<IIQ", VALUE_NUMBERS["array"], number, len(typed.value))
        return head + _values(number, typed.value)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise GgufError(op, f"metadata {key!r} that fits {typed.type_name}", error) from None


def _values(number: int, values: list[Any] | tuple[Any, ...]) -> bytes:
    name, fmt = VALUE_TYPES[number]
    if name == "str":
        return b"".join(_string(v) for v in values)
    return struct.pack(f"<{len(values)}{'?' if name == 'bool' else fmt}", *values)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw
