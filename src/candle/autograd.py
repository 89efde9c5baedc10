"""Backward: walk the records in topological order, match each to its rule, accumulate.

Works on values through their own methods and never imports Tensor, so it runs on any device and
its results can be differentiated again. Iterative throughout: a chain of a million records is fine.

A value has `.op` (its record or None), `.tracked`, `.shape`, `.dtype` and the methods of Tensor.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from . import op
from .errors import GradientError
from .op import BinaryKind as B
from .op import ReduceKind as R
from .op import UnaryKind as U

Value = Any
Grads = tuple[Value | None, ...]


class _State(threading.local):
    enabled = True


_state = _State()


def recording() -> bool:
    """Whether records are kept on this thread."""
    return _state.enabled


class no_grad:
    """Context in which no record is kept: `with no_grad(): ...`. One a thread; may be nested."""

    def __init__(self, enabled: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> None:
        self.before = _state.enabled
        _state.enabled = self.enabled

    def __exit__(self, *_: object) -> None:
        _state.enabled = self.before


class Freed:
    """Stands for a record that backward has used up."""

    inputs: tuple[()] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Freed({self.name})"


def topological(root: Value) -> list[Value]:
    """Tracked values that `root` depends on, inputs before outputs. Iterative."""
    order: list[Value] = []
    seen: set[int] = set()
    stack: list[tuple[Value, bool]] = [(root, False)]
    while stack:
        value, done = stack.pop()
        if done:
            order.append(value)
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        stack.append((value, True))
        record = value.op
        if record is not None:
            _refuse_freed(record)
            stack.extend((x, False) for x in record.inputs if x.tracked)
    return order


def _refuse_freed(record: Any) -> None:
    if isinstance(record, Freed):
        remedy = "run the forward pass again, or backward(retain_graph=True) the first time"
        raise GradientError("backward", "a graph that was not used up", record.name, remedy)


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
    found: list[tuple[Value, Value]] = []
    with no_grad(create_graph):
        while order:
            value = order.pop()
            grad = grads.pop(id(value), None)
            record = value.op
            if grad is not None:
                if value.keeps_grad:
                    found.append((value, grad))
                if record is not None:
                    _check_versions(value)
                    _add_all(grads, record.inputs, gradient(record, value, grad))
            if record is not None and not retain_graph and not create_graph:
                value.op = Freed(type(record).__name__)
    return found


def _check_versions(value: Value) -> None:
    for x, seen in zip(value.op.inputs, value.versions, strict=True):
        if x.data.storage.version != seen:
            what = f"inputs as {type(value.op).__name__} saw them (version {seen})"
            got = f"version {x.data.storage.version} of {list(x.shape)}"
            raise GradientError("backward", what, got, "it was changed in place; copy it first")


def _add_all(grads: dict[int, Value], inputs: Iterable[Value], given: Grads) -> None:
    for x, g in zip(inputs, given, strict=True):
        if g is None or not x.tracked:
            continue
        before = grads.get(id(x))
        grads[id(x)] = g if before is None else before.add(g)


def gradient(record: Any, out: Value, grad: Value) -> Grads:
    """Gradients of a record's inputs, from that of its output. Raises GradientError without a rule."""
    match record:
        case op.Unary(inputs=(x,), kind=kind):
            return (_unary(kind, x, out, grad),)
        case op.Binary(inputs=(a, b), kind=kind):
            left, right = _binary(kind, a, b, out, grad)
            return _fit(left, a), _fit(right, b)
        case op.Where() | op.Cast():
            return _choice(record, grad)
        case op.Reduce(inputs=(x,)):
            return (_reduce(record, x, out, grad),)
        case op.Softmax() | op.LayerNorm() | op.RmsNorm():
            return _rows(record, out, grad)
        case op.MatMul() | op.Linear():
            return _product(record, grad)
        case op.Reshape() | op.Permute() | op.Expand() | op.Slice() | op.Contiguous() | op.Cat():
            return _movement(record, grad)
        case op.Take() | op.IndexAdd() | op.Gather() | op.ScatterAdd():
            return _indices(record, grad)
        case op.Rope():
            return _rope(record, grad)
        case _:
            why = op.NOT_DIFFERENTIABLE.get(type(record), "it has no rule")
            raise GradientError("backward", "an operation with a gradient", op.describe(record), why)


def _fit(grad: Value | None, x: Value) -> Value | None:
    """Sums a gradient over the axes along which `x` was broadcast."""
    if grad is None or grad.shape == x.shape:
        return grad
    extra = len(grad.shape) - len(x.shape)
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(x.shape) if n == 1 and grad.shape[i + extra] != 1]
    return grad.sum(axes).reshape(x.shape)


# -- elementwise ---------------------------------------------------------------------------------


def _unary(kind: U, x: Value, out: Value, g: Value) -> Value:
    match kind:
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
        case U.RELU:
            return g.mul(x.gt(0.0).to_dtype(g.dtype))
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
    """d/dx of x/2 (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3)."""
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
        case B.POW:
            left = g.mul(b).mul(a.pow(b.sub(1.0)))
            return left, (g.mul(out).mul(a.log()) if b.tracked else None)
        case B.MAXIMUM | B.MINIMUM:
            return _extreme(kind, a, b, g)


