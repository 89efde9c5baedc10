"""The gradient of `Attention`, of its parts: the weights of the keys are computed again.

Works on values through their own methods, as `autograd` does, so it has gradients itself. It takes
[batch, heads, queries, keys] numbers of memory, which the forward kernel does not.
"""

from __future__ import annotations

from typing import Any

from . import op

Value = Any
UNSEEN = -1e30  # a score whose exponential is 0; not -inf, of which a row makes NaN


def gradients(
    record: op.Attention, q: Value, k: Value, v: Value, g: Value
) -> tuple[Value | None, ...]:
    """Gradients of q, k and v, and None for the lengths; `q`, `k`, `v`, `g` are of one dtype."""
    heads, lengths = k.shape[2], record.inputs[3:]
    queries, keys, values = (_by_head(x, heads) for x in (q, k, v))
    weights, slope = _weights(record, queries, keys, q.shape, k.shape, lengths)
    g = _by_head(g, heads)
    of_q, of_k, of_v = (x.tracked for x in record.inputs[:3])
    gv = weights.transpose(1, 2).matmul(g) if of_v else None
    gs: Value = None
    if of_q or of_k:
        gw = g.matmul(values.transpose(1, 2))
        gs = weights.mul(gw.sub(weights.mul(gw).sum(-1, keepdim=True))).mul(slope)
    gq = gs.matmul(keys) if of_q else None
    gk = gs.transpose(1, 2).matmul(queries) if of_k else None
    found = (_in_place(x, like) for x, like in ((gq, q), (gk, k), (gv, v)))
    return (*found, *(None for _ in lengths))


def _by_head(x: Value, heads: int) -> Value:
    """[b,n,h,d] as [b*heads, h/heads*n, d]: rows that see the same keys together."""
    b, n, h, d = x.shape
    return x.permute((0, 2, 1, 3)).reshape((b * heads, h // heads * n, d))


def _in_place(x: Value | None, like: Value) -> Value | None:
    """The other way round, to the shape of `like`."""
    if x is None:
        return None
    b, n, h, d = like.shape
    return x.reshape((b, h, n, d)).permute((0, 2, 1, 3))


def _weights(
    record: op.Attention,
    queries: Value,
    keys: Value,
    of_q: tuple[int, ...],
    of_k: tuple[int, ...],
    lengths: tuple[Value, ...],
) -> tuple[Value, Value | float]:
    """How much each query takes of each key, and the slope of its scores in their products."""
    products = queries.matmul(keys.transpose(1, 2))
    scores, slope = products.mul(record.scale), record.scale
    if record.softcap:
        bent = scores.mul(1.0 / record.softcap).tanh()
        scores, slope = bent.mul(record.softcap), bent.sqr().neg().add(1.0).mul(record.scale)
    seen = _seen(record, products, of_q, of_k, lengths)
    if seen is None:
        return scores.apply(op.Softmax((scores,))), slope
    scores = seen.where_cond(scores, UNSEEN)
    return seen.where_cond(scores.apply(op.Softmax((scores,))), 0.0), slope


def _seen(
    record: op.Attention,
    like: Value,
    of_q: tuple[int, ...],
    of_k: tuple[int, ...],
    lengths: tuple[Value, ...],
) -> Value | None:
    """Which keys each query sees, of the shape of `like`; None where all are seen."""
    (b, t, h, _), s = of_q, of_k[1]
    at, keys = like.new_range(record.position, t, 1).unsqueeze(1), like.new_range(0, s, 1)
    found = [keys.le(at)] if record.causal else []
    if record.window:
        found.append(keys.gt(at.sub(record.window)))
    found += [keys.lt(n.to_dtype(keys.dtype).reshape((b, 1, 1, 1))) for n in lengths]
    if not found:
        return None
    seen = found[0]
    for more in found[1:]:
        seen = seen.mul(more)
    return seen.expand((b, h, t, s)).reshape(like.shape)
