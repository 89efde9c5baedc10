"""Tensor: `id`, `data` (a view of a storage), `shape`, and `op` (the record that made it, or None).

Eager: each method makes a record, runs it at once, and keeps the record only where some input leads
to a `Var` or a retained tensor. Compositions live in `functional.py`.

size: this is the whole public face of a tensor on one page, a few lines a method.
"""

from __future__ import annotations

import itertools
import math
import numbers
import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from . import autograd, creation, eager, generator, nested, op, tracing
from ._native import Layout
from .anomaly import check, watching
from .arguments import as_flag, as_int, as_list, require
from .device import CPU, Device
from .dtype import DType, promote
from .errors import DTypeError, GradientError, OptionError, RangeError, ShapeError
from .guests import ArrayFace, view_of_array
from .indexing import indexed
from .op import BinaryKind, CompareKind, ReduceKind, UnaryKind
from .shape import (
    MAX_RANK,
    Shape,
    as_ints,
    as_shape,
    axes_of,
    axis_of,
    count_of,
    infer_reshape,
    stored_bytes,
)
from .storage import Storage, View, changes

Number = int | float | bool
Axes = int | Sequence[int] | None

_ids = itertools.count(1)
_runners = eager.RUNNERS
_ADD, _SUB, _MUL, _DIV, _FLOOR_DIV, _REM, _POW, _MAXIMUM, _MINIMUM = BinaryKind  # looked up once


