"""Runs one record on views of storages: the shape rule, the output, one native call.

`run(record, views)` finds the runner in a dict by the record's type. Runners know the native calls
and never Tensor; movement runners make views and call nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _native, creation, images, launch, losses, op
from ._native import Layout
from .dtype import DType
from .errors import DTypeError, OptionError, RangeError, ShapeError
from .launch import NO_PARAMS as _NO_PARAMS
from .launch import call, packs, params
from .launch import refusal as _refusal
from .op import ReduceKind
from .shape import Shape, as_shape, broadcast, count_of, expand_strides, reshape_strides
from .storage import View, new_like, new_view

Views = Sequence[View]
Runner = Callable[[Any, Views], Any]

_step = launch.step
_pack2, _pack3, _packs = packs[2], packs[3], packs
_ZEROS = [(0,) * rank for rank in range(9)]
_INDEX_TYPES = (DType.I64, DType.I32, DType.U32)


def run(record: Any, views: Views) -> Any:
    """Output view of a record (a tuple of views where it has two outputs)."""
    return RUNNERS[type(record)](record, views)


# -- elementwise -----------------------------------------------------------------------------------

_UNARY = {kind: _native.op_id(kind.value) for kind in op.UnaryKind}
_BINARY = {kind: _native.op_id(kind.value) for kind in op.BinaryKind}
_COMPARE = {kind: _native.op_id(kind.value) for kind in op.CompareKind}
_REDUCE = {kind: _native.op_id(kind.value) for kind in ReduceKind}


def _spread(name: str, layout: Layout, shape: Shape) -> Layout:
    """The layout of the same memory repeated to `shape`."""
    if layout.shape == shape:
        return layout
    if layout.count == 1 and layout.rank <= len(shape):
        return Layout.of(layout.dtype, shape, _ZEROS[len(shape)])
    strides = expand_strides(name, layout.shape, layout.strides, shape)
    return Layout.of(layout.dtype, shape, strides)


def expanded(name: str, view: View, shape: Shape) -> View:
    """The view repeated to `shape`, without a copy."""
    return View(view.storage, view.offset, _spread(name, view.layout, shape))


def unary(record: op.Unary, views: Views) -> View:
    (x,) = views
    layout = x.layout
    out = new_like(layout)
    op_id = _UNARY[record.kind]
    packed = _pack2(out.address, out.layout.address, x.address, layout.address)
    status = _step(op_id, packed, 2, _NO_PARAMS)
    if status:
        raise _refusal(op_id, status, x)
    return out


def _relu_grad(record: op.ReluGrad, views: Views) -> View:
    g, x = views
    left, right = g.layout, x.layout
    if left.shape != right.shape or left.dtype is not right.dtype:
        raise ShapeError("relu_grad", f"{right.dtype}{list(right.shape)}", left)
    out = new_like(left)
    made = out.layout.address
    packed = _pack3(out.address, made, g.address, left.address, x.address, right.address)
    status = _step(_RELU_GRAD, packed, 3, _NO_PARAMS)
    if status:
        raise _refusal(_RELU_GRAD, status, g, x)
    return out


def _met(name: str, left: Layout, right: Layout) -> tuple[Layout, Layout]:
    """Layouts of two operands that meet in one dtype and, repeated without a copy, in one shape."""
    if left.dtype is not right.dtype:
        hint = "to_dtype() casts"
        raise DTypeError(name, f"operands of one dtype ({left.dtype})", right.dtype, hint)
    if left.shape == right.shape:
        return left, right
    shape = broadcast(name, left.shape, right.shape) if right.rank else left.shape
    return _spread(name, left, shape), _spread(name, right, shape)


def binary(record: op.Binary, views: Views) -> View:
    a, b = views
    left, right = a.layout, b.layout
    if left is not right:
        left, right = _met(record.kind.value, left, right)
    out = new_like(left)
    op_id = _BINARY[record.kind]
    made = out.layout.address
    packed = _pack3(out.address, made, a.address, left.address, b.address, right.address)
    status = _step(op_id, packed, 3, _NO_PARAMS)
    if status:
        raise _refusal(op_id, status, a, b)
    return out


def _compare(record: op.Compare, views: Views) -> View:
    a, b = views
    left, right = _met(record.kind.value, a.layout, b.layout)
    out = new_view(DType.BOOL, left.shape)
    made = out.layout.address
    packed = _pack3(out.address, made, a.address, left.address, b.address, right.address)
    op_id = _COMPARE[record.kind]
    status = _step(op_id, packed, 3, _NO_PARAMS)
    if status:
        raise _refusal(op_id, status, a, b)
    return out


def _where(record: op.Where, views: Views) -> View:
    condition, a, b = views
    if condition.dtype not in (DType.BOOL, DType.U8):
        raise DTypeError("where", "a bool or u8 condition", condition.dtype)
    if a.dtype is not b.dtype:
        raise DTypeError("where", f"branches of one dtype ({a.dtype})", b.dtype)
    shape = broadcast("where", a.layout.shape, b.layout.shape)
    shape = broadcast("where", shape, condition.layout.shape)
    out = new_view(a.dtype, shape)
    call(_WHERE, [out, *(expanded("where", v, shape) for v in views)])
    return out


def cast(x: View, dtype: DType) -> View:
    """A row-major copy as another dtype; blocks are dequantised, panels laid out as rows."""
    if dtype.is_block:
        raise DTypeError("to_dtype", "a plain dtype", dtype, "quantize() makes blocks")
    if x.dtype is DType.F32X16:
        x = _unpacked(x)
    out = new_view(dtype, x.layout.shape)
    call(_COPY, [out, x])
    return out


def _unpacked(x: View) -> View:
    """Panels [rows/16][k][16] as a view of the padded rows in f32, cut to the rows there are."""
    n, k = x.layout.shape
    panels = View(x.storage, x.offset, Layout.of(DType.F32, (-(-n // 16), 16, k), (16 * k, 1, 16)))
    return contiguous(panels).with_layout((n, k), None)


def _cast(record: op.Cast, views: Views) -> View:
    return cast(views[0], record.dtype)


# -- reduce and rows -------------------------------------------------------------------------------


def permuted(view: View, axes: Shape) -> View:
    """Axes in another order."""
    layout = view.layout
    shape, strides = layout.shape, layout.strides
    return view.with_layout(
        tuple(map(shape.__getitem__, axes)), tuple(map(strides.__getitem__, axes))
    )


_EVERY_AXIS = [tuple(range(rank)) for rank in range(9)]


def _reduced_dtype(kind: ReduceKind, dtype: DType) -> DType:
    if kind in op.PLACES:
        return DType.I64
    if dtype.is_float:
        return dtype
    if kind in op.OF_FLOATS:
        raise DTypeError(kind.value, "a float dtype", dtype, "to_dtype() casts")
    return DType.I64 if kind is ReduceKind.SUM else dtype


def _reduce(record: op.Reduce, views: Views) -> View:
    (x,) = views
    layout, kind, axes = x.layout, record.kind, record.axes
    shape, every = layout.shape, _EVERY_AXIS[layout.rank]
    if kind not in op.OF_NOTHING and 0 in [shape[a] for a in axes]:
        raise ShapeError(kind.value, "at least one element along the axes", list(shape))
    kept = tuple([a for a in every if a not in axes]) if axes != every else ()
    out = new_view(_reduced_dtype(kind, layout.dtype), tuple([shape[a] for a in kept]))
    moved = x if kept + axes == every else permuted(x, kept + axes)
    call(_REDUCE[kind], (out, moved), params(len(axes), record.correction))
    if not record.keepdim:
        return out
    return out.with_layout(tuple([1 if a in axes else n for a, n in enumerate(shape)]), None)


def _cumsum(record: op.CumSum, views: Views) -> View:
    (x,) = views
    _require_plain("cumsum", x)
    out = new_view(x.dtype if x.dtype.is_float else DType.I64, x.layout.shape)
    call(_CUMSUM, [out, x], params(record.axis))
    return out


def _require_plain(name: str, x: View) -> None:
    if x.layout.dtype.is_block:
        raise DTypeError(name, "a plain dtype", x.layout.dtype, "dequantize() first")


def _require_float(name: str, x: View) -> None:
    if not x.layout.dtype.is_float:
        raise DTypeError(name, "a float dtype", x.dtype, "to_dtype() casts")


def _require_rank(name: str, x: View, least: int) -> None:
    if x.layout.rank < least:
        raise ShapeError(name, f"at least {least} axes", list(x.layout.shape))


def _softmax(record: op.Softmax, views: Views) -> View:
    (x,) = views
    _require_float("softmax", x)
    _require_rank("softmax", x, 1)
    out = new_view(x.dtype, x.layout.shape)
    call(_LOG_SOFTMAX if record.log else _SOFTMAX, [out, x])
    return out


def _norm(name: str, op_id: int, epsilon: float, views: Views) -> View:
    x = views[0]
    _require_float(name, x)
    _require_rank(name, x, 1)
    width = x.layout.shape[-1]
    for w in views[1:]:
        if w.layout.shape != (width,):
            raise ShapeError(name, f"weight and bias of [{width}]", list(w.layout.shape))
        if w.dtype is not x.dtype and w.dtype is not DType.F32:
            raise DTypeError(name, f"weight and bias of {x.dtype} or f32", w.dtype)
    out = new_view(x.dtype, x.layout.shape)
    call(op_id, [out, *views], params(f=(epsilon,)))
    return out


def _layer_norm(record: op.LayerNorm, views: Views) -> View:
    return _norm("layer_norm", _LAYER_NORM, record.epsilon, views)


def _rms_norm(record: op.RmsNorm, views: Views) -> View:
    return _norm("rms_norm", _RMS_NORM, record.epsilon, views)


def _topk(record: op.TopK, views: Views) -> Views:
    (x,) = views
    _require_rank("topk", x, 1)
    shape, k = x.layout.shape, record.k
    if not 0 <= k <= shape[-1]:
        raise OptionError("topk", f"k in [0, {shape[-1]}]", k)
    values, indices = new_view(x.dtype, (*shape[:-1], k)), new_view(DType.I64, (*shape[:-1], k))
    call(_TOPK, [values, indices, x], params(k))
    return values, indices


def _sort(record: op.Sort, views: Views) -> Views:
    (x,) = views
    _require_plain("sort", x)
    _require_rank("sort", x, 1)
    values, indices = (new_view(dtype, x.layout.shape) for dtype in (x.dtype, DType.I64))
    call(_SORT, [values, indices, x], params(int(record.descending)))
    return values, indices


# -- products --------------------------------------------------------------------------------------


def check_matmul(a: Shape, b: Shape) -> None:
    """Raises ShapeError unless a @ b is legal: 1-D vectors, equal batch axes, or one matrix b.

    Batch axes are never broadcast; the error says how to expand the operand that lacks them.
    """
    if not a or not b:
        wanted, mend = "vectors or matrices", ""
    elif a[-1] != b[-2:][0]:
        wanted, mend = f"{a[-1]} rows on the right", ""
    elif len(b) > 2 and a[:-2] != b[:-2]:
        wanted, mend = "equal batch axes", _mend_batch(a, b)
    else:
        return
    raise ShapeError("matmul", wanted, f"{list(a)} @ {list(b)}", mend)


def _mend_batch(a: Shape, b: Shape) -> str:
    """What to write to give two operands one batch, where that can be done."""
    left, right = ((1,) * (2 - len(s)) + s for s in (a, b))
    try:
        batch = broadcast("matmul", left[:-2], right[:-2])
    except ShapeError:
        return "batch axes are never broadcast, and these cannot be"
    said = []
    for name, given, shape in (("left", a, left), ("right", b, right)):
        if shape[:-2] != batch:
            new = ".unsqueeze(0)" * (len(batch) + 2 - len(given))
            said.append(f"{name}{new}.expand({[*batch, *shape[-2:]]})")
    return f"batch axes are never broadcast: {' and '.join(said)}"


def _matmul(record: op.MatMul, views: Views) -> View:
    a, b = views
    left, right = a.layout.shape, b.layout.shape
    if a.dtype is not b.dtype:
        raise DTypeError("matmul", f"operands of one dtype ({a.dtype})", b.dtype)
    _require_rank("matmul", a, 2)
    _require_rank("matmul", b, 2)
    check_matmul(left, right)
    if left[:-2] != right[:-2]:
        raise ShapeError("matmul", "equal batch axes", f"{list(left)} @ {list(right)}")
    out = new_view(a.dtype, (*left[:-1], right[-1]))
    call(_MATMUL, [out, a, b])
    return out


def flattened_rows(x: View) -> View:
    """[.., k] as [m, k]; a copy where strides do not allow a view."""
    shape = x.layout.shape
    rows = (count_of(shape[:-1]), shape[-1])
    if x.layout.contiguous:
        return x.with_layout(rows, None)
    strides = reshape_strides(shape, x.layout.strides, rows)
    return x.with_layout(rows, strides) if strides else contiguous(x).with_layout(rows, None)


def _linear(record: op.Linear, views: Views) -> View:
    x, w = views[0], views[1]
    bias = views[2] if len(views) > 2 else None
    _require_float("linear", x)
    _require_rank("linear", x, 1)
    shape, (n, k) = x.layout.shape, _rank2("linear", w)
    if shape[-1] != k:
        raise ShapeError("linear", f"{k} columns for a weight of [{n}, {k}]", list(shape))
    if bias is not None and bias.layout.shape != (n,):
        raise ShapeError("linear", f"a bias of [{n}]", list(bias.layout.shape))
    if x.dtype is DType.F64:
        return _linear_f64(record.activation, x, w, bias)
    out = new_view(x.dtype, (*shape[:-1], n))
    flat = out if len(shape) == 2 else out.with_layout((count_of(shape[:-1]), n), None)
    given = _LINEAR_PARAMS[record.activation, bool(record.exact)]
    rows = x if len(shape) == 2 else flattened_rows(x)
    if bias is None:
        call(_LINEAR, (flat, rows, w), given)
        return out
    ends = (bias.address, bias.layout.address)
    middle = (rows.address, rows.layout.address, w.address, w.layout.address)
    status = _step(_LINEAR, _packs[4](flat.address, flat.layout.address, *middle, *ends), 4, given)
    if status:
        raise _refusal(_LINEAR, status, flat, rows, w, bias)
    return out


def _linear_f64(activation: op.Activation, x: View, w: View, bias: View | None) -> View:
    """The same in double precision, of its three parts: there is no fused kernel for it."""
    if w.dtype is not DType.F64 or (bias is not None and bias.dtype is not DType.F64):
        raise DTypeError("linear", "a weight and bias of f64, as x", w.dtype, "to_dtype() casts")
    rows = flattened_rows(x)
    out = new_view(DType.F64, (rows.layout.shape[0], w.layout.shape[0]))
    call(_MATMUL, [out, rows, permuted(w, (1, 0))])
    if bias is not None:
        call(_BINARY[op.BinaryKind.ADD], [out, out, expanded("linear", bias, out.layout.shape)])
    kind = op.ACTIVATION_KIND.get(activation)
    if kind is not None:
        call(_UNARY[kind], [out, out])
    return out.with_layout((*x.layout.shape[:-1], w.layout.shape[0]), None)


def _linear_grad(record: op.LinearGrad, views: Views) -> Views:
    g, x, w = views
    of_g, of_x, of_w = g.layout, x.layout, w.layout
    name, (n, k) = "linear_grad", _rank2("linear_grad", w)
    if of_x.shape[-1:] != (k,) or of_g.shape != (*of_x.shape[:-1], n):
        wanted = f"a gradient [.., {n}] and rows [.., {k}]"
        raise ShapeError(name, wanted, [list(of_g.shape), list(of_x.shape)])
    if not of_g.dtype is of_x.dtype is of_w.dtype is DType.F32:
        raise DTypeError(name, "f32", [g.dtype, x.dtype, w.dtype], "to_dtype() casts")
    gx = new_like(x.layout) if record.of_x else None
    gw = new_like(w.layout) if record.of_w else None
    gb = new_view(DType.F32, (n,)) if record.of_bias else None
    rows = gx
    if x.layout.rank != 2:
        rows = gx and gx.with_layout((count_of(x.layout.shape[:-1]), k), None)
        g, x = flattened_rows(g), flattened_rows(x)
    call(_LINEAR_GRAD, (rows, gw, gb, g, x, w))
    return tuple([v for v in (gx, gw, gb) if v is not None])


def _rank2(name: str, w: View) -> tuple[int, int]:
    if w.layout.rank != 2:
        raise ShapeError(name, "a matrix", list(w.layout.shape))
    return w.layout.shape[0], w.layout.shape[1]


def _attention_shapes(q: Shape, k: Shape, v: Shape) -> None:
    if len(q) != 4 or len(k) != 4 or len(v) != 4:
        raise ShapeError("attention", "q, k, v of 4 axes", [list(q), list(k), list(v)])
    if k[0] != q[0] or v[:3] != k[:3] or k[3] != q[3]:
        raise ShapeError("attention", f"k and v that fit q {list(q)}", [list(k), list(v)])
    if k[2] == 0 or q[2] % k[2]:
        raise ShapeError("attention", f"heads of q a multiple of {k[2]}", q[2])


def _attention(record: op.Attention, views: Views) -> View:
    q, k, v = views[:3]
    lengths = views[3] if len(views) > 3 else None
    _attention_shapes(q.layout.shape, k.layout.shape, v.layout.shape)
    batch = q.layout.shape[0]
    if lengths is not None and lengths.layout.shape != (batch,):
        raise ShapeError("attention", f"lengths of [{batch}]", list(lengths.layout.shape))
    out = new_view(q.dtype, (*q.layout.shape[:3], v.layout.shape[3]))
    ints = (int(record.causal), record.position, record.window)
    call(_ATTENTION, [out, q, k, v, lengths], params(*ints, f=(record.scale, record.softcap)))
    return out


def _nearest(record: op.Nearest, views: Views) -> Views:
    queries, vectors = views[:2]
    mask = views[2] if len(views) > 2 else None
    (m, d), (n, width) = _rank2("nearest", queries), _rank2("nearest", vectors)
    if d != width:
        raise ShapeError("nearest", f"vectors of width {d}", [n, width])
    if record.k < 0:
        raise OptionError("nearest", "k of 0 or more", record.k)
    if mask is not None and mask.layout.shape != (n,):
        raise ShapeError("nearest", f"a mask of [{n}]", list(mask.layout.shape))
    scores, rows = new_view(DType.F32, (m, record.k)), new_view(DType.I64, (m, record.k))
    call(_NEAREST, [scores, rows, queries, vectors, mask], params(record.k))
    return scores, rows


# -- movement --------------------------------------------------------------------------------------


def contiguous(x: View) -> View:
    """A row-major copy."""
    if x.dtype.is_block:
        return aligned(x)
    out = new_view(x.dtype, x.layout.shape)
    call(_COPY, [out, x])
    return out


def aligned(x: View) -> View:
    """A copy of a contiguous view in memory of its own."""
    out = new_view(x.dtype, x.layout.shape)
    out.bytes()[:] = x.bytes()
    return out


def copy_into(target: View, source: View) -> None:
    """In place: `source` into `target`, of equal shapes; counts as a change of the storage.

    Raises OptionError for read-only memory, and where elements of the target are repeated.
    """
    layout = target.layout
    if layout.shape != source.layout.shape:
        raise ShapeError("copy_into", list(layout.shape), list(source.layout.shape))
    if not target.storage.writable:
        raise OptionError("copy_into", "writable memory", "a read-only map or buffer")
    if any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True)):
        raise OptionError("copy_into", "a target without repeated elements", layout, "copy() it")
    if source.storage is target.storage:
        source = contiguous(source)  # they may overlap
    call(_COPY, [target, source])
    target.storage.mark_changed()


def _reshape(record: op.Reshape, views: Views) -> View:
    (x,) = views
    layout = x.layout
    _require_plain("reshape", x)
    if layout.contiguous:
        return x.with_layout(record.shape, None)
    strides = reshape_strides(layout.shape, layout.strides, record.shape)
    if strides is not None and layout.count:
        return x.with_layout(record.shape, strides)
    return contiguous(x).with_layout(record.shape, None)


def _permute(record: op.Permute, views: Views) -> View:
    _require_plain("permute", views[0])
    return permuted(views[0], record.axes)


def _expand(record: op.Expand, views: Views) -> View:
    _require_plain("expand", views[0])
    return expanded("expand", views[0], record.shape)


def _slice(record: op.Slice, views: Views) -> View:
    (x,) = views
    layout = x.layout
    axis, start, length, step = record.axis, record.start, record.length, record.step
    shape, strides = layout.shape, layout.strides
    n, last = shape[axis], start + (length - 1) * step
    if not (0 <= start < n and 0 <= last < n and length > 0) and (length or not 0 <= start <= n):
        wanted = f"elements within [0, {n}) of axis {axis}"
        raise RangeError("slice", wanted, f"{length} from {start} by {step}")
    if layout.dtype.is_block:
        return _slice_rows(record, x)
    stride = strides[axis]
    sizes, steps = [*shape], [*strides]
    sizes[axis], steps[axis] = length, stride * step
    return x.with_layout(tuple(sizes), tuple(steps), stride * start if length else 0)


def _slice_rows(record: op.Slice, x: View) -> View:
    """Rows of a block weight; its last axis stays whole, and panels are not cut."""
    layout = x.layout
    if record.axis != 0 or record.step != 1 or layout.dtype is DType.F32X16:
        raise DTypeError("slice", "whole rows by step 1 of a GGUF block type", layout.dtype)
    shape = (record.length, *layout.shape[1:])
    offset = x.offset + layout.dtype.nbytes(layout.strides[0] * record.start)
    return View(x.storage, offset, Layout.of(layout.dtype, shape, layout.strides))


def _contiguous(record: op.Contiguous, views: Views) -> View:
    return contiguous(views[0])


def _cat(record: op.Cat, views: Views) -> View:
    first, axis = views[0].layout, record.axis
    total = 0
    for v in views:
        shape = v.layout.shape
        same = shape[:axis] + shape[axis + 1 :] == first.shape[:axis] + first.shape[axis + 1 :]
        if len(shape) != first.rank or not same or v.dtype is not first.dtype:
            wanted = f"{first.dtype}{list(first.shape)} but for axis {axis}"
            raise ShapeError("cat", wanted, f"{v.dtype}{list(shape)}")
        total += shape[axis]
    out = new_view(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))
    start, strides = 0, out.layout.strides
    for v in views:
        if v.layout.count:
            call(_COPY, [out.with_layout(v.layout.shape, strides, start * strides[axis]), v])
        start += v.layout.shape[axis]
    return out


def _pad(record: op.Pad, views: Views) -> View:
    (x,) = views
    before, after, shape = record.before, record.after, x.layout.shape
    if not len(before) == len(after) == len(shape) or min((*before, *after), default=0) < 0:
        wanted = f"margins of 0 or more on each of {len(shape)} axes"
        raise OptionError("pad", wanted, list(zip(before, after, strict=False)))
    sizes = [b + n + a for b, n, a in zip(before, shape, after, strict=True)]
    out = creation.fill(x.dtype, as_shape("pad", sizes), record.value)
    strides = out.layout.strides
    start = sum(b * s for b, s in zip(before, strides, strict=True))
    if x.layout.count:
        call(_COPY, [out.with_layout(shape, strides, start), x])
    return out


# -- indices ---------------------------------------------------------------------------------------


def _require_index(name: str, indices: View) -> None:
    if indices.dtype not in _INDEX_TYPES:
        raise DTypeError(name, "indices of i64, i32 or u32", indices.dtype)


def _take(record: op.Take, views: Views) -> View:
    table, indices = views
    _require_index("take", indices)
    _require_rank("take", table, 1)
    dtype = DType.F32 if table.dtype.is_block else table.dtype
    out = new_view(dtype, (*indices.layout.shape, *table.layout.shape[1:]))
    call(_TAKE, [out, table, indices])
    return out


def _index_add(record: op.IndexAdd, views: Views) -> View:
    x, src, indices = views
    _require_index("index_add", indices)
    if src.layout.shape != (*indices.layout.shape, *x.layout.shape[1:]) or indices.layout.rank != 1:
        wanted = f"src of [{indices.layout.count}, ...{list(x.layout.shape[1:])}]"
        raise ShapeError("index_add", wanted, list(src.layout.shape))
    _require_plain("index_add", x)
    wide = _sums_dtype(x.dtype)
    out = cast(x, wide)
    call(_INDEX_ADD, [out, src, indices])
    return out if wide is x.dtype else cast(out, x.dtype)


def _sums_dtype(dtype: DType) -> DType:
    """In what elements are added: half precision in f32."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def _gather(record: op.Gather, views: Views) -> View:
    x, indices = views
    _require_index("gather", indices)
    a, b, axis = x.layout.shape, indices.layout.shape, record.axis
    if len(a) != len(b) or a[:axis] + a[axis + 1 :] != b[:axis] + b[axis + 1 :]:
        raise ShapeError("gather", f"indices of {list(a)} but for axis {axis}", list(b))
    out = new_view(x.dtype, b)
    call(_GATHER, [out, x, indices], params(axis))
    return out


