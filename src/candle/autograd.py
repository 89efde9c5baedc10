"""Backward: walk the records in topological order, match each to its rule, accumulate.

Works on values through their own methods and never imports Tensor, so it runs on any device and
its results can be differentiated again. Iterative throughout: a chain of a million records is fine.

A value has `.op` (its record or None), `.tracked`, `.shape`, `.dtype` and the methods of Tensor.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from itertools import accumulate
from operator import attrgetter
from typing import Any

from . import anomaly, attending, op
from .dtype import DType
from .errors import GradientError
from .op import BinaryKind as B
from .op import ReduceKind as R
from .op import UnaryKind as U

Value = Any
Grads = tuple[Value | None, ...]


class _State(threading.local):
    def __init__(self) -> None:
        self.enabled = True
        self.before: list[bool] = []


_state = _State()


def recording() -> bool:
    """Whether records are kept on this thread."""
    return _state.enabled


class no_grad:
    """Context in which no record is kept: `with no_grad(): ...`. One a thread; may be nested."""

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        _state.before.append(_state.enabled)
        _state.enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        _state.enabled = _state.before.pop()


class Freed:
    """Stands for a record that backward has used up."""

    inputs: tuple[()] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Freed({self.name})"


_by_id = attrgetter("id")  # inputs were made before outputs
_LINEAR_GRAD = op.LinearGrad
_REFUSED = {Freed, *op.NOT_DIFFERENTIABLE}
_FREED = {kind: Freed(kind.__name__) for kind in op.RECORDS}


def topological(root: Value) -> list[Value]:
    """Tracked values that `root` depends on, inputs before outputs, as they were made. Iterative.

    Raises GradientError, before anything is changed, for what backward could not go through.
    """
    found = {id(root): root}
    stack = [root]
    while stack:
        value = stack.pop()
        record = value.op
        if record is None:
            continue
        if type(record) in _REFUSED:
            raise _refusal(record)
        seen = value.seen
        for x in record.inputs:
            if x.data.storage.changed > seen:
                what, got = f"inputs as {op.describe(record)} saw them", "others"
                raise GradientError("backward", what, got, "changed in place since; copy it first")
            if x.tracked and id(x) not in found:
                found[id(x)] = x
                stack.append(x)
    return sorted(found.values(), key=_by_id)


def _refusal(record: Any) -> GradientError:
    if isinstance(record, Freed):
        remedy = "run the forward pass again, or backward(retain_graph=True) the first time"
        return GradientError("backward", "a graph that was not used up", record.name, remedy)
    why = op.NOT_DIFFERENTIABLE[type(record)]
    wanted = "an operation with a gradient"
    return GradientError("backward", wanted, op.describe(record), why)


def backward(
    root: Value, seed: Value, retain_graph: bool = False, create_graph: bool = False
) -> list[tuple[Value, Value]]:
    """(value, gradient) of every leaf and retained value that `root` depends on.

    Frees records as it goes unless `retain_graph`; keeps records of the gradients themselves only
    where `create_graph`. Raises GradientError for an operation without a gradient, a used-up graph,
    or an input that was changed in place since the record saw it.
    """
    order = topological(root)
    grads: dict[int, Value] = {id(root): seed}
    masked: set[int] = set()  # values whose gradient has zeros put in by a Where
    found: list[tuple[Value, Value]] = []
    with no_grad(create_graph), anomaly.quiet():
        while order:
            value = order.pop()
            grad, is_masked = grads.pop(id(value), None), id(value) in masked
            record = value.op
            if grad is not None and value.keeps_grad:
                found.append((value, grad))
            if record is None:
                continue
            match record:
                case _ if grad is None:
                    pass
                case op.Checkpoint():
                    again, order = _computed_again(record, value, order)
                    _add_all(grads, (again,), (grad,))
                    masked = {id(v) for v in order if id(v) in masked}  # ids come again
                    if is_masked:
                        masked.add(id(again))
                case _:
                    given = gradient(record, value, grad, is_masked)
                    if anomaly.watching:
                        anomaly.check_gradients(value, record, grad, given)
                    _add_all(grads, record.inputs, given)
                    if is_masked or type(record) is op.Where:
                        masked.update(id(x) for x in record.inputs)
            if not retain_graph and not create_graph:
                value.op = _FREED[type(record)]
    return found


def _computed_again(
    record: op.Checkpoint, out: Value, order: list[Value]
) -> tuple[Value, list[Value]]:
    """A checkpoint's result with a graph, and the walk that is left with this graph put in."""
    with no_grad(True):
        again = record.function(*record.inputs)
    if again.shape != out.shape or again.dtype is not out.dtype:
        wanted, got = (f"{x.dtype}{list(x.shape)}" for x in (out, again))
        raise GradientError("backward", f"a checkpoint that makes {wanted} again", got)
    if not again.tracked:
        return again, order
    inner = topological(again)
    for value in inner:
        for x in value.op.inputs if value.op is not None and value.id > out.id else ():
            if x.id < out.id and x.data.storage.changed > out.seen:
                what = "values as the checkpoint saw them"
                raise GradientError("backward", what, op.describe(value.op), "changed in place")
    found = {id(v): v for v in (*order, *inner)}
    return again, sorted(found.values(), key=_by_id)