def _extreme(kind: B, a: Value, b: Value, g: Value) -> Grads:
    """The chosen operand takes the gradient; equal ones share it by halves."""
    wins = a.gt(b) if kind is B.MAXIMUM else a.lt(b)
    share = wins.to_dtype(g.dtype).add(a.eq(b).to_dtype(g.dtype).mul(0.5))
    return g.mul(share), g.mul(share.neg().add(1.0))


def _choice(record: Any, g: Value) -> Grads:
    match record:
        case op.Where(inputs=(condition, a, b)):
            zero = g.zeros_like()
            left, right = condition.where_cond(g, zero), condition.where_cond(zero, g)
            return None, _fit(left, a), _fit(right, b)
        case op.Cast(inputs=(x,)):
            return (g.to_dtype(x.dtype),)
    raise GradientError("backward", "where or cast", op.describe(record))


# -- reduce and rows -----------------------------------------------------------------------------


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
            return spread.mul(centred).mul(2.0 / (count - record.correction))
        case _:
            raise GradientError("backward", "an operation with a gradient", record.kind.value)


def _rows(record: Any, out: Value, g: Value) -> Grads:
    match record:
        case op.Softmax(log=True):
            return (g.sub(out.exp().mul(g.sum(-1, keepdim=True))),)
        case op.Softmax():
            return (out.mul(g.sub(g.mul(out).sum(-1, keepdim=True))),)
        case op.LayerNorm(inputs=(x, weight, bias), epsilon=epsilon):
            centred = x.sub(x.mean(-1, keepdim=True))
            return _norm(centred, weight, epsilon, g, True) + (_fit(g, bias),)
        case op.RmsNorm(inputs=(x, weight), epsilon=epsilon):
            return _norm(x, weight, epsilon, g, False)
    raise GradientError("backward", "a row operation", op.describe(record))


def _norm(x: Value, weight: Value, epsilon: float, g: Value, centre: bool) -> Grads:
    """Gradients of weight * x / sqrt(mean(x^2) + epsilon); `x` is centred already where `centre`."""
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
            if w.dtype.is_block:
                w = w.dequantize()
            g = _through_activation(activation, x, w, bias, g)
            rows = g.reshape((-1, g.shape[-1]))
            gx = rows.matmul(w).reshape(x.shape) if x.tracked else None
            flat = x.reshape((-1, x.shape[-1]))
            gw = rows.t().matmul(flat) if record.inputs[1].tracked else None
            return (gx, gw, *(rows.sum(0) for _ in bias))
    raise GradientError("backward", "a product", op.describe(record))


_ACTIVATION_KIND = {
    op.Activation.RELU: U.RELU,
    op.Activation.GELU: U.GELU,
    op.Activation.GELU_TANH: U.GELU_TANH,
    op.Activation.SILU: U.SILU,
}


def _through_activation(
    activation: op.Activation, x: Value, w: Value, bias: list[Value], g: Value
) -> Value:
    """The gradient before the fused activation; its argument is computed again."""
    kind = _ACTIVATION_KIND.get(activation)
    if kind is None:
        return g
    before = x.apply(op.Linear((x, w, *bias)))
    return _unary(kind, before, before.apply(op.Unary((before,), kind)), g)


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
        case op.Cat(inputs=inputs, axis=axis):
            parts, start = [], 0
            for x in inputs:
                parts.append(g.narrow(axis, start, x.shape[axis]))
                start += x.shape[axis]
            return tuple(parts)
    raise GradientError("backward", "a movement", op.describe(record))


def _unslice(record: op.Slice, x: Value, g: Value) -> Value:
    """The gradient laid into zeros of the shape of x."""
    stop = record.start + record.length * record.step
    where = list(range(record.start, stop, record.step))
    front = g.transpose(0, record.axis)
    base = x.zeros_like().to_dtype(g.dtype).transpose(0, record.axis)
    indices = g.new_indices(where)
    return front.apply(op.IndexAdd((base, front, indices))).transpose(0, record.axis)


def _indices(record: Any, g: Value) -> Grads:
    match record:
        case op.Take(inputs=(table, indices)):
            flat = g.reshape((-1, *table.shape[1:]))
            zero = table.zeros_like().to_dtype(g.dtype)
            return g.apply(op.IndexAdd((zero, flat, indices.reshape((-1,))))), None
        case op.IndexAdd(inputs=(_, _, indices)):
            return g, g.apply(op.Take((g, indices))), None
        case op.Gather(inputs=(x, indices), axis=axis):
            return g.apply(op.ScatterAdd((x.zeros_like(), g, indices), axis)), None
        case op.ScatterAdd(inputs=(_, _, indices), axis=axis):
            return g, g.apply(op.Gather((g, indices), axis)), None
    raise GradientError("backward", "an index operation", op.describe(record))


def _rope(record: op.Rope, g: Value) -> Grads:
    """A rotation by the negative angle."""
    turned = op.Rope(
        (g, *record.inputs[1:]), record.width, record.base, record.neox, -record.scale
    )
    return (g.apply(turned), *(None for _ in record.inputs[1:]))
