"""Shapes, strides, broadcasting and views: integers only, no data."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from .arguments import as_int, shown
from .dtype import DType
from .errors import DTypeError, RangeError, ShapeError

Shape = tuple[int, ...]
MAX_RANK = 8
MAX_COUNT = 2**62


def stored_bytes(dtype: DType, shape: Shape) -> int:
    """Bytes of a row-major tensor; `f32x16` pads its rows to a multiple of 16.

    Raises DTypeError for block rows that are not a whole number of blocks.
    """
    if not dtype.is_block:
        return count_of(shape) * dtype.size
    if not shape or shape[-1] % dtype.block:
        raise DTypeError("shape", f"rows of whole blocks of {dtype.block} ({dtype})", list(shape))
    if dtype is DType.F32X16:
        if len(shape) != 2:
            raise ShapeError("shape", f"a matrix ({dtype})", list(shape))
        return -(-shape[0] // 16) * 16 * shape[1] * dtype.size
    return count_of(shape) // dtype.block * dtype.size


def count_of(shape: Shape) -> int:
    """Number of elements."""
    count = 1
    for n in shape:
        count *= n
    return count


def row_major(shape: Shape) -> Shape:
    """Strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n if n else 1
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, strides: Shape) -> bool:
    """Whether elements lie row-major without gaps; strides of length-1 axes are ignored."""
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step:
            return n == 0 or 0 in shape
        step *= n
    return True


def as_ints(op: str, value: int | Sequence[int]) -> Shape:
    """One integer or a sequence of them, as a tuple. Raises ShapeError for anything else."""
    if value.__class__ is not tuple and hasattr(value, "__index__"):
        try:
            return (operator.index(value),)
        except TypeError:
            pass  # an array of several
    try:
        return tuple(map(operator.index, value))  # type: ignore[arg-type]
    except TypeError as error:
        raise ShapeError(op, "integers", shown(value)) from error


def as_shape(op: str, value: int | Sequence[int]) -> Shape:
    """A checked shape. Raises ShapeError for negative sizes, too many axes or elements."""
    shape = as_ints(op, value)
    if len(shape) > MAX_RANK:
        raise ShapeError(op, f"at most {MAX_RANK} axes", list(shape))
    if min(shape, default=0) < 0:
        raise ShapeError(op, "sizes of 0 or more", list(shape))
    if count_of(shape if all(shape) else tuple(n or 1 for n in shape)) > MAX_COUNT:
        raise ShapeError(op, "at most 2**62 elements", list(shape))
    return shape


def axis_of(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front. A scalar has the axes 0 and -1. Raises RangeError."""
    if axis.__class__ is int and 0 <= axis < rank:
        return axis
    most = rank or 1
    at = as_int(op, axis, "an integer axis")
    if not -most <= at < most:
        raise RangeError(op, f"an axis in [{-most}, {most - 1}]", axis)
    return at + most if at < 0 else at


def axes_of(op: str, axes: int | Sequence[int] | None, rank: int) -> Shape:
    """Sorted axes, all of them for None. Raises RangeError, and ShapeError for a repeated axis."""
    if axes is None:
        return tuple(range(rank))
    if axes.__class__ is int:
        at = axis_of(op, axes, rank)
        return (at,) if rank else ()
    given = as_ints(op, axes)
    found = tuple(sorted(axis_of(op, a, rank) for a in given))
    if len(set(found)) != len(found):
        raise ShapeError(op, "different axes", list(given))
    return tuple(a for a in found if a < rank)


def broadcast(op: str, a: Shape, b: Shape) -> Shape:
    """The shape in which two shapes meet, as NumPy has it. Raises ShapeError with both."""
    if a == b:
        return a
    longest = max(len(a), len(b))
    left = (1,) * (longest - len(a)) + a
    right = (1,) * (longest - len(b)) + b
    for x, y in zip(left, right, strict=True):
        if x != y and x != 1 and y != 1:
            raise ShapeError(op, f"a shape that broadcasts with {list(a)}", list(b))
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def expand_strides(op: str, shape: Shape, strides: Shape, to: Shape) -> Shape:
    """Strides of an expanded view: zero on every grown axis. Raises ShapeError."""
    extra = len(to) - len(shape)
    if extra < 0:
        raise ShapeError(op, f"at least {len(shape)} axes for {list(shape)}", list(to))
    out = [0] * extra
    for n, s, m in zip(shape, strides, to[extra:], strict=True):
        if n != m and n != 1:
            raise ShapeError(op, f"a shape that {list(shape)} expands to", list(to))
        out.append(s if n == m else 0)
    return tuple(out)


def infer_reshape(shape: Shape, to: int | Sequence[int]) -> Shape:
    """`to` with its one -1 filled in. Raises ShapeError if the counts differ."""
    count, wanted = count_of(shape), as_ints("reshape", to)
    if wanted.count(-1) == 1:
        known = -count_of(wanted)
        if known > 0 and count % known == 0:
            wanted = tuple(count // known if n == -1 else n for n in wanted)
    if count_of(wanted) != count or min(wanted, default=0) < 0:
        raise ShapeError("reshape", f"{count} elements, as in {list(shape)}", list(wanted))
    return wanted if count and len(wanted) <= MAX_RANK else as_shape("reshape", wanted)


def reshape_strides(shape: Shape, strides: Shape, to: Shape) -> Shape | None:
    """Strides that show the same elements under the shape `to` without a copy, or None."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    new: list[int] = []
    i, left, step = 0, 1, 1
    groups: list[tuple[int, int]] = []
    while i < len(old):  # join neighbours that lie like one axis
        n, s = old[i]
        while i + 1 < len(old) and s == old[i + 1][0] * old[i + 1][1]:
            i += 1
            n, s = n * old[i][0], old[i][1]
        groups.append((n, s))
        i += 1
    groups.reverse()
    g = 0
    for n in reversed(to):
        if n == 1:
            new.append(step)
            continue
        if left == 1:
            if g == len(groups):
                return None
            left, step = groups[g]
            g += 1
        if left % n:
            return None
        new.append(step)
        left //= n
        step *= n
    return tuple(reversed(new))