def _add_all(grads: dict[int, Value], inputs: Iterable[Value], given: Grads) -> None:
    for x, g in zip(inputs, given, strict=True):
        if g is None or not x.tracked:
            continue
        if g.data.layout.dtype is not x.data.layout.dtype:
            g = g.to_dtype(x.dtype)
        key = id(x)
        before = grads.get(key)
        grads[key] = g if before is None else before.add(g)


def gradient(record: Any, out: Value, grad: Value, masked: bool = False) -> Grads:
    """Gradients of a record's inputs, from that of its output.

    `masked`: a zero in `grad` says that a Where did not choose this element, so it stays zero even
    where the slope is infinite or NaN. Raises GradientError for a record without a rule.
    """
    match record:
        case op.MatMul() | op.Linear():
            return _product(record, grad)
        case op.Unary(inputs=(x,), kind=kind):
            return (_stopped(masked, grad, _unary(kind, x, out, grad)),)
        case op.Binary(inputs=(a, b), kind=kind):
            left, right = (_stopped(masked, grad, g) for g in _binary(kind, a, b, out, grad))
            return _fit(left, a), _fit(right, b)
        case op.ReluGrad(inputs=(_, x)):
            return grad.apply(op.ReluGrad((grad, x))), None
        case op.Where() | op.Cast():
            return _choice(record, grad)
        case op.Reduce(inputs=(x,)):
            return (_reduce(record, x, out, grad),)
        case op.CumSum(axis=axis):
            return (grad.flip(axis).cumsum(axis).flip(axis),)
        case op.TopK() | op.Sort():
            return (_ranked(record, _wide(grad)),)
        case op.Softmax() | op.LayerNorm() | op.RmsNorm():
            return _rows(record, _wide(out), _wide(grad))
        case op.Attention(inputs=(q, k, v, *_)):
            return attending.gradients(record, _wide(q), _wide(k), _wide(v), _wide(grad))
        case op.CrossEntropy():
            return _cross_entropy(record, grad)
        case op.Conv2d() | op.ConvTranspose2d() | op.Conv2dWeight():
            return _convolution(record, grad)
        case op.MaxPool2d() | op.MaxUnpool2d() | op.AvgPool2d() | op.AvgUnpool2d():
            return _pooling(record, grad)
        case op.Resize2d(inputs=(x,), how=how):
            return (grad.apply(op.Unresize2d((grad,), x.shape[2:], how)),)
        case op.Unresize2d(inputs=(x,), how=how):
            return (grad.apply(op.Resize2d((grad,), x.shape[2:], how)),)
        case op.Reshape() | op.Permute() | op.Expand() | op.Slice() | op.Contiguous():
            return _movement(record, grad)
        case op.Cat() | op.Pad():
            return _joined(record, grad)
        case op.Take() | op.IndexAdd() | op.Gather() | op.ScatterAdd():
            return _indices(record, _wide(grad))
        case op.Rope():
            return _rope(record, grad)
    raise GradientError("backward", "an operation with a gradient", op.describe(record))


def _stopped(masked: bool, grad: Value, given: Value | None) -> Value | None:
    """The gradient of an elementwise input, with zeros where that of the output is masked out."""
    if given is None or not masked:
        return given
    return grad.eq(0.0).where_cond(0.0, given)


def _wide(x: Value) -> Value:
    """Half precision as f32, in which sums are kept; the result is cast to the input's dtype."""
    return x.to_dtype(DType.F32) if x.dtype in (DType.F16, DType.BF16) else x


