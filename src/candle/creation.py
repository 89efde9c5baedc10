"""Makes new data: filled, counted, drawn. No record, so that what comes of it is a leaf."""

from __future__ import annotations

import numbers

from . import _native
from .arguments import one_of, shown
from .dtype import DType
from .errors import DTypeError, OptionError
from .launch import call, params
from .shape import Shape, as_shape
from .storage import View, new_view

_FILL, _IOTA = map(_native.op_id, ("fill", "iota"))
_DRAWS = {name: _native.op_id(name) for name in ("uniform", "normal")}
_LIMITS = {
    DType.I64: (-(2**63), 2**63 - 1),
    DType.I32: (-(2**31), 2**31 - 1),
    DType.U32: (0, 2**32 - 1),
    DType.U8: (0, 255),
    DType.BOOL: (0, 1),
}


def fits(value: float, dtype: DType) -> bool:
    """Whether an integer dtype holds this very number."""
    least, most = _LIMITS[dtype]
    return least <= value <= most and value == int(value)


def _whole(name: str, value: float, dtype: DType) -> int:
    if not isinstance(value, numbers.Real):
        raise DTypeError(name, "a number", shown(value))
    if not fits(value, dtype):
        raise OptionError(name, f"whole numbers that fit {dtype}", value)
    return int(value)


def _plain(name: str, dtype: DType) -> DType:
    if dtype.is_block:
        raise DTypeError(name, "a plain dtype", dtype, "blocks come from files, and from pack()")
    return dtype


def fill(dtype: DType, shape: Shape, value: float) -> View:
    """A new view, every element `value`. Raises OptionError for one that the dtype cannot hold."""
    out = new_view(_plain("full", dtype), shape)
    if dtype.is_float:
        call(_FILL, [out], params(f=(value,)))
    else:
        call(_FILL, [out], params(_whole("full", value, dtype)))
    return out


def iota(dtype: DType, count: int, start: float, step: float) -> View:
    """start, start + step, ... of `count` elements. Raises OptionError where they do not fit."""
    out = new_view(_plain("arange", dtype), as_shape("arange", count))
    if dtype.is_float:
        call(_IOTA, [out], params(f=(start, step)))
    elif count:
        ends = (start, start + (count - 1) * step)
        first, _ = (_whole("arange", v, dtype) for v in ends)
        call(_IOTA, [out], params(first, _whole("arange", step, DType.I64)))
    return out


def random(name: str, shape: Shape, seed: int, offset: int) -> View:
    """f32 draws of the counter-based generator: `name` is "uniform" or "normal"."""
    out = new_view(DType.F32, shape)
    call(one_of("random", "distribution", name, _DRAWS), [out], params(seed, offset))
    return out
