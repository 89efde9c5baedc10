"""Shapes, strides, broadcasting and views: integers only, no data."""

from __future__ import annotations

from collections.abc import Sequence

from .dtype import DType
from .errors import RangeError, ShapeError

Shape = tuple[int, ...]
MAX_RANK = 8
MAX_COUNT = 2**62


class Layout:
    """Dtype, shape and strides (in elements) of a view. Immutable and shared: use `Layout.of`.

    `count` is the number of elements, `contiguous` tells whether they lie in row-major order
    without gaps (strides of length-1 axes ignored). `native` is filled by `_native`.
    """

    __slots__ = ("contiguous", "count", "dtype", "native", "rank", "shape", "strides")

    def __init__(self, dtype: DType, shape: Shape, strides: Shape) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.rank = len(shape)
        self.count = count_of(shape)
        self.contiguous = _is_contiguous(shape, strides)
        self.native: tuple[int, object] | None = None

    @staticmethod
    def of(dtype: DType, shape: Shape, strides: Shape | None = None) -> Layout:
        """The shared layout of these; row-major strides where none are given."""
        key = (dtype, shape, strides)
        found = _shared.get(key)
        if found is not None:
            return found
        layout = Layout(dtype, shape, row_major(shape) if strides is None else strides)
        if len(_shared) >= _SHARED_MOST:
            _shared.clear()  # live views hold their layouts themselves
        _shared[key] = layout
        return layout

    def __repr__(self) -> str:
        return f"Layout({self.dtype}, {list(self.shape)}, strides={list(self.strides)})"


_SHARED_MOST = 16384
_shared: dict[tuple[DType, Shape, Shape | None], Layout] = {}


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


def _is_contiguous(shape: Shape, strides: Shape) -> bool:
    step = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != step:
            return n == 0 or 0 in shape
        step *= n
    return True


def as_shape(op: str, value: int | Sequence[int]) -> Shape:
    """A checked shape. Raises ShapeError for negative sizes, too many axes or elements."""
    shape = (value,) if isinstance(value, int) else tuple(int(n) for n in value)
    if len(shape) > MAX_RANK:
        raise ShapeError(op, f"at most {MAX_RANK} axes", list(shape))
    if any(n < 0 for n in shape):
        raise ShapeError(op, "sizes of 0 or more", list(shape))
    if count_of(shape) > MAX_COUNT:
        raise ShapeError(op, "fewer than 2**62 elements", list(shape))
    return shape


def axis_of(op: str, axis: int, rank: int) -> int:
    """`axis` counted from the front. A scalar has the axes 0 and -1. Raises RangeError."""
    most = max(rank, 1)
    if not -most <= axis < most:
        raise RangeError(op, f"an axis in [{-most}, {most - 1}]", axis)
    return axis + most if axis < 0 else axis


def axes_of(op: str, axes: int | Sequence[int] | None, rank: int) -> Shape:
    """Sorted axes, all of them for None. Raises RangeError, and ShapeError for a repeated axis."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else tuple(axes)
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


def infer_reshape(shape: Shape, to: Sequence[int]) -> Shape:
    """`to` with its one -1 filled in. Raises ShapeError if the counts differ."""
    count, wanted = count_of(shape), [int(n) for n in to]
    if wanted.count(-1) == 1 and all(n >= -1 for n in wanted):
        known = count_of(tuple(n for n in wanted if n != -1))
        if known and count % known == 0:
            wanted[wanted.index(-1)] = count // known
    if any(n < 0 for n in wanted) or count_of(tuple(wanted)) != count:
        raise ShapeError("reshape", f"{count} elements, as in {list(shape)}", list(to))
    return as_shape("reshape", wanted)


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