def _fit(grad: Value | None, x: Value) -> Value | None:
    """Sums a gradient over the axes along which `x` was broadcast."""
    if grad is None or grad.shape == x.shape:
        return grad
    extra = len(grad.shape) - len(x.shape)
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(x.shape) if n == 1 and grad.shape[i + extra] != 1]
    return grad.sum(axes).reshape(x.shape)


# -- elementwise -----------------------------------------------------------------------------------


def _unary(kind: U, x: Value, out: Value, g: Value) -> Value:
    match kind:
        case U.RELU:
            return g.apply(op.ReluGrad((g, x)))
        case U.NEG:
            return g.neg()
        case U.ABS:
            return g.mul(x.sign())
        case U.SIGN | U.FLOOR | U.CEIL | U.ROUND:
            return g.mul(0.0)
        case U.SQR:
            return g.mul(x).mul(2.0)
        case U.SQRT:
            return g.div(out.mul(2.0))
        case U.RSQRT:
            return g.mul(out.mul(out.sqr())).mul(-0.5)
        case U.RECIP:
            return g.mul(out.sqr()).neg()
        case U.EXP:
            return g.mul(out)
        case U.LOG:
            return g.div(x)
        case _:
            return _smooth(kind, x, out, g)


def _smooth(kind: U, x: Value, out: Value, g: Value) -> Value:
    match kind:
        case U.SIN:
            return g.mul(x.cos())
        case U.COS:
            return g.mul(x.sin()).neg()
        case U.TANH:
            return g.mul(out.sqr().neg().add(1.0))
        case U.ERF:
            return g.mul(x.sqr().neg().exp()).mul(1.1283791670955126)
        case U.SIGMOID:
            return g.mul(out.mul(out.neg().add(1.0)))
        case U.GELU:
            return g.mul(_gelu_slope(x))
        case U.GELU_TANH:
            return g.mul(_gelu_tanh_slope(x))
        case U.SILU:
            s = x.sigmoid()
            return g.mul(s.mul(x.mul(s.neg().add(1.0)).add(1.0)))
    raise GradientError("backward", "a kind with a rule", kind)


def _gelu_slope(x: Value) -> Value:
    """d/dx of x Phi(x): Phi(x) + x phi(x)."""
    cdf = x.mul(0.7071067811865476).erf().add(1.0).mul(0.5)
    return cdf.add(x.mul(x.sqr().mul(-0.5).exp()).mul(0.3989422804014327))


def _gelu_tanh_slope(x: Value) -> Value:
    """d/dx of x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3). Beyond 40 it is 0 or 1."""
    x = x.maximum(-40.0).minimum(40.0)  # x^3 of a far one is infinite, and times 0 NaN
    c = 0.7978845608028654
    t = x.add(x.mul(x.sqr()).mul(0.044715)).mul(c).tanh()
    du = x.sqr().mul(3 * 0.044715).add(1.0).mul(c)
    return t.add(1.0).mul(0.5).add(x.mul(t.sqr().neg().add(1.0)).mul(du).mul(0.5))


def _binary(kind: B, a: Value, b: Value, out: Value, g: Value) -> Grads:
    match kind:
        case B.ADD:
            return g, g
        case B.SUB:
            return g, g.neg()
        case B.MUL:
            return (g.mul(b) if a.tracked else None), (g.mul(a) if b.tracked else None)
        case B.DIV:
            return g.div(b), (g.mul(out).div(b).neg() if b.tracked else None)
        case B.FLOOR_DIV:
            return None, None  # steps: flat wherever there is a slope
        case B.REM:
            return g, (g.mul(a.floor_div(b)).neg() if b.tracked else None)
        case B.POW:
            return _pow(a, b, out, g)
        case B.MAXIMUM | B.MINIMUM:
            return _extreme(kind, a, b, g)


def _pow(a: Value, b: Value, out: Value, g: Value) -> Grads:
    """b a^(b-1), which is 0 where b is, and a^b log(a), which is 0 where a is 0 and b not below."""
    left, right = None, None
    if a.tracked:
        left = b.eq(0.0).where_cond(0.0, g.mul(b).mul(a.pow(b.sub(1.0))))
    if b.tracked:
        flat = a.eq(0.0).mul(b.ge(0.0))
        right = flat.where_cond(0.0, g.mul(out).mul(a.log()))
    return left, right


