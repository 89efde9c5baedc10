"""What operations mean, in NumPy float64: the oracle of the op cases. Written for reading."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any

_erf = np.vectorize(math.erf, otypes=[np.float64])


def relu(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.maximum(x, 0))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + _erf(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqr": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "recip": lambda x: 1 / x,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": sigmoid,
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}


def divide(x: Array, y: Array) -> Array:
    """The quotient; rounded down for integers."""
    return x // y if x.dtype.kind == "i" else x / y


BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": divide,
    "floor_div": np.floor_divide,
    "rem": np.remainder,
    "pow": np.power,
    "maximum": np.maximum,
    "minimum": np.minimum,
}

COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda x: x,
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
}


REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "min": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "var": np.var,
}


def reduce(kind: str, x: Array, axes: tuple[int, ...], keepdim: bool, correction: int) -> Array:
    """argmax and argmin give the index in the flattened reduced axes."""
    if kind in ("argmax", "argmin"):
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        count = math.prod(x.shape[a] for a in axes)
        flat = x.transpose(kept + axes).reshape(*(x.shape[a] for a in kept), count)
        out = REDUCE[kind](flat, axis=-1)
        return np.expand_dims(out, axes) if keepdim else out
    given = {"ddof": correction} if kind == "var" else {}
    return REDUCE[kind](x, axis=axes, keepdims=keepdim, **given)


def softmax(x: Array, log: bool = False) -> Array:
    moved = x - x.max(-1, keepdims=True)
    total = np.exp(moved).sum(-1, keepdims=True)
    return moved - np.log(total) if log else np.exp(moved) / total


def layer_norm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + epsilon) * weight + bias


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon) * weight


def topk(x: Array, k: int) -> tuple[Array, Array]:
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(x, order, -1), order


def sort(x: Array, descending: bool = False) -> tuple[Array, Array]:
    """The last axis in order, equal elements as they came."""
    order = np.argsort(-x if descending else x, axis=-1, kind="stable")
    return np.take_along_axis(x, order, -1), order


def attention(
    q: Array,
    k: Array,
    v: Array,
    lengths: Array | None = None,
    *,
    scale: float,
    causal: bool = False,
    position: int = 0,
    window: int = 0,
    softcap: float = 0.0,
) -> Array:
    """q [b,t,h,d], k and v [b,s,g,d]; a query that sees no key gives zeros."""
    b, t, h, _ = q.shape
    s, g = k.shape[1:3]
    out = np.zeros((b, t, h, v.shape[3]))
    at, keys = position + np.arange(t)[:, None], np.arange(s)[None, :]
    for row in range(b):
        seen = np.broadcast_to(keys < (s if lengths is None else lengths[row]), (t, s))
        if causal:
            seen = seen & (keys <= at)
        if window:
            seen = seen & (keys > at - window)
        for head in range(h):
            shared = head // (h // g)
            scores = q[row, :, head] @ k[row, :, shared].T * scale
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            scores = np.where(seen, scores, -np.inf)
            top = np.where(
                seen.any(1, keepdims=True), scores.max(1, keepdims=True, initial=-np.inf), 0
            )
            weights = np.exp(scores - top)
            total = weights.sum(1, keepdims=True)
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
            out[row, :, head] = weights @ v[row, :, shared]
    return out


def nearest(
    queries: Array, vectors: Array, k: int, mask: Array | None = None
) -> tuple[Array, Array]:
    scores = queries @ vectors.T
    if mask is not None:
        scores = np.where(mask.astype(bool), scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(scores, order, 1)
    rows = np.where(np.isneginf(best), -1, order)
    pad = ((0, 0), (0, k - rows.shape[1]))
    return np.pad(best, pad, constant_values=-np.inf), np.pad(rows, pad, constant_values=-1)


def index_add(x: Array, src: Array, indices: Array) -> Array:
    out = x.copy()
    np.add.at(out, indices, src)
    return out


def scatter_add(x: Array, src: Array, indices: Array, axis: int) -> Array:
    out = x.copy()
    places = list(np.indices(indices.shape))
    places[axis] = indices
    np.add.at(out, tuple(places), src)
    return out


def rope(
    x: Array,
    positions: Array,
    factors: Array | None = None,
    *,
    width: int,
    base: float,
    neox: bool,
    scale: float = 1.0,
) -> Array:
    """x [.., t, h, d]; pairs (j, j + width/2) where `neox`, else (2j, 2j + 1)."""
    half = width // 2
    frequencies = base ** (-2 * np.arange(half) / width) * scale
    if factors is not None:
        frequencies = frequencies / factors
    angle = positions[:, None, None] * frequencies
    out = x.copy()
    if neox:
        first, second = slice(0, half), slice(half, width)
    else:
        first, second = slice(0, width, 2), slice(1, width, 2)
    a, b = x[..., first], x[..., second]
    out[..., first] = a * np.cos(angle) - b * np.sin(angle)
    out[..., second] = a * np.sin(angle) + b * np.cos(angle)
    return out


def cross_entropy(
    x: Array,
    targets: Array,
    weight: Array | None = None,
    *,
    ignored: int = -100,
    smoothing: float = 0.0,
    reduction: str = "mean",
) -> Array:
    """Rows of logits against classes; the mean is over the weights of rows that count."""
    logs = x - x.max(1, keepdims=True)
    logs = logs - np.log(np.exp(logs).sum(1, keepdims=True))
    w = np.ones(x.shape[1]) if weight is None else weight
    counts = targets != ignored
    safe = np.where(counts, targets, 0)
    own = -w[safe] * logs[np.arange(len(x)), safe]
    losses = counts * ((1 - smoothing) * own - smoothing / x.shape[1] * (w * logs).sum(1))
    if reduction == "none":
        return losses
    total = (counts * w[safe]).sum()
    return losses.sum() / (1.0 if reduction == "sum" else total if total else 1.0)