def _scatter_add(record: op.ScatterAdd, views: Views) -> View:
    x, src, indices = views
    _require_index("scatter_add", indices)
    if src.layout.shape != indices.layout.shape:
        raise ShapeError("scatter_add", f"src of {list(indices.layout.shape)}", src.layout.shape)
    _require_plain("scatter_add", x)
    wide = _sums_dtype(x.dtype)
    if wide is not x.dtype:
        src = cast(src, wide)
    out = cast(x, wide)
    call(_SCATTER_ADD, [out, src, indices], params(record.axis))
    return out if wide is x.dtype else cast(out, x.dtype)


def _rope(record: op.Rope, views: Views) -> View:
    x, positions = views[:2]
    factors = views[2] if len(views) > 2 else None
    _require_rank("rope", x, 3)
    shape = x.layout.shape
    if positions.layout.shape != shape[-3:-2] or positions.dtype is not DType.I32:
        raise ShapeError("rope", f"positions i32 [{shape[-3]}]", positions.layout)
    if record.width % 2 or not 0 <= record.width <= shape[-1]:
        raise OptionError("rope", f"an even width of at most {shape[-1]}", record.width)
    out = new_view(x.dtype, shape)
    given = params(record.width, int(record.neox), f=(record.base, record.scale))
    call(_ROPE, [out, x, positions, factors], given)
    return out