def _extreme(kind: B, a: Value, b: Value, g: Value) -> Grads:
    """The chosen operand takes the gradient; equal ones share it by halves."""
    wins = a.gt(b) if kind is B.MAXIMUM else a.lt(b)
    share = wins.to_dtype(g.dtype).add(a.eq(b).to_dtype(g.dtype).mul(0.5))
    return g.mul(share), g.mul(share.neg().add(1.0))


def _choice(record: Any, g: Value) -> Grads:
    match record:
        case op.Where(inputs=(condition, a, b)):
            left = condition.where_cond(g, 0.0) if a.tracked else None
            right = condition.where_cond(0.0, g) if b.tracked else None
            return None, _fit(left, a), _fit(right, b)
        case op.Cast(inputs=(x,)):
            return (g.to_dtype(x.dtype),)
    raise GradientError("backward", "where or cast", op.describe(record))


# -- reduce and rows -------------------------------------------------------------------------------


def _kept(record: op.Reduce, x: Value, value: Value) -> Value:
    """A reduced value with its axes back as length 1, then repeated to the shape of x."""
    shape = tuple(1 if i in record.axes else n for i, n in enumerate(x.shape))
    return value.reshape(shape).expand(x.shape)


def _reduce(record: op.Reduce, x: Value, out: Value, g: Value) -> Value | None:
    count = 1
    for a in record.axes:
        count *= x.shape[a]
    spread = _kept(record, x, g)
    match record.kind:
        case R.SUM:
            return spread
        case R.MEAN:
            return spread.mul(1.0 / count) if count else spread
        case R.MAX | R.MIN:
            chosen = x.eq(_kept(record, x, out)).to_dtype(g.dtype)
            ties = chosen.sum(record.axes, keepdim=True).expand(x.shape)
            return spread.mul(chosen.div(ties))
        case R.VAR:
            centred = x.sub(x.mean(record.axes, keepdim=True).expand(x.shape))
            divisor = count - record.correction
            return spread.mul(centred).mul(2.0 / divisor if divisor > 0 else math.nan)
    raise GradientError("backward", "an operation with a gradient", record.kind.value)


def _ranked(record: Any, g: Value) -> Value:
    """Each gradient back to the place its value came from; the places are found again."""
    (x,) = record.inputs
    last = len(x.shape) - 1
    fields = [getattr(record, name) for name in record.__match_args__[1:]]
    _, places = g.apply(type(record)((x.detach(),), *fields))
    return g.apply(op.ScatterAdd((x.zeros_like().to_dtype(g.dtype), g, places), last))


def _rows(record: Any, out: Value, g: Value) -> Grads:
    match record:
        case op.Softmax(log=True):
            return (g.sub(out.exp().mul(g.sum(-1, keepdim=True))),)
        case op.Softmax():
            return (out.mul(g.sub(g.mul(out).sum(-1, keepdim=True))),)
        case op.LayerNorm(inputs=(x, weight, bias), epsilon=epsilon):
            x = _wide(x)
            centred = x.sub(x.mean(-1, keepdim=True))
            return (*_norm(centred, weight, epsilon, g, True), _fit(g, bias))
        case op.RmsNorm(inputs=(x, weight), epsilon=epsilon):
            return _norm(_wide(x), weight, epsilon, g, False)
    raise GradientError("backward", "a row operation", op.describe(record))


def _norm(x: Value, weight: Value, epsilon: float, g: Value, centre: bool) -> Grads:
    """Gradients of weight * x / sqrt(mean(x^2) + epsilon); x is centred where `centre`."""
    inverse = x.sqr().mean(-1, keepdim=True).add(epsilon).rsqrt()
    unit = x.mul(inverse)
    gw = g.mul(weight)
    inner = gw.sub(unit.mul(gw.mul(unit).mean(-1, keepdim=True)))
    if centre:
        inner = inner.sub(gw.mean(-1, keepdim=True))
    return inner.mul(inverse), _fit(g.mul(unit), weight)


# -- products --------------------------------------------------------------------------------------


