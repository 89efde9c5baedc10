"""Tensor: `id`, `data` (a view of a storage), `shape`, and `op` (the record that made it, or None).

Eager: each method makes a record, runs it at once, and keeps the record only where some input leads
to a `Var` or a retained tensor. Compositions live in `functional.py`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from . import autograd, eager, op
from .device import CPU, Device
from .dtype import DType, promote
from .errors import DTypeError, GradientError, OptionError, RangeError, ShapeError
from .op import BinaryKind, CompareKind, ReduceKind, UnaryKind
from .shape import Layout, Shape, as_shape, axes_of, axis_of, infer_reshape
from .storage import Storage, View, stored_bytes

Number = int | float | bool
Axes = int | Sequence[int] | None

_ids = itertools.count(1)

# dtype -> (struct and memoryview format, NumPy name)
_FORMATS: dict[DType, tuple[str, str]] = {
    DType.F32: ("f", "float32"),
    DType.F64: ("d", "float64"),
    DType.I64: ("q", "int64"),
    DType.I32: ("i", "int32"),
    DType.U32: ("I", "uint32"),
    DType.U8: ("B", "uint8"),
    DType.BOOL: ("?", "bool"),
    DType.F16: ("e", "float16"),
}
_FROM_NUMPY = {name: dtype for dtype, (_, name) in _FORMATS.items()}


class Tensor:
    """An n-dimensional array that can lead back to what made it.

    `Tensor(values)` copies nested lists or a number: floats make f32, ints i64, bools bool.
    """

    __slots__ = ("__weakref__", "_grad", "data", "id", "keeps_grad", "op", "tracked", "versions")

    def __init__(self, values: Any, dtype: DType | str | None = None) -> None:
        self._set(_from_nested(values, None if dtype is None else DType.of(dtype)), None)

    def _set(self, data: View, record: Any) -> None:
        self.data = data
        self.id = next(_ids)
        self.op = record
        self.tracked = record is not None
        self.keeps_grad = False
        self._grad: Tensor | None = None

    @classmethod
    def of_view(cls, data: View) -> Tensor:
        """A leaf on a view."""
        self = cls.__new__(cls)
        self._set(data, None)
        return self

    # -- records ---------------------------------------------------------------------------------

    def apply(self, record: Any) -> Any:
        """Runs a record on its inputs: a Tensor, or a tuple where it has two outputs.

        The one way from records to values, for this file, `functional` and `autograd` alike.
        """
        made = eager.run(record, tuple([x.data for x in record.inputs]))
        if type(made) is tuple:
            return tuple(Tensor.of_view(v) for v in made)
        out = Tensor.__new__(Tensor)
        out.data = made
        out.id = next(_ids)
        out.keeps_grad = False
        out._grad = None
        for x in record.inputs:
            if x.tracked and autograd.recording():
                out.op = record
                out.tracked = True
                out.versions = tuple([x.data.storage.version for x in record.inputs])
                return out
        out.op = None
        out.tracked = False
        return out

    def _unary(self, kind: UnaryKind) -> Tensor:
        return self.apply(op.Unary((self,), kind))

    def _binary(self, kind: BinaryKind, other: Tensor | Number) -> Tensor:
        a, b = _meet(kind.value, self, other)
        return self.apply(op.Binary((a, b), kind))

    def _compare(self, kind: CompareKind, other: Tensor | Number) -> Tensor:
        a, b = _meet(kind.value, self, other)
        return self.apply(op.Compare((a, b), kind))

    def _reduce(self, kind: ReduceKind, axes: Axes, keepdim: bool, correction: int = 0) -> Tensor:
        found = axes_of(kind.value, axes, self.rank)
        return self.apply(op.Reduce((self,), kind, found, keepdim, correction))

    # -- creation --------------------------------------------------------------------------------

    @staticmethod
    def new(values: Any, dtype: DType | str | None = None) -> Tensor:
        """The same as `Tensor(values, dtype)`."""
        return Tensor(values, dtype)

    @staticmethod
    def full(shape: int | Sequence[int], value: Number, dtype: DType | str = DType.F32) -> Tensor:
        """Every element `value`."""
        return Tensor.of_view(eager.fill(DType.of(dtype), as_shape("full", shape), value))

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
        start: Number, stop: Number | None = None, step: Number = 1, dtype: DType | str | None = None
    ) -> Tensor:
        """start, start + step, ... before stop; `arange(n)` counts from 0. i64, or f32 for floats."""
        if stop is None:
            start, stop = 0, start
        if step == 0:
            raise OptionError("arange", "a step other than 0", step)
        whole = all(isinstance(v, int) for v in (start, stop, step))
        wanted = DType.of(dtype) if dtype is not None else DType.I64 if whole else DType.F32
        count = max(0, -int((stop - start) // -step))
        return Tensor.of_view(eager.iota(wanted, count, start, step))

    @staticmethod
    def from_buffer(
        buffer: Any, dtype: DType | str, shape: int | Sequence[int], offset: int = 0
    ) -> Tensor:
        """A view of any contiguous buffer (bytes, map, array), `offset` bytes in; no copy.

        Raises ShapeError if the buffer is too small.
        """
        wanted, sizes = DType.of(dtype), as_shape("from_buffer", shape)
        storage = Storage.of_buffer(buffer)
        need = stored_bytes(wanted, sizes)
        if offset < 0 or offset + need > storage.nbytes:
            raise ShapeError("from_buffer", f"{offset} + {need} bytes", f"{storage.nbytes} bytes")
        return Tensor.of_view(View(storage, offset, Layout.of(wanted, sizes)))

    @staticmethod
    def from_numpy(array: Any) -> Tensor:
        """A view of a NumPy array, without a copy; any strides that are whole elements.

        Raises DTypeError for dtypes there is no counterpart to.
        """
        face = array.__array_interface__
        dtype = _FROM_NUMPY.get(str(array.dtype))
        if dtype is None or array.dtype.byteorder not in "=|":
            wanted = f"one of {', '.join(_FROM_NUMPY)} in native byte order"
            raise DTypeError("from_numpy", wanted, array.dtype, "astype() converts")
        shape, size = tuple(array.shape), dtype.size
        strides = face["strides"] or Layout.of(dtype, as_shape("from_numpy", shape)).strides
        if face["strides"]:
            if any(s % size for n, s in zip(shape, strides, strict=True) if n > 1):
                raise ShapeError("from_numpy", f"strides of whole {size}-byte elements", strides)
            strides = tuple(s // size for s in strides)
        layout = Layout.of(dtype, as_shape("from_numpy", shape), tuple(strides))
        address, writable = face["data"][0], not face["data"][1]
        storage = Storage.of_address(address, array.nbytes, array, writable)
        return Tensor.of_view(View(storage, 0, layout))

    # -- facts -----------------------------------------------------------------------------------

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
        return self.shape[axis_of("dim", axis, self.rank)]

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

    # -- elementwise -----------------------------------------------------------------------------

    def add(self, other: Tensor | Number) -> Tensor:
        """self + other, broadcast."""
        return self._binary(BinaryKind.ADD, other)

    def sub(self, other: Tensor | Number) -> Tensor:
        """self - other, broadcast."""
        return self._binary(BinaryKind.SUB, other)

    def mul(self, other: Tensor | Number) -> Tensor:
        """self * other, broadcast."""
        return self._binary(BinaryKind.MUL, other)

    def div(self, other: Tensor | Number) -> Tensor:
        """self / other, broadcast; integers are divided as f32."""
        return _as_float(self)._binary(BinaryKind.DIV, _as_float(other))

    def floor_div(self, other: Tensor | Number) -> Tensor:
        """The quotient rounded down. Raises ZeroDivisionError for integers over zero."""
        quotient = self._binary(BinaryKind.DIV, other)
        return quotient.floor() if quotient.dtype.is_float else quotient

    def pow(self, other: Tensor | Number) -> Tensor:
        """self to the power of other, broadcast."""
        return self._binary(BinaryKind.POW, other)

    def maximum(self, other: Tensor | Number) -> Tensor:
        """The greater of each pair; NaN if either is."""
        return self._binary(BinaryKind.MAXIMUM, other)

    def minimum(self, other: Tensor | Number) -> Tensor:
        """The smaller of each pair; NaN if either is."""
        return self._binary(BinaryKind.MINIMUM, other)

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
        return self._unary(UnaryKind.GELU_TANH if tanh else UnaryKind.GELU)

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

    def where_cond(self, on_true: Tensor, on_false: Tensor | Number) -> Tensor:
        """Elements of `on_true` where this condition (bool or u8) holds, else of `on_false`."""
        a, b = _meet("where", on_true, on_false)
        return self.apply(op.Where((self, a, b)))

    def to_dtype(self, dtype: DType | str) -> Tensor:
        """As another dtype. Floats to integers saturate, NaN gives 0; blocks are dequantised."""
        wanted = DType.of(dtype)
        return self if wanted is self.dtype else self.apply(op.Cast((self,), wanted))

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
        """Index of the greatest element (i64), the first of equals; of the flattened tensor for None."""
        return self._reduce(ReduceKind.ARGMAX, axis, keepdim)

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Tensor:
        """Index of the smallest element (i64), the first of equals."""
        return self._reduce(ReduceKind.ARGMIN, axis, keepdim)

    def var(self, axes: Axes = None, keepdim: bool = False, correction: int = 1) -> Tensor:
        """Variance with `correction` taken off the count (1: of a sample, 0: of a population)."""
        return self._reduce(ReduceKind.VAR, axes, keepdim, correction)

    def topk(self, k: int) -> tuple[Tensor, Tensor]:
        """(values, indices i64) of the k greatest of the last axis, descending, ties by index."""
        return self.apply(op.TopK((self,), k))

    # -- products ------------------------------------------------------------------------------------

    def matmul(self, other: Tensor) -> Tensor:
        """Matrix product. 1-D vectors, equal batch axes, or any [.., m, k] times one [k, n].

        Batch axes are never broadcast: raises ShapeError with both shapes and the remedy.
        """
        if self.rank == 0 or other.rank == 0:
            raise ShapeError("matmul", "vectors or matrices", [list(self.shape), list(other.shape)])
        if self.rank == 1:
            return self.unsqueeze(0).matmul(other).squeeze(-2 if other.rank > 1 else 0)
        if other.rank == 1:
            return self.matmul(other.unsqueeze(1)).squeeze(-1)
        if other.rank == 2 and self.rank > 2:
            rows = self.reshape((-1, self.shape[-1])) if self.count else self
            if rows.rank == 2:
                out = rows.matmul(other)
                return out.reshape((*self.shape[:-1], other.shape[1]))
            other = other.expand((*self.shape[:-2], *other.shape))
        return self.apply(op.MatMul((self, other)))

    # -- movement ------------------------------------------------------------------------------------

    def reshape(self, shape: int | Sequence[int]) -> Tensor:
        """The same elements under another shape, one size may be -1; a view where possible."""
        wanted = infer_reshape(self.shape, (shape,) if isinstance(shape, int) else shape)
        return self if wanted == self.shape else self.apply(op.Reshape((self,), wanted))

    def flatten_from(self, axis: int) -> Tensor:
        """All axes from `axis` on joined into one."""
        start = axis_of("flatten_from", axis, self.rank)
        size = 1
        for n in self.shape[start:]:
            size *= n
        return self.reshape((*self.shape[:start], size))

    def permute(self, axes: Sequence[int]) -> Tensor:
        """Axes in another order; a view."""
        found = tuple(axis_of("permute", a, self.rank) for a in axes)
        if sorted(found) != list(range(self.rank)):
            raise ShapeError("permute", f"each of {self.rank} axes once", list(axes))
        return self.apply(op.Permute((self,), found))

    def transpose(self, a: int, b: int) -> Tensor:
        """Two axes exchanged; a view."""
        axes = list(range(self.rank))
        i, j = axis_of("transpose", a, self.rank), axis_of("transpose", b, self.rank)
        if axes:
            axes[i], axes[j] = axes[j], axes[i]
        return self.permute(axes)

    def t(self) -> Tensor:
        """The last two axes exchanged; a view."""
        if self.rank < 2:
            raise ShapeError("t", "at least 2 axes", list(self.shape))
        return self.transpose(-1, -2)

    def unsqueeze(self, axis: int) -> Tensor:
        """A new axis of length 1 before `axis`."""
        at = axis_of("unsqueeze", axis, self.rank + 1)
        return self.reshape((*self.shape[:at], 1, *self.shape[at:]))

    def squeeze(self, axis: int | None = None) -> Tensor:
        """Without one axis of length 1, or all of them. Raises ShapeError for another length."""
        if axis is None:
            return self.reshape([n for n in self.shape if n != 1])
        at = axis_of("squeeze", axis, self.rank)
        if self.rank and self.shape[at] != 1:
            raise ShapeError("squeeze", f"length 1 of axis {axis}", list(self.shape))
        return self.reshape((*self.shape[:at], *self.shape[at + 1 :]))

    def expand(self, shape: int | Sequence[int]) -> Tensor:
        """Axes of length 1 repeated, new ones in front; a view. -1 keeps a size."""
        given = [shape] if isinstance(shape, int) else list(shape)
        extra = len(given) - self.rank
        for i, n in enumerate(given):
            if n == -1 and i >= extra:
                given[i] = self.shape[i - extra]
        wanted = as_shape("expand", given)
        return self if wanted == self.shape else self.apply(op.Expand((self,), wanted))

    def narrow(self, axis: int, start: int, length: int) -> Tensor:
        """`length` elements of one axis from `start` on; a view. Raises RangeError."""
        at = axis_of("narrow", axis, self.rank)
        if self.rank == 0:
            raise RangeError("narrow", "a tensor with axes", "a scalar")
        return self.apply(op.Slice((self,), at, start, length))

    def i(self, *index: Any) -> Tensor:
        """The same as `tensor[index]`."""
        return self[index]

    def __getitem__(self, index: Any) -> Tensor:
        """Integers, slices (any step), `...`, None (a new axis), or an index tensor alone."""
        if isinstance(index, Tensor):
            return self.index_select(index, 0)
        return _index(self, index if isinstance(index, tuple) else (index,))

    def flip(self, axis: int) -> Tensor:
        """One axis backwards; a view."""
        at = axis_of("flip", axis, self.rank)
        return self.apply(op.Slice((self,), at, max(self.shape[at] - 1, 0), self.shape[at], -1))

    @staticmethod
    def cat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """All tensors one after another along `axis`."""
        if not tensors:
            raise ShapeError("cat", "at least one tensor", 0)
        at = axis_of("cat", axis, tensors[0].rank)
        if tensors[0].rank == 0:
            raise ShapeError("cat", "tensors with axes", "scalars", "stack() joins scalars")
        return tensors[0].apply(op.Cat(tuple(tensors), at))

    @staticmethod
    def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
        """All tensors of one shape along a new axis."""
        if not tensors:
            raise ShapeError("stack", "at least one tensor", 0)
        return Tensor.cat([t.unsqueeze(axis) for t in tensors], axis)

    def contiguous(self) -> Tensor:
        """This tensor, or a row-major copy if its strides are others."""
        return self if self.is_contiguous() else self.copy()

    def copy(self) -> Tensor:
        """A row-major copy of its own."""
        return self.apply(op.Contiguous((self,)))

    # -- indices -------------------------------------------------------------------------------------

    def index_select(self, indices: Tensor, axis: int = 0) -> Tensor:
        """Elements of `axis` at `indices` (any shape along axis 0, else 1-D); negative count back."""
        at = axis_of("index_select", axis, self.rank)
        if at == 0:
            return self.apply(op.Take((self, indices)))
        if indices.rank != 1:
            raise ShapeError("index_select", "1-D indices for an axis but the first", indices.shape)
        front = self.transpose(0, at)
        return front.apply(op.Take((front, indices))).transpose(0, at)

    def gather(self, indices: Tensor, axis: int) -> Tensor:
        """Elements along `axis`, as NumPy's take_along_axis. Raises RangeError."""
        at = axis_of("gather", axis, self.rank)
        return self.apply(op.Gather((self, indices), at))

    def new_indices(self, values: Sequence[int]) -> Tensor:
        """An i64 index tensor beside this one."""
        return Tensor(list(values), DType.I64)

    # -- gradients -----------------------------------------------------------------------------------

    def backward(
        self, grad: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Adds d self / d x to the `grad()` of each Var and retained tensor x that leads here.

        Without `grad`, self must be a scalar. Raises GradientError.
        """
        if not self.tracked:
            raise GradientError("backward", "a tensor that depends on a Var", f"{self.shape}, op None")
        if grad is None:
            if self.count != 1:
                raise GradientError("backward", "a scalar, or a gradient given", list(self.shape))
            grad = self.ones_like()
        if grad.shape != self.shape:
            raise ShapeError("backward", f"a gradient of {list(self.shape)}", list(grad.shape))
        for value, found in autograd.backward(self, grad, retain_graph, create_graph):
            before = value._grad
            value._grad = found if before is None else before.add(found)

    def grad(self) -> Tensor | None:
        """The gradient gathered so far, or None. It outlives the graph."""
        return self._grad

    def zero_grad(self) -> None:
        """Forgets the gradient."""
        self._grad = None

    def retain_grad(self) -> Tensor:
        """Keeps the gradient of this intermediate result; answers self."""
        self.keeps_grad = True
        self.tracked = True
        return self

    def detach(self) -> Tensor:
        """The same data without a history; a view."""
        return Tensor.of_view(self.data)

    # -- out -----------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """The bytes of a contiguous tensor, in place. Raises ShapeError for others."""
        return self.data.bytes()

    def to_vec(self) -> Any:
        """Nested lists; a Python number for a scalar."""
        dtype = self.dtype
        if dtype.is_block or dtype in (DType.F16, DType.BF16):
            return self.to_dtype(DType.F32).to_vec()
        whole = self.contiguous().buffer().cast(_FORMATS[dtype][0])
        return _nested(whole.tolist(), self.shape)

    def to_scalar(self) -> Number:
        """The one element. Raises ShapeError for more or none."""
        if self.count != 1:
            raise ShapeError("to_scalar", "one element", list(self.shape))
        return self.reshape(()).to_vec()

    item = to_scalar

    def numpy(self) -> Any:
        """A NumPy array on the same memory. Raises DTypeError for bf16 and blocks."""
        import numpy

        return numpy.asarray(_ArrayFace(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        return array.astype(dtype) if dtype is not None or copy else array

    def __buffer__(self, flags: int) -> memoryview:
        return self.buffer()

    def __reduce__(self) -> tuple[Any, ...]:
        data = bytes(self.contiguous().buffer())
        return _unpickle, (data, self.dtype.label, self.shape)

    def __repr__(self) -> str:
        made = "" if self.op is None else f", op={type(self.op).__name__}"
        body = f"{self.to_vec()}, " if 0 < self.count <= 64 and not self.dtype.is_block else ""
        return f"Tensor({body}shape={list(self.shape)}, dtype={self.dtype}{made})"

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

    # -- operators -----------------------------------------------------------------------------------

    __hash__ = object.__hash__
    __add__ = __radd__ = add
    __mul__ = __rmul__ = mul
    __sub__ = sub
    __truediv__ = div
    __floordiv__ = floor_div
    __pow__ = pow
    __matmul__ = matmul
    __neg__ = neg
    __abs__ = abs
    __lt__ = lt
    __le__ = le
    __gt__ = gt
    __ge__ = ge

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.eq(other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return self.ne(other)  # type: ignore[arg-type]

    def __rsub__(self, other: Number) -> Tensor:
        return self.neg().add(other)

    def __rtruediv__(self, other: Number) -> Tensor:
        return _scalar(other, _as_float(self).dtype).div(self)


class Var(Tensor):
    """A trainable leaf: it always keeps its gradient. `Var(tensor)` copies; `set` replaces."""

    __slots__ = ()

    def __init__(self, values: Any, dtype: DType | str | None = None) -> None:
        tensor = values if isinstance(values, Tensor) else Tensor(values, dtype)
        if not tensor.dtype.is_float:
            raise DTypeError("Var", "a float dtype", tensor.dtype)
        with autograd.no_grad():
            self._set(tensor.copy().data, None)
        self.tracked = self.keeps_grad = True

    def set(self, value: Tensor) -> None:
        """Replaces the data in place (shapes and dtypes equal); records that saw it notice."""
        if value.dtype is not self.dtype:
            raise DTypeError("set", self.dtype, value.dtype)
        eager.copy_into(self.data, value.data)


class _ArrayFace:
    """What NumPy needs to see a tensor's memory; keeps the tensor alive."""

    def __init__(self, tensor: Tensor) -> None:
        layout = tensor.data.layout
        if layout.dtype not in _FORMATS:
            hint = "to_dtype('f32') first"
            raise DTypeError("numpy", f"one of {', '.join(_FROM_NUMPY)}", layout.dtype, hint)
        kind = {"bool": "b", "int": "i", "float": "f"}[layout.dtype.kind]
        if layout.dtype in (DType.U8, DType.U32):
            kind = "u"
        self.tensor = tensor
        order = "|" if layout.dtype.size == 1 else _NATIVE_ORDER
        self.__array_interface__ = {
            "version": 3,
            "shape": layout.shape,
            "typestr": f"{order}{kind}{layout.dtype.size}",
            "strides": tuple(s * layout.dtype.size for s in layout.strides),
            "data": (tensor.data.address, not tensor.data.storage.writable),
        }


_NATIVE_ORDER = "<" if struct.pack("=h", 1) == struct.pack("<h", 1) else ">"


def _unpickle(data: bytes, dtype: str, shape: Shape) -> Tensor:
    return Tensor.from_buffer(bytearray(data), dtype, shape)


@lru_cache(1024)
def _cached_scalar(value: Number, kind: type, dtype: DType) -> Tensor:
    return Tensor.full((), value, dtype)


def _scalar(value: Number, dtype: DType) -> Tensor:
    """A scalar tensor; shared, since nothing changes it."""
    return _cached_scalar(value, type(value), dtype)


def _meet(name: str, a: Tensor, b: Tensor | Number) -> tuple[Tensor, Tensor]:
    """Both operands as tensors of one dtype. A number takes the tensor's dtype where it can."""
    if not isinstance(b, Tensor):
        if not isinstance(b, int | float):
            raise DTypeError(name, "a tensor or a number", type(b).__name__)
        if isinstance(b, float) and not a.dtype.is_float:
            a = a.to_dtype(DType.F32)
        elif a.dtype is DType.BOOL and not isinstance(b, bool):
            a = a.to_dtype(DType.I64)
        return a, _scalar(b, a.dtype)
    if a.data.layout.dtype is b.data.layout.dtype:
        return a, b
    dtype = promote(name, a.dtype, b.dtype)
    return a.to_dtype(dtype), b.to_dtype(dtype)


def _as_float(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x if x.dtype.is_float else x.to_dtype(DType.F32)
    return float(x) if isinstance(x, int) else x


def _index(x: Tensor, index: tuple[Any, ...]) -> Tensor:
    """Applies integers, slices, at most one Ellipsis and Nones from the left."""
    used = sum(1 for part in index if part is not None and part is not Ellipsis)
    dots = [k for k, part in enumerate(index) if part is Ellipsis]
    if used > x.rank or len(dots) > 1:
        raise RangeError("index", f"at most {x.rank} indices and one ...", len(index))
    if dots:
        whole = (slice(None),) * (x.rank - used)
        index = (*index[: dots[0]], *whole, *index[dots[0] + 1 :])
    axis = 0
    for part in index:
        if part is None:
            x, axis = x.unsqueeze(axis), axis + 1
        elif isinstance(part, slice):
            x, axis = _slice(x, axis, part), axis + 1
        elif isinstance(part, int) and not isinstance(part, bool):
            n = x.shape[axis]
            if not -n <= part < n:
                raise RangeError("index", f"an index in [{-n}, {n})", part)
            x = x.narrow(axis, part % n, 1).squeeze(axis)
        else:
            raise RangeError("index", "int, slice, ..., None or a tensor alone", type(part).__name__)
    return x


def _slice(x: Tensor, axis: int, part: slice) -> Tensor:
    start, stop, step = part.indices(x.shape[axis])
    length = max(0, -((stop - start) // -step))
    if (start, length, step) == (0, x.shape[axis], 1):
        return x
    return x.apply(op.Slice((x,), axis, start if length else 0, length, step))


def _shape_of(values: Any) -> Shape:
    shape: list[int] = []
    while isinstance(values, list | tuple):
        shape.append(len(values))
        if not values:
            break
        values = values[0]
    return as_shape("Tensor", shape)


def _flat(values: Any, shape: Shape, out: list[Any]) -> None:
    if not shape:
        if not isinstance(values, int | float):
            raise DTypeError("Tensor", "numbers", type(values).__name__)
        out.append(values)
        return
    if not isinstance(values, list | tuple) or len(values) != shape[0]:
        got = f"{len(values)}" if isinstance(values, list | tuple) else type(values).__name__
        raise ShapeError("Tensor", f"{shape[0]} items in each list of a level", got)
    for v in values:
        _flat(v, shape[1:], out)


def _from_nested(values: Any, dtype: DType | None) -> View:
    shape = _shape_of(values)
    flat: list[Any] = []
    _flat(values, shape, flat)
    if all(isinstance(v, bool) for v in flat) and flat:
        made = DType.BOOL
    elif all(isinstance(v, int) for v in flat) and flat:
        made = DType.I64
    else:
        made = DType.F64 if dtype is DType.F64 else DType.F32
    code = _FORMATS[made][0]
    try:
        data = bytearray(struct.pack(f"={len(flat)}{code}", *flat))
    except (struct.error, OverflowError) as error:
        raise OptionError("Tensor", f"numbers that fit {made}", str(error)) from error
    tensor = Tensor.from_buffer(data, made, shape)
    return (tensor if dtype is None else tensor.to_dtype(dtype)).data


def _nested(flat: list[Any], shape: Shape) -> Any:
    if not shape:
        return flat[0]
    for size in reversed(shape[1:]):
        if size == 0:
            return _empty(shape)
        flat = [flat[k : k + size] for k in range(0, len(flat), size)]
    return flat


def _empty(shape: Shape) -> Any:
    return [_empty(shape[1:]) for _ in range(shape[0])] if len(shape) > 1 else []