def _pack(record: op.Pack, views: Views) -> View:
    (w,) = views
    out = new_view(DType.F32X16, _rank2("pack", w))
    call(_PACK, [out, w])
    return out


def _checkpoint(record: op.Checkpoint, views: Views) -> View:
    made: View = record.made
    return made


_WHERE, _COPY, _PACK = map(_native.op_id, ("where", "copy", "pack"))
_SOFTMAX, _LOG_SOFTMAX = map(_native.op_id, ("softmax", "log_softmax"))
_LAYER_NORM, _RMS_NORM = map(_native.op_id, ("layer_norm", "rms_norm"))
_CUMSUM, _TOPK, _SORT = map(_native.op_id, ("cumsum", "topk", "sort"))
_MATMUL, _LINEAR = map(_native.op_id, ("matmul", "linear"))
_LINEAR_PARAMS = {(a, e): params(a.value, e) for a in op.Activation for e in (False, True)}
_RELU_GRAD, _LINEAR_GRAD = map(_native.op_id, ("relu_grad", "linear_grad"))
_ATTENTION, _NEAREST, _ROPE = map(_native.op_id, ("attention", "nearest", "rope"))
_TAKE, _INDEX_ADD = map(_native.op_id, ("take", "index_add"))
_GATHER, _SCATTER_ADD = map(_native.op_id, ("gather", "scatter_add"))

RUNNERS: dict[type, Runner] = {
    op.Unary: unary,
    op.ReluGrad: _relu_grad,
    op.Binary: binary,
    op.Compare: _compare,
    op.Where: _where,
    op.Cast: _cast,
    op.Reduce: _reduce,
    op.CumSum: _cumsum,
    op.Softmax: _softmax,
    op.LayerNorm: _layer_norm,
    op.RmsNorm: _rms_norm,
    op.TopK: _topk,
    op.Sort: _sort,
    op.MatMul: _matmul,
    op.Linear: _linear,
    op.LinearGrad: _linear_grad,
    op.Attention: _attention,
    op.Nearest: _nearest,
    op.Reshape: _reshape,
    op.Permute: _permute,
    op.Expand: _expand,
    op.Slice: _slice,
    op.Contiguous: _contiguous,
    op.Cat: _cat,
    op.Pad: _pad,
    op.Take: _take,
    op.IndexAdd: _index_add,
    op.Gather: _gather,
    op.ScatterAdd: _scatter_add,
    op.Rope: _rope,
    op.Pack: _pack,
    op.Checkpoint: _checkpoint,
    **images.RUNNERS,
    **losses.RUNNERS,
}
