"""The op cases: one row says how an operation is built, on what, and what it means.

The same row serves correctness (every dtype and memory layout), parity of the instruction sets,
gradients (first and second order, by finite differences) and the check that no operation is
forgotten. `Case.make` draws float64 or int64 arrays; the oracle sees them after they were rounded
to the dtype under test.

size: a table, one row an operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from candle import Tensor, checkpoint, op
from candle import functional as F
from candle.op import Activation, BinaryKind, CompareKind, ReduceKind, UnaryKind
from support import image_cases, oracle
from support.case import FLOATS, INTS, NUMBERS, Array, Case, Make, Rng, distinct, uniform, whole

# -- elementwise ---------------------------------------------------------------------------------

_POSITIVE = {UnaryKind.SQRT, UnaryKind.RSQRT, UnaryKind.RECIP, UnaryKind.LOG}
_WHOLE_UNARY = {
    UnaryKind.NEG,
    UnaryKind.ABS,
    UnaryKind.SIGN,
    UnaryKind.SQR,
    UnaryKind.RELU,
    UnaryKind.FLOOR,
    UnaryKind.CEIL,
    UnaryKind.ROUND,
}
_UNARY_METHODS = {UnaryKind.GELU_TANH: lambda x: x.gelu(tanh=True)}


def _unary() -> Iterator[Case]:
    for kind in UnaryKind:
        run = _UNARY_METHODS.get(kind, lambda x, name=kind.value: getattr(x, name)())
        low = 0.3 if kind in _POSITIVE else -3.0
        means = oracle.UNARY[kind.value]
        yield Case(kind.value, kind, run, means, uniform((3, 5, 7), low=low, high=3.0))
        if kind in _WHOLE_UNARY:
            name = f"{kind.value} of integers"
            yield Case(name, kind, run, means, whole((4, 9)), dtypes=("i64", "i32"))


_PAIRS = {
    "same": ((3, 5, 7), (3, 5, 7)),
    "row": ((3, 5, 7), (7,)),
    "both": ((3, 1, 7), (5, 1)),
    "scalar": ((4, 9), ()),
    "empty": ((0, 5), (1, 5)),
}


def _binary() -> Iterator[Case]:
    for kind in BinaryKind:
        low = 0.4 if kind.value in ("div", "floor_div", "rem", "pow") else -2.0
        for pair, shapes in _PAIRS.items():
            run = lambda a, b, name=kind.value: getattr(a, name)(b)  # noqa: E731
            means = oracle.BINARY[kind.value]
            make = uniform(*shapes, low=low)
            yield Case(f"{kind.value} {pair}", kind, run, means, make, factor=8.0)
        whole_run = (lambda a, b: a.floor_div(b)) if kind is BinaryKind.DIV else run
        make = whole((4, 9), (9,), low=1, high=4)
        dtypes = ("i64", "i32") if kind is BinaryKind.SUB else INTS
        yield Case(f"{kind.value} of integers", kind, whole_run, means, make, dtypes)


def _compare() -> Iterator[Case]:
    for kind in CompareKind:
        run = lambda a, b, name=kind.value: getattr(a, name)(b)  # noqa: E731
        means = oracle.COMPARE[kind.value]
        for pair, shapes in _PAIRS.items():
            make = whole(*shapes, low=0, high=3)
            yield Case(f"{kind.value} {pair}", kind, run, means, make, NUMBERS, order=0)


def _condition(*shapes: tuple[int, ...]) -> Make:
    def make(rng: Rng) -> tuple[Array, ...]:
        first, *rest = shapes
        return (rng.integers(0, 2, first), *(rng.uniform(-2, 2, s) for s in rest))

    return make


def _choice() -> Iterator[Case]:
    for name, shapes in {
        "same": ((3, 7), (3, 7), (3, 7)),
        "broadcast": ((3, 1), (7,), (1, 7)),
        "empty": ((0, 7), (7,), (1, 7)),
    }.items():
        yield Case(
            f"where {name}",
            op.Where,
            lambda c, a, b: c.where_cond(a, b),
            lambda c, a, b: np.where(c.astype(bool), a, b),
            _condition(*shapes),
            dtypes=(*FLOATS, "i64", "u8"),
            fixed={0: "bool"},
        )
    yield Case(
        "cast to f32",
        op.Cast,
        lambda x: x.to_dtype("f32"),
        lambda x: x,
        uniform((3, 7)),
        dtypes=("f32", "f16", "bf16"),
        order=0,
    )
    yield Case(
        "cast there and back",
        op.Cast,
        lambda x: x.to_dtype("f64").to_dtype(x.dtype),
        lambda x: x,
        whole((3, 7)),
        dtypes=NUMBERS,
    )


# -- reduce and rows -----------------------------------------------------------------------------

_AXES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "last": ((3, 4, 5), (2,)),
    "first": ((3, 4, 5), (0,)),
    "outer": ((3, 4, 5), (0, 2)),
    "all": ((4, 9), (0, 1)),
    "long": ((3, 1111), (1,)),
    "none left": ((5,), (0,)),
}


def _reduce() -> Iterator[Case]:
    for kind in ReduceKind:
        for name, (shape, axes) in _AXES.items():
            for keepdim in (False, True):
                yield _reduced(kind, name, shape, axes, keepdim)
    for kind in (ReduceKind.SUM, ReduceKind.MAX, ReduceKind.MIN, ReduceKind.ARGMAX):
        run, means = _reducers(kind, (1,), False)
        yield Case(f"{kind.value} of integers", kind, run, means, whole((4, 9)), INTS, order=0)
    run, means = _reducers(ReduceKind.SUM, (1,), False)
    yield Case("sum of nothing", ReduceKind.SUM, run, means, uniform((3, 0)), order=0)


def _reducers(
    kind: ReduceKind, axes: tuple[int, ...], keepdim: bool
) -> tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]:
    correction = int(kind is ReduceKind.VAR)

    def run(x: Tensor) -> Tensor:
        return x.apply(op.Reduce((x,), kind, axes, keepdim, correction))

    return run, lambda x: oracle.reduce(kind.value, x, axes, keepdim, correction)


def _reduced(
    kind: ReduceKind, name: str, shape: tuple[int, ...], axes: tuple[int, ...], keepdim: bool
) -> Case:
    run, means = _reducers(kind, axes, keepdim)
    count = math.prod(shape[a] for a in axes)

    def make(rng: Rng) -> tuple[Array, ...]:  # all different, so that one is the greatest
        order = rng.permutation(math.prod(shape)).reshape(shape)
        return (order / order.size * 4 - 2,)

    index = kind in (ReduceKind.ARGMAX, ReduceKind.ARGMIN)
    title = f"{kind.value} {name}{' kept' if keepdim else ''}"
    dtypes = ("f32", "f64") if index or kind is ReduceKind.VAR else FLOATS
    factor = 4.0 + count / 64
    order = 0 if index or name == "long" else 2
    return Case(title, kind, run, means, make, dtypes, factor=factor, order=order)


def _rows() -> Iterator[Case]:
    for shape in ((3, 7), (2, 3, 65), (4, 1), (0, 5)):
        name = "x".join(map(str, shape))
        for log in (False, True):
            yield Case(
                f"{'log_' if log else ''}softmax {name}",
                op.Softmax,
                F.log_softmax if log else F.softmax,
                lambda x, log=log: oracle.softmax(x, log),
                uniform(shape, low=-4, high=4),
                factor=8.0,
            )
        width = shape[-1:]
        yield Case(
            f"layer_norm {name}",
            op.LayerNorm,
            lambda x, w, b: F.layer_norm(x, w, b, 1e-3),
            lambda x, w, b: oracle.layer_norm(x, w, b, 1e-3),
            uniform(shape, width, width),
            factor=16.0,
        )
        yield Case(
            f"rms_norm {name}",
            op.RmsNorm,
            lambda x, w: F.rms_norm(x, w, 1e-3),
            lambda x, w: oracle.rms_norm(x, w, 1e-3),
            uniform(shape, width),
            factor=16.0,
        )
    for axis, at in ((0, 0), (1, -2)):
        yield Case(
            f"softmax along {axis}",
            op.Softmax,
            lambda x, axis=axis: F.softmax(x, axis),
            lambda x, at=at: np.moveaxis(oracle.softmax(np.moveaxis(x, at, -1)), -1, at),
            uniform((4, 5, 6)),
            factor=8.0,
        )
    yield Case(
        "topk",
        op.TopK,
        lambda x: x.topk(3),
        lambda x: oracle.topk(x, 3),
        whole((4, 9), low=0, high=6),
        dtypes=("f32", "f16", "bf16"),
        order=0,
    )
    yield Case(
        "values of topk",
        op.TopK,
        lambda x: x.topk(3)[0],
        lambda x: oracle.topk(x, 3)[0],
        distinct((4, 9)),
    )
    yield from _orders()


def _orders() -> Iterator[Case]:
    for descending in (False, True):
        name = f"sort {'down' if descending else 'up'}"
        for shape in ((4, 9), (3, 50), (0, 4), (2, 0)):
            yield Case(
                f"{name} {shape}",
                op.Sort,
                lambda x, d=descending: x.sort(descending=d),
                lambda x, d=descending: oracle.sort(x, d),
                whole(shape, low=0, high=6),
                (*NUMBERS, "bool"),
                order=0,
            )
        yield Case(
            f"values of {name} along 0",
            op.Sort,
            lambda x, d=descending: x.sort(0, d)[0],
            lambda x, d=descending: np.sort(x, 0)[:: -1 if d else 1],
            distinct((5, 4)),
        )
    for shape, axis in (((4, 9), 1), ((4, 9), 0), ((2, 5, 3), 1), ((3, 0), 1), ((600,), 0)):
        yield Case(
            f"cumsum {shape} along {axis}",
            op.CumSum,
            lambda x, axis=axis: x.cumsum(axis),
            lambda x, axis=axis: np.cumsum(x, axis),
            uniform(shape),
            order=0 if shape == (600,) else 2,
        )
    yield Case(
        "cumsum of integers",
        op.CumSum,
        lambda x: x.cumsum(-1),
        lambda x: np.cumsum(x, -1),
        whole((4, 9)),
        INTS,
        order=0,
    )


# -- products ------------------------------------------------------------------------------------


def _matmul() -> Iterator[Case]:
    for a, b in (
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (4,)),
        ((17, 33), (33, 65)),
        ((2, 2, 3, 4), (2, 2, 4, 5)),
        ((3, 0), (0, 5)),
        ((0, 4), (4, 5)),
        ((0, 3, 4), (4, 5)),
    ):
        name = f"matmul {list(a)} @ {list(b)}"
        big = max(math.prod(a), math.prod(b)) > 200
        yield Case(
            name,
            op.MatMul,
            lambda x, y: x.matmul(y),
            lambda x, y: x @ y,
            uniform(a, b),
            factor=16.0,
            order=0 if big else 2,
        )


def _linear() -> Iterator[Case]:
    for activation in Activation:
        means = oracle.ACTIVATIONS[activation.name.lower()]
        for bias in (True, False):
            shapes = ((3, 4), (5, 4), (5,)) if bias else ((2, 3, 4), (5, 4))
            yield Case(
                f"linear {activation.name.lower()}{' with bias' if bias else ''}",
                op.Linear,
                lambda x, w, b=None, act=activation: F.linear(x, w, b, act),
                lambda x, w, b=0.0, means=means: means(x @ w.T + b),
                uniform(*shapes),
                factor=16.0,
            )
    yield Case(
        "linear 65x70",
        op.Linear,
        F.linear,
        lambda x, w, b: x @ w.T + b,
        uniform((33, 70), (65, 70), (65,)),
        factor=32.0,
        order=0,
    )
    yield Case(
        "linear of a packed weight",
        op.Pack,
        lambda x, w: F.linear(x, F.pack(w)),
        lambda x, w: x @ w.T,
        uniform((5, 33), (19, 33)),
        dtypes=("f32",),
        factor=16.0,
        order=0,
    )


def _searches() -> Iterator[Case]:
    options: dict[str, dict[str, Any]] = {
        "plain": {},
        "causal": {"causal": True, "position": 4},
        "window": {"causal": True, "position": 4, "window": 3},
        "capped": {"softcap": 2.0},
    }
    for name, given in options.items():
        yield Case(
            f"attention {name}",
            op.Attention,
            lambda q, k, v, given=given: F.attention(q, k, v, scale=0.5, **given),
            lambda q, k, v, given=given: oracle.attention(q, k, v, scale=0.5, **given),
            uniform((2, 5, 4, 8), (2, 9, 2, 8), (2, 9, 2, 8)),
            dtypes=("f32", "f16"),
            factor=32.0,
            order=0,
        )
    yield Case(
        "attention by lengths",
        op.Attention,
        lambda q, k, v, n: F.attention(q, k, v, n, scale=0.5),
        lambda q, k, v, n: oracle.attention(q, k, v, n, scale=0.5),
        lambda rng: (
            rng.uniform(-2, 2, (3, 5, 4, 8)),
            rng.uniform(-2, 2, (3, 6, 2, 8)),
            rng.uniform(-2, 2, (3, 6, 2, 8)),
            np.array([6, 0, 2]),
        ),
        dtypes=("f32",),
        fixed={3: "i32"},
        factor=32.0,
        order=0,
    )
    yield Case(
        "nearest",
        op.Nearest,
        lambda q, v: F.nearest(q, v, 4),
        lambda q, v: oracle.nearest(q, v, 4),
        whole((3, 8), (20, 8), low=-3, high=4),
        dtypes=("f32",),
        order=0,
    )
    yield Case(
        "nearest of few",
        op.Nearest,
        lambda q, v, m: F.nearest(q, v, 4, m),
        lambda q, v, m: oracle.nearest(q, v, 4, m),
        lambda rng: (
            rng.integers(-3, 4, (3, 8)),
            rng.integers(-3, 4, (6, 8)),
            np.array([0, 1, 0, 0, 1, 0]),
        ),
        dtypes=("f32",),
        fixed={2: "u8"},
        order=0,
    )


# -- losses ----------------------------------------------------------------------------------------


def _losses() -> Iterator[Case]:
    targets = np.array([0, 3, -100, 6, 3])
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.2):
            for weighted in (False, True):
                given = {"reduction": reduction}
                yield Case(
                    f"cross_entropy {reduction} {smoothing}{' weighted' if weighted else ''}",
                    op.CrossEntropy,
                    lambda x, t, w=None, e=smoothing, given=given: F.cross_entropy(
                        x, t, weight=None if w is None else w.detach(), label_smoothing=e, **given
                    ),
                    lambda x, t, w=None, e=smoothing, given=given: oracle.cross_entropy(
                        x, t, w, smoothing=e, **given
                    ),
                    lambda rng, weighted=weighted: (
                        rng.uniform(-4, 4, (5, 7)),
                        targets,
                        *([rng.uniform(0.1, 2, 7)] if weighted else []),
                    ),
                    fixed={1: "i64"},
                    factor=8.0,
                    order=0 if weighted else 2,
                )
    yield Case(
        "cross_entropy_grad",
        op.CrossEntropyGrad,
        lambda x, t, g: x.apply(op.CrossEntropyGrad((x, t, g), op.Reduction.NONE, -100, 0.0)),
        lambda x, t, g: (
            (t >= 0)[:, None]
            * g[:, None]
            * (oracle.softmax(x, False) - np.eye(7)[np.maximum(t, 0)])
        ),
        lambda rng: (rng.uniform(-4, 4, (5, 7)), targets, rng.uniform(-1, 1, 5)),
        dtypes=("f32", "f64"),
        fixed={1: "i64"},
        factor=8.0,
        order=0,
    )


def _gradients() -> Iterator[Case]:
    """Records that only backward makes."""
    yield Case(
        "relu_grad",
        op.ReluGrad,
        lambda g, x: g.apply(op.ReluGrad((g, x.detach()))),
        lambda g, x: g * (x > 0),
        uniform((3, 5, 7), (3, 5, 7)),
        order=0,
    )
    for k, name in enumerate(("x", "w", "bias")):
        wanted = [k == i for i in range(3)]
        yield Case(
            f"linear_grad of {name}",
            op.LinearGrad,
            lambda g, x, w, wanted=wanted: g.apply(op.LinearGrad((g, x, w), *wanted))[0],
            lambda g, x, w, k=k: (g @ w, g.T @ x, g.sum(0))[k],
            uniform((4, 6), (4, 5), (6, 5)),
            dtypes=("f32",),
            factor=8.0,
            order=0,
        )


# -- movement and indices --------------------------------------------------------------------------

_MOVES: tuple[tuple[str, Any, Callable[[Tensor], Tensor], Callable[[Array], Array]], ...] = (
    ("reshape", op.Reshape, lambda x: x.reshape((2, -1)), lambda x: x.reshape(2, -1)),
    ("unsqueeze", op.Reshape, lambda x: x.unsqueeze(1), lambda x: x[:, None]),
    ("flatten_from", op.Reshape, lambda x: x.flatten_from(1), lambda x: x.reshape(4, -1)),
    ("permute", op.Permute, lambda x: x.permute((2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    ("t", op.Permute, lambda x: x.t(), lambda x: x.swapaxes(-1, -2)),
    (
        "expand",
        op.Expand,
        lambda x: x[:1].expand((2, 3, 5, 6)),
        lambda x: np.broadcast_to(x[:1], (2, 3, 5, 6)),
    ),
    ("narrow", op.Slice, lambda x: x.narrow(1, 1, 3), lambda x: x[:, 1:4]),
    ("step", op.Slice, lambda x: x[:, ::2, 1::3], lambda x: x[:, ::2, 1::3]),
    ("backwards", op.Slice, lambda x: x[::-2, :, 4:1:-1], lambda x: x[::-2, :, 4:1:-1]),
    ("one", op.Slice, lambda x: x[1, :, -2], lambda x: x[1, :, -2]),
    ("nothing", op.Slice, lambda x: x[:, 3:3], lambda x: x[:, 3:3]),
    ("copy", op.Contiguous, lambda x: x.t().copy(), lambda x: x.swapaxes(-1, -2)),
)


def _movement() -> Iterator[Case]:
    for name, record, run, means in _MOVES:
        yield Case(name, record, run, means, whole((4, 5, 6)), (*NUMBERS, "bool"))
    for axis in (0, 1, -1):
        yield Case(
            f"cat along {axis}",
            op.Cat,
            lambda a, b, axis=axis: Tensor.cat([a, b, a.narrow(axis, 0, 1)], axis),
            lambda a, b, axis=axis: np.concatenate([a, b, np.take(a, [0], axis)], axis),
            whole((3, 4, 5), (3, 4, 5)),
            (*NUMBERS, "bool"),
        )
    for mode, given in {"constant": {"constant_values": 3}, "reflect": {}, "replicate": {}}.items():
        known = {"replicate": "edge"}.get(mode, mode)
        yield Case(
            f"pad {mode}",
            op.Pad if mode == "constant" else op.Cat,
            lambda x, mode=mode: F.pad(x, [(2, 0), (1, 3)], mode, 3.0),
            lambda x, known=known, given=given: np.pad(x, [(0, 0), (2, 0), (1, 3)], known, **given),
            whole((2, 3, 4)),
            NUMBERS,
        )
    yield Case(
        "pad nothing",
        op.Pad,
        lambda x: F.pad(x, [(1, 2)]),
        lambda x: np.pad(x, [(0, 0), (1, 2)]),
        whole((3, 0)),
        (*NUMBERS, "bool"),
    )
    yield Case(
        "flip",
        op.Slice,
        lambda x: x.flip((0, -1)),
        lambda x: np.flip(x, (0, -1)),
        whole((2, 3, 4)),
        (*NUMBERS, "bool"),
    )
    yield Case(
        "stack",
        op.Cat,
        lambda a, b: Tensor.stack([a, b], 1),
        lambda a, b: np.stack([a, b], 1),
        whole((3, 4), (3, 4)),
    )


def _indices() -> Iterator[Case]:
    places = np.array([[3, 0, 3], [1, 2, 0]])
    for kind in ("i64", "i32", "u32"):
        yield Case(
            f"take by {kind}",
            op.Take,
            lambda x, i: x.index_select(i),
            lambda x, i: x[i],
            lambda rng: (rng.integers(0, 9, (4, 5)), places),
            (*FLOATS, "i64"),
            fixed={1: kind},
        )
    yield Case(
        "index_select along 1",
        op.Take,
        lambda x, i: x.index_select(i, 1),
        lambda x, i: x[:, i],
        lambda rng: (rng.integers(0, 9, (3, 4, 2)), np.array([3, 3, 0])),
        fixed={1: "i64"},
    )
    for axis in (0, 1):
        yield Case(
            f"gather along {axis}",
            op.Gather,
            lambda x, i, axis=axis: x.gather(i, axis),
            lambda x, i, axis=axis: np.take_along_axis(x, i, axis),
            lambda rng, axis=axis: (
                rng.integers(0, 9, (4, 5)),
                rng.integers(0, 4, (7, 5) if axis == 0 else (4, 7)),
            ),
            fixed={1: "i64"},
        )
        yield Case(
            f"scatter_add along {axis}",
            op.ScatterAdd,
            lambda x, s, i, axis=axis: x.scatter_add(i, s, axis),
            lambda x, s, i, axis=axis: oracle.scatter_add(x, s, i, axis),
            lambda rng, axis=axis: (
                rng.integers(0, 9, (4, 5)),
                rng.integers(0, 9, (7, 5) if axis == 0 else (4, 7)),
                rng.integers(0, 4, (7, 5) if axis == 0 else (4, 7)),
            ),
            fixed={2: "i64"},
        )
    yield Case(
        "index_add",
        op.IndexAdd,
        lambda x, s, i: x.index_add(i, s),
        oracle.index_add,
        lambda rng: (
            rng.integers(0, 9, (4, 5)),
            rng.integers(0, 9, (6, 5)),
            np.array([0, 3, 3, 1, 0, 0]),
        ),
        fixed={2: "i64"},
    )
    yield Case(
        "index_add along 1",
        op.IndexAdd,
        lambda x, s, i: x.index_add(i, s, 1),
        lambda x, s, i: oracle.index_add(x.T, s.T, i).T,
        lambda rng: (
            rng.integers(0, 9, (5, 4)),
            rng.integers(0, 9, (5, 6)),
            np.array([0, 3, 3, 1, 0, 0]),
        ),
        fixed={2: "i64"},
    )


def _turns() -> Iterator[Case]:
    for neox in (True, False):
        given = {"width": 6, "base": 100.0, "neox": neox}
        yield Case(
            f"rope {'neox' if neox else 'pairs'}",
            op.Rope,
            lambda x, p, given=given: F.rope(x, p, **given),
            lambda x, p, given=given: oracle.rope(x, p, **given),
            lambda rng: (rng.uniform(-2, 2, (2, 3, 2, 8)), np.array([0, 5, 70])),
            ("f32", "f16"),
            fixed={1: "i32"},
            factor=8.0,
        )
    yield Case(
        "rope with factors",
        op.Rope,
        lambda x, p, f: F.rope(x, p, width=8, base=100.0, factors=f, scale=0.5),
        lambda x, p, f: oracle.rope(x, p, f, width=8, base=100.0, neox=True, scale=0.5),
        lambda rng: (rng.uniform(-2, 2, (3, 2, 8)), np.array([0, 5, 7]), np.array([1, 2, 4, 8])),
        ("f32",),
        fixed={1: "i32", 2: "f32"},
        factor=8.0,
    )


def _control() -> Iterator[Case]:
    yield Case(
        "checkpoint",
        op.Checkpoint,
        lambda a, b: checkpoint(lambda a, b: a.mul(b).sin(), a.mul(a), b).mul(a),
        lambda a, b: np.sin(a * a * b) * a,
        uniform((3, 4), (4,), low=-1, high=1),
        factor=32.0,
    )


CASES: tuple[Case, ...] = (
    *_unary(),
    *_binary(),
    *_compare(),
    *_choice(),
    *_reduce(),
    *_rows(),
    *_matmul(),
    *_linear(),
    *_searches(),
    *_losses(),
    *image_cases.CASES,
    *_gradients(),
    *_movement(),
    *_indices(),
    *_turns(),
    *_control(),
)
