"""x[...]: integers, slices, at most one Ellipsis and Nones, as the records that they stand for.

Works on values through their own methods and never imports Tensor.
"""

from __future__ import annotations

import operator
from typing import Any

from . import op
from .errors import RangeError

Value = Any


def indexed(x: Value, index: tuple[Any, ...]) -> Value:
    """Applies integers, slices, at most one Ellipsis and Nones from the left."""
    used = sum(1 for part in index if part is not None and part is not Ellipsis)
    dots = [k for k, part in enumerate(index) if part is Ellipsis]
    if used > x.rank or len(dots) > 1:
        raise RangeError("index", f"at most {x.rank} indices and one ...", f"{len(index)} parts")
    if dots:
        whole = (slice(None),) * (x.rank - used)
        index = (*index[: dots[0]], *whole, *index[dots[0] + 1 :])
    axis = 0
    for part in index:
        if part is None:
            x, axis = x.unsqueeze(axis), axis + 1
        elif isinstance(part, slice):
            x, axis = _slice(x, axis, part), axis + 1
        else:
            x = _pick(x, axis, part)
    return x


def _pick(x: Value, axis: int, part: Any) -> Value:
    """One element of an axis, which goes."""
    shape = x.data.layout.shape
    n = shape[axis]
    if isinstance(part, bool) or not hasattr(part, "__index__"):
        wanted = "int, slice, ..., None, or a tensor alone"
        raise RangeError("index", wanted, type(part).__name__)
    try:
        at = operator.index(part)
    except TypeError as error:
        got, hint = type(part).__name__, "Tensor.from_numpy() makes an index tensor"
        raise RangeError("index", "an integer", got, hint) from error
    if not -n <= at < n:
        raise RangeError("index", f"an index in [{-n}, {n})", at)
    row = x.apply(op.Slice((x,), axis, at % n, 1))
    return row.apply(op.Reshape((row,), shape[:axis] + shape[axis + 1 :]))


def _slice(x: Value, axis: int, part: slice) -> Value:
    try:
        start, stop, step = part.indices(x.shape[axis])
    except (TypeError, ValueError) as error:
        raise RangeError("index", "a slice of integers, its step not 0", part) from error
    length = max(0, -((stop - start) // -step))
    if (start, length, step) == (0, x.shape[axis], 1):
        return x
    return x.apply(op.Slice((x,), axis, start if length else 0, length, step))
