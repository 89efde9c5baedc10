"""Nested lists to packed numbers and back: the plain-Python face of a tensor."""

from __future__ import annotations

import numbers
import struct
from typing import Any

from .dtype import DType
from .errors import DTypeError, OptionError, ShapeError
from .shape import MAX_RANK, Shape

# dtype -> format of struct and memoryview; bf16 and blocks have none
FORMATS: dict[DType, Any] = {
    DType.F32: "f",
    DType.F64: "d",
    DType.F16: "e",
    DType.I64: "q",
    DType.I32: "i",
    DType.U32: "I",
    DType.U8: "B",
    DType.BOOL: "?",
}
_DIGITS = {DType.F32: 7, DType.F16: 4, DType.BF16: 3}
_PLAIN = {bool, int, float}


def read(values: Any, dtype: DType | None) -> tuple[bytearray, DType, Shape]:
    """(bytes, dtype, shape) of a number or of nested lists.

    Without a dtype, floats make f32, integers i64, bools bool, nothing at all f32. bf16 comes as
    f32. Raises ShapeError for ragged lists, DTypeError for what is not a number, and OptionError
    for numbers that the dtype cannot hold.
    """
    flat, shape = _flatten(values)
    kinds = set(map(type, flat))
    if not kinds <= _PLAIN:
        flat = [_number(v) for v in flat]
        kinds = set(map(type, flat))
    made = _natural(kinds) if dtype is None else DType.F32 if dtype is DType.BF16 else dtype
    if made not in FORMATS:
        raise DTypeError("Tensor", "a plain dtype", made, "blocks are made by quantize()")
    if float in kinds and made.is_int:
        flat = [_whole(v, made) for v in flat]
    try:
        return bytearray(struct.pack(f"={len(flat)}{FORMATS[made]}", *flat)), made, shape
    except (struct.error, OverflowError) as error:
        raise OptionError("Tensor", f"numbers that fit {made}", str(error)) from error


def _natural(kinds: set[type]) -> DType:
    if not kinds or float in kinds:
        return DType.F32
    return DType.I64 if int in kinds else DType.BOOL


def _number(value: Any) -> int | float:
    """A plain number of any real number, NumPy's included."""
    if isinstance(value, numbers.Real):
        try:
            return int(value) if isinstance(value, numbers.Integral) else float(value)
        except OverflowError as error:
            raise OptionError("Tensor", "numbers that a float holds", str(error)) from error
    hint = "from_numpy() takes arrays" if hasattr(value, "__array_interface__") else ""
    raise DTypeError("Tensor", "numbers", type(value).__name__, hint)


def _whole(value: int | float, dtype: DType) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise OptionError("Tensor", f"whole numbers for {dtype}", value, "to_dtype() rounds to 0")
    return int(value)


def _flatten(values: Any) -> tuple[list[Any], Shape]:
    """All items in row-major order, level by level, and the shape."""
    level, shape = [values], []
    while level and isinstance(level[0], list | tuple):
        size = len(level[0])
        for item in level:
            if not isinstance(item, list | tuple) or len(item) != size:
                got = len(item) if isinstance(item, list | tuple) else type(item).__name__
                raise ShapeError("Tensor", f"{size} items in each list of a level", got)
        shape.append(size)
        if len(shape) > MAX_RANK:
            raise ShapeError("Tensor", f"at most {MAX_RANK} levels of lists", "more")
        level = [x for item in level for x in item]
    for item in level:
        if isinstance(item, list | tuple):
            raise ShapeError("Tensor", "lists of one depth", f"a list of {len(item)} by a number")
    return level, tuple(shape)


def nest(flat: list[Any], shape: Shape) -> Any:
    """Items in row-major order as nested lists; the item itself for a scalar."""
    if not shape:
        return flat[0]
    for axis in range(len(shape) - 1, 0, -1):
        size, count = shape[axis], 1
        for n in shape[:axis]:
            count *= n
        flat = [flat[k * size : (k + 1) * size] for k in range(count)]
    return flat


def shown(values: Any, dtype: DType) -> Any:
    """The same nested lists with no more digits than the dtype holds."""
    if isinstance(values, list):
        return [shown(v, dtype) for v in values]
    digits = _DIGITS.get(dtype)
    return values if digits is None else float(f"{values:.{digits}g}")