class Tensor:
    """An n-dimensional array that can lead back to what made it.

    `Tensor(values)` copies nested lists or a number: floats make f32, ints i64, bools bool.
    `tracked` tells whether it leads to a `Var` or a retained tensor.
    """

    __slots__ = ("__weakref__", "_grad", "data", "id", "keeps_grad", "op", "seen", "tracked")

    seen: int  # changes in place before the record was made

    def __init__(self, values: Any, dtype: DType | str | None = None) -> None:
        self._set(_from_nested(values, None if dtype is None else DType.of(dtype)))

    def _set(self, data: View) -> None:
        """Makes this a leaf on a view."""
        self.data = data
        self.id = next(_ids)
        self.op: Any = None
        self.tracked = self.keeps_grad = False
        self._grad: Tensor | None = None

    @classmethod
    def of_view(cls, data: View) -> Tensor:
        """A leaf on a view."""
        self = cls.__new__(cls)
        self._set(data)
        return self

    # -- records -----------------------------------------------------------------------------------

    @overload
    def apply(self, record: op.TopK | op.Sort | op.Nearest) -> tuple[Tensor, Tensor]: ...  # type: ignore[overload-overlap]
    @overload
    def apply(self, record: object) -> Tensor: ...
    def apply(self, record: Any) -> Any:
        """Runs a record on its inputs: a Tensor, or a tuple where it has two outputs.

        The one way from records to values, for this file, `functional` and `autograd` alike.
        """
        try:
            made = _runners[type(record)](record, [x.data for x in record.inputs])
        except (AttributeError, KeyError):
            require("apply", "a record of candle.op", op.Record, record)
            require_tensors(type(record).__name__, *record.inputs)
            raise
        if type(made) is tuple:
            return tuple([_result(data, record) for data in made])
        return _result(made, record)

    # apply() written out, where its third of a microsecond counts
    def _of(self, record: Any) -> Tensor:
        """Runs a record whose only input is this tensor."""
        return _result(_runners[type(record)](record, (self.data,)), record)

    def _unary(self, kind: UnaryKind) -> Tensor:
        return self._of(op.Unary((self,), kind))

    def _binary(self, kind: BinaryKind, other: Tensor | Number) -> Tensor:
        a = self
        if not isinstance(other, Tensor) or a.data.layout.dtype is not other.data.layout.dtype:
            a, other = _meet(kind.value, self, other)
        record = op.Binary((a, other), kind)
        return _result(eager.binary(record, (a.data, other.data)), record)

    def _compare(self, kind: CompareKind, other: Tensor | Number) -> Tensor:
        return self.apply(op.Compare(_meet(kind.value, self, other, True), kind))

    def _reduce(self, kind: ReduceKind, axes: Axes, keepdim: bool, correction: int = 0) -> Tensor:
        found = axes_of(kind.value, axes, self.data.layout.rank)
        keeps = keepdim if keepdim.__class__ is bool else as_flag(kind.value, keepdim)
        return self._of(op.Reduce((self,), kind, found, keeps, correction))

    # -- creation ----------------------------------------------------------------------------------

    @staticmethod
    def new(values: Any, dtype: DType | str | None = None) -> Tensor:
        """The same as `Tensor(values, dtype)`."""
        return Tensor(values, dtype)

    @staticmethod
    def full(shape: int | Sequence[int], value: Number, dtype: DType | str = DType.F32) -> Tensor:
        """Every element `value`."""
        return Tensor.of_view(creation.fill(DType.of(dtype), as_shape("full", shape), value))

    @staticmethod
    def zeros(shape: int | Sequence[int], dtype: DType | str = DType.F32) -> Tensor:
        """Zeros."""
        return Tensor.full(shape, 0, dtype)

    @staticmethod
    def ones(shape: int | Sequence[int], dtype: DType | str = DType.F32) -> Tensor:
        """Ones."""
        return Tensor.full(shape, 1, dtype)

    def zeros_like(self) -> Tensor:
        """Zeros of this shape and dtype."""
        return Tensor.full(self.shape, 0, self.dtype)

    def ones_like(self) -> Tensor:
        """Ones of this shape and dtype."""
        return Tensor.full(self.shape, 1, self.dtype)

    @staticmethod
    def arange(
        start: Number,
        stop: Number | None = None,
        step: Number = 1,
        dtype: DType | str | None = None,
    ) -> Tensor:
        """start, start + step, ... before stop; `arange(n)` counts from 0. i64; f32 for floats."""
        first, last = (0, start) if stop is None else (start, stop)
        first, last, by = (_plain("arange", v) for v in (first, last, step))
        if by == 0 or not all(map(math.isfinite, (first, last, by))):
            wanted = "finite numbers and a step other than 0"
            raise OptionError("arange", wanted, (start, stop, step))
        whole = all(isinstance(v, int) for v in (first, last, by))
        natural = DType.I64 if whole else DType.F32
        try:
            count = -((last - first) // -by) if whole else math.ceil((last - first) / by)
        except OverflowError as error:
            raise OptionError("arange", "a countable range", (start, stop, step)) from error
        made = natural if dtype is None else DType.of(dtype)
        return Tensor.of_view(creation.iota(made, max(0, int(count)), first, by))

    @staticmethod
    def rand(shape: int | Sequence[int], source: generator.Generator | None = None) -> Tensor:
        """Uniform in [0, 1), f32, from a generator (the default one)."""
        return Tensor.of_view(_source("rand", source).draw("uniform", shape))

    @staticmethod
    def randn(shape: int | Sequence[int], source: generator.Generator | None = None) -> Tensor:
        """Normal with mean 0 and variance 1, f32."""
        return Tensor.of_view(_source("randn", source).draw("normal", shape))

    @staticmethod
    def from_buffer(
        buffer: Any, dtype: DType | str, shape: int | Sequence[int], offset: int = 0
    ) -> Tensor:
        """A view of any contiguous buffer (bytes, map, array), `offset` bytes in.

        Copied only where its memory is not aligned to the elements, as safetensors may lie. Raises
        ShapeError if the buffer is too small, DTypeError if it is none or not contiguous.
        """
        wanted, sizes = DType.of(dtype), as_shape("from_buffer", shape)
        storage, nbytes = Storage.of_buffer(buffer)
        need, offset = stored_bytes(wanted, sizes), as_int("from_buffer", offset)
        if offset < 0 or offset + need > nbytes:
            raise ShapeError("from_buffer", f"{offset} + {need} bytes", f"{nbytes} bytes")
        data = View(storage, offset, Layout.of(wanted, sizes))
        if data.address % (2 if wanted.is_block else wanted.size):
            data = eager.aligned(data)
        return Tensor.of_view(data)

    @staticmethod
    def from_numpy(array: Any) -> Tensor:
        """A view of a NumPy array, without a copy; any strides that are whole elements.

        Raises DTypeError for dtypes there is no counterpart to, and OptionError for memory that is
        not aligned to its elements.
        """
        return Tensor.of_view(view_of_array(array))

    @staticmethod
    def from_dlpack(source: Any) -> Tensor:
        """A view of another library's CPU tensor, without a copy, through NumPy and DLPack.

        Raises DTypeError for dtypes there is no counterpart to.
        """
        import numpy

        if not hasattr(source, "__dlpack__") or isinstance(source, type):
            raise DTypeError("from_dlpack", "a tensor with __dlpack__", type(source).__name__)
        return Tensor.from_numpy(numpy.from_dlpack(source))

    # -- facts -------------------------------------------------------------------------------------

    @property
    def shape(self) -> Shape:
        """Sizes of the axes."""
        return self.data.layout.shape

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.data.layout.dtype

    @property
    def device(self) -> Device:
        """Where the data lies."""
        return CPU

    @property
    def rank(self) -> int:
        """Number of axes."""
        return self.data.layout.rank

    @property
    def dims(self) -> Shape:
        """The same as `shape`."""
        return self.shape

    def dim(self, axis: int) -> int:
        """Size of one axis."""
        return self.shape[_real_axis("dim", axis, self)]

    @property
    def count(self) -> int:
        """Number of elements."""
        return self.data.layout.count

    @property
    def strides(self) -> Shape:
        """Elements between neighbours on each axis."""
        return self.data.layout.strides

    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self.data.layout.contiguous

    # -- elementwise -------------------------------------------------------------------------------

    def add(self, other: Tensor | Number) -> Tensor:
        """self + other, broadcast."""
        return self._binary(_ADD, other)

    def sub(self, other: Tensor | Number) -> Tensor:
        """self - other, broadcast."""
        return self._binary(_SUB, other)

    def mul(self, other: Tensor | Number) -> Tensor:
        """self * other, broadcast."""
        return self._binary(_MUL, other)

    def div(self, other: Tensor | Number) -> Tensor:
        """self / other, broadcast; integers are divided as f32."""
        if self.dtype.is_float:
            return self._binary(_DIV, other)
        if isinstance(other, Tensor):
            return self.to_dtype(other.dtype if other.dtype.is_float else DType.F32).div(other)
        return self.to_dtype(DType.F32)._binary(_DIV, other)

    def floor_div(self, other: Tensor | Number) -> Tensor:
        """The quotient rounded down. Raises ZeroDivisionError for integers over zero."""
        return self._binary(_FLOOR_DIV, other)

    def rem(self, other: Tensor | Number) -> Tensor:
        """What floor_div leaves, exactly, with the sign of other. NumPy's rules for both.

        Raises ZeroDivisionError for integers over zero; floats give NaN.
        """
        return self._binary(_REM, other)

    def pow(self, other: Tensor | Number) -> Tensor:
        """self to the power of other, broadcast."""
        return self._binary(_POW, other)

    def maximum(self, other: Tensor | Number) -> Tensor:
        """The greater of each pair; NaN if either is."""
        return self._binary(_MAXIMUM, other)

    def minimum(self, other: Tensor | Number) -> Tensor:
        """The smaller of each pair; NaN if either is."""
        return self._binary(_MINIMUM, other)

    def neg(self) -> Tensor:
        """-x."""
        return self._unary(UnaryKind.NEG)

    def abs(self) -> Tensor:
        """|x|."""
        return self._unary(UnaryKind.ABS)

    def sign(self) -> Tensor:
        """-1, 0 or 1."""
        return self._unary(UnaryKind.SIGN)

    def sqr(self) -> Tensor:
        """x * x."""
        return self._unary(UnaryKind.SQR)

    def sqrt(self) -> Tensor:
        """Square root; NaN below zero."""
        return self._unary(UnaryKind.SQRT)

    def rsqrt(self) -> Tensor:
        """1 / sqrt(x)."""
        return self._unary(UnaryKind.RSQRT)

    def recip(self) -> Tensor:
        """1 / x."""
        return self._unary(UnaryKind.RECIP)

    def exp(self) -> Tensor:
        """e to the power of x."""
        return self._unary(UnaryKind.EXP)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return self._unary(UnaryKind.LOG)

    def sin(self) -> Tensor:
        """Sine of radians."""
        return self._unary(UnaryKind.SIN)

    def cos(self) -> Tensor:
        """Cosine of radians."""
        return self._unary(UnaryKind.COS)

    def tanh(self) -> Tensor:
        """Hyperbolic tangent."""
        return self._unary(UnaryKind.TANH)

    def erf(self) -> Tensor:
        """The error function."""
        return self._unary(UnaryKind.ERF)

    def sigmoid(self) -> Tensor:
        """1 / (1 + exp(-x))."""
        return self._unary(UnaryKind.SIGMOID)

    def relu(self) -> Tensor:
        """max(x, 0)."""
        return self._unary(UnaryKind.RELU)

    def gelu(self, tanh: bool = False) -> Tensor:
        """x times the normal distribution function of x; its tanh approximation on request."""
        return self._unary(UnaryKind.GELU_TANH if as_flag("gelu", tanh) else UnaryKind.GELU)

    def silu(self) -> Tensor:
        """x * sigmoid(x)."""
        return self._unary(UnaryKind.SILU)

    def floor(self) -> Tensor:
        """Rounded down."""
        return self._unary(UnaryKind.FLOOR)

    def ceil(self) -> Tensor:
        """Rounded up."""
        return self._unary(UnaryKind.CEIL)

    def round(self) -> Tensor:
        """To the nearest integer, halves to even."""
        return self._unary(UnaryKind.ROUND)

    def eq(self, other: Tensor | Number) -> Tensor:
        """self == other, elementwise; bool."""
        return self._compare(CompareKind.EQ, other)

    def ne(self, other: Tensor | Number) -> Tensor:
        """self != other, elementwise; bool."""
        return self._compare(CompareKind.NE, other)

    def lt(self, other: Tensor | Number) -> Tensor:
        """self < other; bool."""
        return self._compare(CompareKind.LT, other)

    def le(self, other: Tensor | Number) -> Tensor:
        """self <= other; bool."""
        return self._compare(CompareKind.LE, other)

    def gt(self, other: Tensor | Number) -> Tensor:
        """self > other; bool."""
        return self._compare(CompareKind.GT, other)

    def ge(self, other: Tensor | Number) -> Tensor:
        """self >= other; bool."""
        return self._compare(CompareKind.GE, other)

    def where_cond(self, on_true: Tensor | Number, on_false: Tensor | Number) -> Tensor:
        """Elements of `on_true` where this condition (bool or u8) holds, else of `on_false`."""
        if isinstance(on_true, Tensor):
            a, b = _meet("where", on_true, on_false)
        elif isinstance(on_false, Tensor):
            b, a = _meet("where", on_false, on_true)
        else:
            a, b = _meet("where", Tensor(on_true), on_false)
        return self.apply(op.Where((self, a, b)))

    def to_dtype(self, dtype: DType | str) -> Tensor:
        """As another dtype. Floats to integers saturate, NaN gives 0; blocks are dequantised."""
        wanted = DType.of(dtype)
        return self if wanted is self.dtype else self._of(op.Cast((self,), wanted))

    def to_device(self, device: Device | str) -> Tensor:
        """On another device. Raises DeviceError: this build has only the CPU."""
        Device.of(device).require()
        return self

    def dequantize(self) -> Tensor:
        """Block weights as f32; other tensors unchanged."""
        return self.to_dtype(DType.F32) if self.dtype.is_block else self

    # -- reduce ------------------------------------------------------------------------------------

    def sum(self, axes: Axes = None, keepdim: bool = False) -> Tensor:
        """Sum along axes (all for None). Integers sum to i64."""
        return self._reduce(ReduceKind.SUM, axes, keepdim)

    def sum_all(self) -> Tensor:
        """Sum of all elements, a scalar."""
        return self.sum()

    def mean(self, axes: Axes = None, keepdim: bool = False) -> Tensor:
        """Mean along axes; NaN over an empty axis."""
        return self._reduce(ReduceKind.MEAN, axes, keepdim)

    def max(self, axes: Axes = None, keepdim: bool = False) -> Tensor:
        """Greatest element; NaN wins. Raises ShapeError over an empty axis."""
        return self._reduce(ReduceKind.MAX, axes, keepdim)

    def min(self, axes: Axes = None, keepdim: bool = False) -> Tensor:
        """Smallest element; NaN wins. Raises ShapeError over an empty axis."""
        return self._reduce(ReduceKind.MIN, axes, keepdim)

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        """Index of the greatest element (i64), the first of equals; None: of all, flattened."""
        return self._reduce(ReduceKind.ARGMAX, axis, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        """Index of the smallest element (i64), the first of equals; None: of all, flattened."""
        return self._reduce(ReduceKind.ARGMIN, axis, keepdim)

    def var(self, axes: Axes = None, keepdim: bool = False, correction: int = 1) -> Tensor:
        """Variance with `correction` taken off the count (1: of a sample, 0: of a population)."""
        return self._reduce(ReduceKind.VAR, axes, keepdim, correction)

    def cumsum(self, axis: int) -> Tensor:
        """Running sums along an axis, floats in f64 inside. Integers sum to i64, and wrap."""
        return self._of(op.CumSum((self,), _real_axis("cumsum", axis, self)))

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """(values, indices i64) of the k greatest of the last axis, descending, ties by index.

        NaN counts as the greatest.
        """
        return self.apply(op.TopK((self,), as_int("topk", k)))

    def sort(self, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
        """(values, indices i64) in order along an axis, equal elements as they came.

        NaN counts as the greatest: it is last, and first where `descending`.
        """
        at, last = _real_axis("sort", axis, self), self.data.layout.rank - 1
        rows = self.transpose(at, last)
        values, indices = rows.apply(op.Sort((rows,), as_flag("sort", descending)))
        return values.transpose(at, last), indices.transpose(at, last)

    def softmax(self, axis: int = -1, log: bool = False) -> Tensor:
        """exp(x - max) / sum along an axis, f32 or better inside; its logarithm where `log`.

        A row of all -inf gives NaN.
        """
        at, last = axis_of("softmax", axis, self.rank), self.rank - 1
        if last < 0:
            return self.unsqueeze(0).softmax(0, log).squeeze(0)
        rows = self.transpose(at, last)
        return rows._of(op.Softmax((rows,), as_flag("softmax", log))).transpose(at, last)

    # -- products ----------------------------------------------------------------------------------

    def matmul(self, other: Tensor) -> Tensor:
        """Matrix product. 1-D vectors, equal batch axes, or any [.., m, k] times one [k, n].

        Batch axes are never broadcast: raises ShapeError with both shapes and the remedy.
        """
        if not isinstance(other, Tensor):
            raise DTypeError("matmul", "a tensor", type(other).__name__)
        a, b = self.shape, other.shape
        if len(a) == len(b) > 1:
            return self.apply(op.MatMul((self, other)))
        eager.check_matmul(a, b)
        if len(a) == 1:
            return self.unsqueeze(0).matmul(other).squeeze(-2 if len(b) > 1 else 0)
        if len(b) == 1:
            return self.matmul(other.unsqueeze(1)).squeeze(-1)
        rows = self.reshape((count_of(a[:-1]), a[-1]))
        return rows.matmul(other).reshape((*a[:-1], b[1]))

    # -- movement ----------------------------------------------------------------------------------

    def reshape(self, shape: int | Sequence[int]) -> Tensor:
        """The same elements under another shape, one size may be -1; a view where possible."""
        now = self.data.layout.shape
        wanted = infer_reshape(now, shape)
        return self if wanted == now else self._of(op.Reshape((self,), wanted))

    def flatten_from(self, axis: int) -> Tensor:
        """All axes from `axis` on joined into one."""
        start = axis_of("flatten_from", axis, self.rank)
        return self.reshape((*self.shape[:start], count_of(self.shape[start:])))

    def permute(self, axes: Sequence[int]) -> Tensor:
        """Axes in another order; a view."""
        given = as_ints("permute", axes)
        found = tuple(axis_of("permute", a, self.rank) for a in given)
        if sorted(found) != list(range(self.rank)):
            raise ShapeError("permute", f"each of {self.rank} axes once", list(given))
        return self._of(op.Permute((self,), found))

    def transpose(self, a: int, b: int) -> Tensor:
        """Two axes exchanged; a view."""
        rank = self.data.layout.rank
        i, j = axis_of("transpose", a, rank), axis_of("transpose", b, rank)
        if i == j:
            return self
        axes = [*range(rank)]
        axes[i], axes[j] = j, i
        return self._of(op.Permute((self,), tuple(axes)))

    def t(self) -> Tensor:
        """The last two axes exchanged; a view."""
        if self.rank < 2:
            raise ShapeError("t", "at least 2 axes", list(self.shape))
        return self.transpose(-1, -2)

    def unsqueeze(self, axis: int) -> Tensor:
        """A new axis of length 1 before `axis`. Raises ShapeError for a ninth axis."""
        now = self.data.layout.shape
        at = axis_of("unsqueeze", axis, len(now) + 1)
        if len(now) == MAX_RANK:
            raise ShapeError("unsqueeze", f"fewer than {MAX_RANK} axes", list(now))
        return self._of(op.Reshape((self,), (*now[:at], 1, *now[at:])))

    def squeeze(self, axis: int | None = None) -> Tensor:
        """Without one axis of length 1, or all of them. Raises ShapeError for another length."""
        now = self.data.layout.shape
        if axis is None:
            return self.reshape([n for n in now if n != 1])
        at = axis_of("squeeze", axis, len(now))
        if not now:
            return self
        if now[at] != 1:
            raise ShapeError("squeeze", f"length 1 of axis {axis}", list(now))
        return self._of(op.Reshape((self,), now[:at] + now[at + 1 :]))

    def expand(self, shape: int | Sequence[int]) -> Tensor:
        """Axes of length 1 repeated, new ones in front; a view. -1 keeps a size."""
        now, given = self.data.layout.shape, as_ints("expand", shape)
        if -1 in given:
            extra = len(given) - len(now)
            kept = ((0,) * extra + now)[-len(given) :]
            given = tuple(kept[i] if n == -1 and i >= extra else n for i, n in enumerate(given))
        wanted = as_shape("expand", given)
        return self if wanted == now else self._of(op.Expand((self,), wanted))

    def narrow(self, axis: int, start: int, length: int) -> Tensor:
        """`length` elements of one axis from `start` on; a view. Raises RangeError."""
        at = _real_axis("narrow", axis, self)
        first, count = as_int("narrow", start), as_int("narrow", length)
        return self._of(op.Slice((self,), at, first, count))

    def i(self, *index: Any) -> Tensor:
        """The same as `tensor[index]`."""
        return self[index]

    def __getitem__(self, index: Any) -> Tensor:
        """Integers, slices (any step), `...`, None (a new axis), or an index tensor alone."""
        if isinstance(index, Tensor):
            return self.index_select(index, 0)
        found: Tensor = indexed(self, index if isinstance(index, tuple) else (index,))
        return found

    def flip(self, axes: int | Sequence[int]) -> Tensor:
        """One axis or several backwards; a view."""
        _real_axis("flip", 0, self)
        found = self
        for at in axes_of("flip", axes, self.rank):
            n = self.dim(at)
            found = found._of(op.Slice((found,), at, max(n - 1, 0), n, -1))
        return found

    def chunk(self, chunks: int, axis: int = 0) -> list[Tensor]:
        """At most so many views of equal length along an axis, the last one shorter.

        Raises OptionError for less than one.
        """
        at, wanted = _real_axis("chunk", axis, self), as_int("chunk", chunks)
        if wanted < 1:
            raise OptionError("chunk", "1 chunk or more", wanted)
        n = self.dim(at)
        size = max(-(-n // wanted), 1)
        return [self.narrow(at, k, min(size, n - k)) for k in range(0, max(n, 1), size)]

    @staticmethod
    def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """All tensors of one dtype one after another along `axis`. Raises ShapeError."""
        first, *others = _some_tensors("cat", tensors)
        if first.rank == 0:
            raise ShapeError("cat", "tensors with axes", "scalars", "stack() joins scalars")
        return first.apply(op.Cat((first, *others), axis_of("cat", axis, first.rank)))

    @staticmethod
    def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """All tensors of one shape along a new axis."""
        return Tensor.cat([t.unsqueeze(axis) for t in _some_tensors("stack", tensors)], axis)

    def contiguous(self) -> Tensor:
        """This tensor, or a row-major copy if its strides are others."""
        return self if self.is_contiguous() else self.copy()

    def copy(self) -> Tensor:
        """A row-major copy of its own."""
        return self._of(op.Contiguous((self,)))

    # -- indices -----------------------------------------------------------------------------------

    def index_select(self, indices: Tensor, axis: int = 0) -> Tensor:
        """Elements of `axis` at `indices` (any shape along axis 0, else 1-D). Raises RangeError."""
        require_tensors("index_select", indices)
        at = _real_axis("index_select", axis, self)
        if at == 0:
            return self.apply(op.Take((self, indices)))
        if indices.rank != 1:
            raise ShapeError("index_select", "1-D indices for an axis but the first", indices.shape)
        front = self.transpose(0, at)
        return front.apply(op.Take((front, indices))).transpose(0, at)

    def gather(self, indices: Tensor, axis: int) -> Tensor:
        """Elements along `axis`, as NumPy's take_along_axis. Raises RangeError."""
        at = _real_axis("gather", axis, self)
        return self.apply(op.Gather((self, indices), at))

    def index_add(self, indices: Tensor, source: Tensor, axis: int = 0) -> Tensor:
        """This tensor with slices of `source` added at `indices` (1-D) of an axis, in their order.

        Half precision is summed in f32. Raises RangeError.
        """
        require_tensors("index_add", indices, source)
        at = _real_axis("index_add", axis, self)
        if source.rank != self.rank:
            raise ShapeError("index_add", f"a source of {self.rank} axes", list(source.shape))
        front, slices = self.transpose(0, at), source.transpose(0, at)
        return front.apply(op.IndexAdd((front, slices, indices))).transpose(0, at)

    def scatter_add(self, indices: Tensor, source: Tensor, axis: int) -> Tensor:
        """This tensor with `source` added at `indices` along `axis`: the adjoint of gather.

        Half precision is summed in f32. Raises RangeError.
        """
        at = _real_axis("scatter_add", axis, self)
        return self.apply(op.ScatterAdd((self, source, indices), at))

    def new_indices(self, values: Sequence[int]) -> Tensor:
        """An i64 index tensor beside this one."""
        return Tensor(as_list("new_indices", values, "integers"), DType.I64)

    def new_range(self, start: int, count: int, step: int) -> Tensor:
        """`count` i64 indices from `start` on, on this device."""
        first, n, by = (as_int("new_range", v) for v in (start, count, step))
        return Tensor.of_view(creation.iota(DType.I64, n, first, by))

    # -- gradients ---------------------------------------------------------------------------------

    def backward(
        self, grad: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Adds d self / d x to the `grad()` of each Var and retained tensor x that leads here.

        Without `grad`, self must be a scalar. Raises GradientError.
        """
        if not self.tracked:
            got = f"{self.dtype}{list(self.shape)} that leads to none"
            raise GradientError("backward", "a tensor that depends on a Var", got)
        if grad is None:
            if self.count != 1:
                raise GradientError("backward", "a scalar, or a gradient given", list(self.shape))
            grad = self.ones_like()
        require_tensors("backward", grad)
        if grad.shape != self.shape or grad.dtype is not self.dtype:
            wanted, got = (f"{t.dtype}{list(t.shape)}" for t in (self, grad))
            raise ShapeError("backward", f"a gradient of {wanted}", got)
        retain, create = (as_flag("backward", flag) for flag in (retain_graph, create_graph))
        for value, found in autograd.backward(self, grad, retain, create):
            before = value._grad
            value._grad = found if before is None else before.add(found)

    def grad(self) -> Tensor | None:
        """The gradient gathered so far, or None. It outlives the graph."""
        return self._grad

    def zero_grad(self) -> None:
        """Forgets the gradient."""
        self._grad = None

    def retain_grad(self) -> Tensor:
        """Keeps the gradient of this intermediate result; answers self. Raises DTypeError."""
        if not self.dtype.is_float:
            raise DTypeError("retain_grad", "a float dtype", self.dtype)
        self.keeps_grad = True
        self.tracked = True
        return self

    def detach(self) -> Tensor:
        """The same data without a history; a view."""
        return Tensor.of_view(self.data)

    # -- out ---------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """The bytes of a contiguous tensor, in place. Raises ShapeError for others."""
        return self.data.bytes()

    def to_vec(self) -> Any:
        """Nested lists; a Python number for a scalar."""
        dtype = self.dtype
        if dtype.is_block or dtype in (DType.F16, DType.BF16):
            return self.detach().to_dtype(DType.F32).to_vec()
        whole = self.detach().contiguous().buffer().cast(nested.FORMATS[dtype])
        return nested.nest(whole.tolist(), self.shape)

    def to_scalar(self) -> Number:
        """The one element. Raises ShapeError for more or none."""
        if self.count != 1:
            raise ShapeError("to_scalar", "one element", list(self.shape))
        value: Number = self.detach().reshape(()).to_vec()
        return value

    item = to_scalar

    def numpy(self) -> Any:
        """A NumPy array on the same memory, read-only where elements repeat (`expand`).

        Raises DTypeError for bf16 and blocks.
        """
        import numpy

        return numpy.asarray(ArrayFace(self.data))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        return numpy.array(ArrayFace(self.data), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU

    def __buffer__(self, flags: int) -> memoryview:
        """The buffer protocol (Python 3.12 on) of a contiguous tensor, with format and shape."""
        layout = self.data.layout
        if not layout.contiguous or not layout.count or layout.dtype not in nested.FORMATS:
            raise BufferError(f"a contiguous tensor of a plain dtype with elements, not {layout}")
        if flags & 1 and not self.data.storage.writable:
            raise BufferError("this tensor's memory is read-only")
        face: memoryview = self.buffer().cast(nested.FORMATS[layout.dtype], layout.shape)
        return face

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        whole = self.detach().contiguous().buffer()
        data = pickle.PickleBuffer(whole) if protocol >= 5 else bytes(whole)
        return _unpickle, (type(self), data, self.dtype.label, self.shape)

    def __repr__(self) -> str:
        made = "" if self.op is None else f", op={type(self.op).__name__}"
        body = ""
        if 0 < self.count <= 64 and not self.dtype.is_block:
            body = f"{nested.shown(self.to_vec(), self.dtype)}, "
        return f"{type(self).__name__}({body}shape={list(self.shape)}, dtype={self.dtype}{made})"

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len", "a tensor with axes", "a scalar")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[k] for k in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.to_scalar())

    def __float__(self) -> float:
        return float(self.to_scalar())

    def __int__(self) -> int:
        return int(self.to_scalar())

    # -- operators ---------------------------------------------------------------------------------

    __hash__ = object.__hash__
    __add__ = __radd__ = add
    __mul__ = __rmul__ = mul
    __sub__ = sub
    __truediv__ = div
    __floordiv__ = floor_div
    __mod__ = rem
    __pow__ = pow
    __matmul__ = matmul
    __neg__ = neg
    __abs__ = abs
    __lt__ = lt
    __le__ = le
    __gt__ = gt
    __ge__ = ge

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        operand: Any = other
        return self.eq(operand) if _is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        operand: Any = other
        return self.ne(operand) if _is_operand(other) else NotImplemented

    def __rsub__(self, other: Number) -> Tensor:
        return _beside(other, self).sub(self)

    def __rtruediv__(self, other: Number) -> Tensor:
        return _beside(other, self).div(self)

    def __rfloordiv__(self, other: Number) -> Tensor:
        return _beside(other, self).floor_div(self)

    def __rmod__(self, other: Number) -> Tensor:
        return _beside(other, self).rem(self)

    def __rpow__(self, other: Number) -> Tensor:
        return _beside(other, self).pow(self)


class Var(Tensor):
    """A trainable leaf: it always keeps its gradient. `Var(tensor)` copies; `set` replaces."""

    __slots__ = ()

    def __init__(self, values: Any, dtype: DType | str | None = None) -> None:
        tensor = values if isinstance(values, Tensor) else Tensor(values, dtype)
        if not tensor.dtype.is_float:
            raise DTypeError("Var", "a float dtype", tensor.dtype)
        self._set(tensor.detach().copy().data)
        self.tracked = self.keeps_grad = True

    def set(self, value: Tensor) -> None:
        """Replaces the data in place (shapes and dtypes equal); records that saw it notice."""
        require_tensors("set", value)
        if value.dtype is not self.dtype:
            raise DTypeError("set", self.dtype, value.dtype)
        eager.copy_into(self.data, value.data)


_SMOOTH = ("float", "block")


def _is_operand(other: object) -> bool:
    return isinstance(other, Tensor | numbers.Real)


def require_tensors(name: str, *values: object) -> None:
    """Raises DTypeError, which names the operation, unless all are tensors."""
    for x in values:
        if not isinstance(x, Tensor):
            raise DTypeError(name, "tensors", type(x).__name__, "Tensor(values) makes one")


def _some_tensors(name: str, values: Iterable[Tensor]) -> list[Tensor]:
    """At least one tensor, of any iterable."""
    found = list(values) if isinstance(values, Iterable) else [values]
    require_tensors(name, *found)
    if not found:
        raise ShapeError(name, "at least one tensor", 0)
    return found


def _source(name: str, given: generator.Generator | None) -> generator.Generator:
    """Where random numbers come from. Raises OptionError."""
    if given is None:
        return generator.default
    require(name, "a Generator", generator.Generator, given)
    return given


def _result(data: View, record: Any) -> Tensor:
    """The tensor that a record made; a leaf where nothing it came from is tracked.

    Integers and masks lead nowhere: an index that was computed is a constant to backward.
    """
    out = Tensor.__new__(Tensor)
    out.data = data
    out.id = next(_ids)
    out.op = out._grad = None
    out.tracked = out.keeps_grad = False
    for x in record.inputs:
        if x.tracked:
            if data.layout.dtype.kind in _SMOOTH and autograd.recording():
                out.op = record
                out.tracked = True
                out.seen = changes()
            break
    if watching:
        check(out, record)
    return out


def _unpickle(kind: type[Tensor], data: Any, dtype: str, shape: Shape) -> Tensor:
    tensor = Tensor.from_buffer(bytearray(data) if isinstance(data, bytes) else data, dtype, shape)
    return tensor if kind is Tensor else kind(tensor)


def _plain(name: str, value: Any) -> int | float:
    """A plain number of a real one, NumPy's included.

    Raises DTypeError, and OptionError for an integer of a size that no dtype has.
    """
    if isinstance(value, int | float):
        if isinstance(value, int) and value.bit_length() > 64:
            raise OptionError(name, "numbers of at most 64 bits", f"{value.bit_length()} bits")
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    hint = "from_numpy() takes arrays" if hasattr(value, "__array_interface__") else ""
    raise DTypeError(name, "a tensor or a number", type(value).__name__, hint)


_scalars: dict[tuple[Any, type, DType], Tensor] = {}


def _scalar(value: Number, dtype: DType) -> Tensor:
    """A scalar tensor; shared, since nothing changes it."""
    key = (value or repr(value), value.__class__, dtype)  # 0.0 and -0.0 are equal, but not the same
    found = _scalars.get(key)
    if found is None:
        if len(_scalars) >= 1024:
            _scalars.clear()
        with tracing.outside():
            found = _scalars[key] = Tensor.full((), value, dtype)
    return found


def _meet(name: str, a: Tensor, b: Any, compares: bool = False) -> tuple[Tensor, Tensor]:
    """Both operands as tensors of one dtype. A number takes the tensor's dtype where it can.

    Raises OptionError for an integer that the dtype cannot hold, but where it `compares`.
    """
    if isinstance(b, Tensor):
        left, right = a.data.layout.dtype, b.data.layout.dtype
        if left is right and not left.is_block:
            return a, b
        dtype = promote(name, left, right)
        return a.to_dtype(dtype), b.to_dtype(dtype)
    value = _plain(name, b)
    dtype = a.data.layout.dtype
    if not dtype.is_float:
        if dtype.is_block:
            promote(name, dtype, dtype)  # raises
        elif isinstance(value, float):
            a = a.to_dtype(DType.F32)
        elif (dtype is DType.BOOL and not isinstance(value, bool)) or (
            compares and not creation.fits(value, dtype)
        ):
            a = a.to_dtype(DType.I64)
    return a, _scalar(value, a.data.layout.dtype)


def _beside(number: Any, tensor: Tensor) -> Tensor:
    """The number on the left of an operator, as a tensor of the type in which both meet."""
    return _meet("operand", tensor, number)[1]


def _real_axis(name: str, axis: int, x: Tensor) -> int:
    """`axis` counted from the front; a scalar has none."""
    rank = x.data.layout.rank
    if rank == 0:
        raise RangeError(name, "a tensor with axes", "a scalar")
    return axis_of(name, axis, rank)


def _from_nested(values: Any, dtype: DType | None) -> View:
    data, made, shape = nested.read(values, dtype)
    view = View(Storage.of_buffer(data)[0], 0, Layout.of(made, as_shape("Tensor", shape)))
    return view if dtype is None or dtype is made else eager.cast(view, dtype)