def _product(record: Any, g: Value) -> Grads:
    match record:
        case op.MatMul(inputs=(a, b)):
            left = g.matmul(b.transpose(-1, -2)) if a.tracked else None
            return left, (a.transpose(-1, -2).matmul(g) if b.tracked else None)
        case op.Linear(inputs=(x, w, *bias), activation=activation):
            if activation is not op.Activation.NONE:
                g = _through_activation(activation, x, w, bias, g)
            if recording() or not _all_f32(g, x, w):
                return _linear_by_parts(x, w.to_dtype(g.dtype), bias, g)
            return _linear_at_once(x, w, bias, g)
    raise GradientError("backward", "a product", op.describe(record))


def _all_f32(g: Value, x: Value, w: Value) -> bool:
    return g.data.layout.dtype is x.data.layout.dtype is w.data.layout.dtype is DType.F32


def _linear_by_parts(x: Value, w: Value, bias: list[Value], g: Value) -> Grads:
    n, k = w.shape
    rows = g.reshape((g.count // n if n else 0, n))
    gx = rows.matmul(w).reshape(x.shape) if x.tracked else None
    gw = rows.t().matmul(x.reshape((rows.shape[0], k))) if w.tracked else None
    return (gx, gw, *(rows.sum(0) for _ in bias))


def _linear_at_once(x: Value, w: Value, bias: list[Value], g: Value) -> Grads:
    of_x, of_w = x.tracked, w.tracked
    made: Grads = g.apply(_LINEAR_GRAD((g, x, w), of_x, of_w, len(bias) > 0))
    if not of_w:
        made = (*made[:of_x], None, *made[of_x:])
    return made if of_x else (None, *made)


def _through_activation(
    activation: op.Activation, x: Value, w: Value, bias: list[Value], g: Value
) -> Value:
    """The gradient before the fused activation; its argument is computed again."""
    kind = op.ACTIVATION_KIND.get(activation)
    if kind is None:
        return g
    before = x.apply(op.Linear((x, w, *bias)))
    return _unary(kind, before, before.apply(op.Unary((before,), kind)), g)


# -- losses ----------------------------------------------------------------------------------------


def _cross_entropy(record: op.CrossEntropy, g: Value) -> Grads:
    """One kernel; its parts where the gradient is to have one. A weight is a constant."""
    logits, targets, *weight = record.inputs
    none, fused = (None,) * (1 + len(weight)), op.CrossEntropyGrad
    if not recording():
        inputs = (logits, targets, g, *weight)
        fields = (record.reduction, record.ignored, record.smoothing)
        return (g.apply(fused(inputs, *fields)), *none)
    shares = _shares(record, logits.detach(), targets, weight)
    scale = g.unsqueeze(1) if record.reduction is op.Reduction.NONE else g
    probability = logits.apply(op.Softmax((logits,)))
    return (probability.mul(shares.sum(1, keepdim=True)).sub(shares).mul(scale), *none)


def _shares(record: op.CrossEntropy, logits: Value, targets: Value, weight: list[Value]) -> Value:
    """[n,c]: by how much each log-probability lowers the loss. Constants."""
    counts = targets.ne(record.ignored)
    places = counts.where_cond(targets, 0).unsqueeze(1)
    ones = counts.to_dtype(logits.dtype).unsqueeze(1)
    own = logits.apply(op.ScatterAdd((logits.zeros_like(), ones, places), 1))
    even = ones.mul(record.smoothing / logits.shape[1])
    shares = own.mul(1.0 - record.smoothing).add(even)
    if weight:
        own, shares = own.mul(weight[0].detach()), shares.mul(weight[0].detach())
    if record.reduction is not op.Reduction.MEAN:
        return shares
    total = own.sum()
    return total.eq(0.0).where_cond(0.0, shares.div(total))


# -- images ----------------------------------------------------------------------------------------


def _convolution(record: Any, g: Value) -> Grads:
    """One product of three, linear in each of x, w and the result: its adjoints are each other."""
    where = (record.stride, record.padding, record.dilation, record.groups)
    match record:
        case op.Conv2d(inputs=(x, w, *bias)):
            size, kernel = x.shape[2:], w.shape[2:]
            left = g.apply(op.ConvTranspose2d((g, w), *where, size)) if x.tracked else None
            right = g.apply(op.Conv2dWeight((x, g), *where, kernel)) if w.tracked else None
        case op.ConvTranspose2d(inputs=(x, w, *bias)):
            kernel = w.shape[2:]
            left = g.apply(op.Conv2d((g, w), *where)) if x.tracked else None
            right = g.apply(op.Conv2dWeight((g, x), *where, kernel)) if w.tracked else None
        case op.Conv2dWeight(inputs=(x, w)):  # w stands for the gradient of the result
            bias, size = [], x.shape[2:]
            left = g.apply(op.ConvTranspose2d((w, g), *where, size)) if x.tracked else None
            right = g.apply(op.Conv2d((x, g), *where)) if w.tracked else None
        case _:
            raise GradientError("backward", "a convolution", op.describe(record))
    return (left, right, *(g.sum((0, 2, 3)) for _ in bias))


def _pooling(record: Any, g: Value) -> Grads:
    """Each kind of pooling and unpooling are linear in what they move, and each other's adjoint."""
    fields = [getattr(record, name) for name in record.__match_args__[1:]]
    match record:
        case op.MaxPool2d(inputs=(x, _)):
            return None, g.apply(op.MaxUnpool2d((x, g), *fields))
        case op.MaxUnpool2d(inputs=(x, _)):
            return None, g.apply(op.MaxPool2d((x, g), *fields))
        case op.AvgPool2d(inputs=(x,)):
            return (g.apply(op.AvgUnpool2d((g,), *(*fields, x.shape[2:]))),)
        case op.AvgUnpool2d():
            return (g.apply(op.AvgPool2d((g,), *fields[:-1])),)
    raise GradientError("backward", "a pooling", op.describe(record))


# -- movement and indices --------------------------------------------------------------------------


def _movement(record: Any, g: Value) -> Grads:
    match record:
        case op.Reshape(inputs=(x,)):
            return (g.reshape(x.shape),)
        case op.Permute(axes=axes):
            return (g.permute([axes.index(i) for i in range(len(axes))]),)
        case op.Expand(inputs=(x,)):
            return (_fit(g, x),)
        case op.Slice(inputs=(x,)):
            return (_unslice(record, x, g),)
        case op.Contiguous():
            return (g,)
    raise GradientError("backward", "a movement", op.describe(record))


def _joined(record: Any, g: Value) -> Grads:
    match record:
        case op.Cat(inputs=inputs, axis=axis):
            starts = accumulate((x.shape[axis] for x in inputs), initial=0)
            return tuple(
                g.narrow(axis, at, x.shape[axis]) for x, at in zip(inputs, starts, strict=False)
            )
        case op.Pad(inputs=(x,), before=before):
            for axis, start in enumerate(before):
                g = g.narrow(axis, start, x.shape[axis])
            return (g,)
    raise GradientError("backward", "tensors joined", op.describe(record))


def _unslice(record: op.Slice, x: Value, g: Value) -> Value:
    """The gradient laid into zeros of the shape of x."""
    axis, start, length = record.axis, record.start, record.length
    if record.step != 1:
        front = g.transpose(0, axis)
        base = x.zeros_like().transpose(0, axis)
        indices = g.new_range(start, length, record.step)
        return front.apply(op.IndexAdd((base, front, indices))).transpose(0, axis)
    before, after = ([0] * len(x.shape) for _ in range(2))
    before[axis], after[axis] = start, x.shape[axis] - start - length
    return g.apply(op.Pad((g,), tuple(before), tuple(after)))


def _indices(record: Any, g: Value) -> Grads:
    match record:
        case op.Take(inputs=(table, indices)):
            flat = g.reshape((indices.count, *table.shape[1:]))
            zero = table.zeros_like().to_dtype(g.dtype)
            return g.apply(op.IndexAdd((zero, flat, indices.reshape((indices.count,))))), None
        case op.IndexAdd(inputs=(_, _, indices)):
            return g, g.apply(op.Take((g, indices))), None
        case op.Gather(inputs=(x, indices), axis=axis):
            zero = x.zeros_like().to_dtype(g.dtype)
            return g.apply(op.ScatterAdd((zero, g, indices), axis)), None
        case op.ScatterAdd(inputs=(_, _, indices), axis=axis):
            return g, g.apply(op.Gather((g, indices), axis)), None
    raise GradientError("backward", "an index operation", op.describe(record))


def _rope(record: op.Rope, g: Value) -> Grads:
    """A rotation by the negative angle."""
    _, positions, *factors = record.inputs
    inputs = (g, positions.neg(), *factors)
    turned = op.Rope(inputs, record.width, record.base, record.neox, record.scale)
    return (g.apply(turned), *(None for _ in record.inputs[1:]))
