"""What operations on images mean, in NumPy float64: convolution and pooling, tap by tap."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
Pair = tuple[int, int]


def _places(out: int, stride: int, tap: int) -> slice:
    """Where the outputs of one axis meet a tap, in the padded input."""
    return slice(tap, tap + (out - 1) * stride + 1 if out else tap, stride)


def _padded(x: Array, padding: Pair, least: Pair, value: float = 0.0) -> Array:
    """x with margins, and room for `least` rows and columns."""
    more = [max(0, n - (x.shape[2 + i] + 2 * padding[i])) for i, n in enumerate(least)]
    width = [(padding[i], padding[i] + more[i]) for i in range(2)]
    return np.pad(x, [(0, 0), (0, 0), *width], constant_values=value)


def conv_size(n: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Outputs of one axis."""
    return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def conv2d(
    x: Array,
    w: Array,
    bias: Array | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> Array:
    """Cross-correlation: x [b,c,h,w], w [o,c/groups,kh,kw]."""
    size = [
        conv_size(x.shape[2 + i], w.shape[2 + i], stride[i], padding[i], dilation[i])
        for i in range(2)
    ]
    b, o = x.shape[0], w.shape[0]
    spread = _padded(x, padding, (0, 0)).reshape(
        b, groups, w.shape[1], *(x.shape[2 + i] + 2 * padding[i] for i in range(2))
    )
    weights = w.reshape(groups, o // groups, *w.shape[1:])
    out = np.zeros((b, groups, o // groups, *size), x.dtype)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = _places(size[0], stride[0], i * dilation[0])
            cols = _places(size[1], stride[1], j * dilation[1])
            out += np.einsum("bgcyx,goc->bgoyx", spread[..., rows, cols], weights[..., i, j])
    out = out.reshape(b, o, *size)
    return out if bias is None else out + bias[:, None, None]


def conv2d_input(
    g: Array,
    w: Array,
    size: Pair,
    bias: Array | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> Array:
    """The adjoint of conv2d in x [b, c, *size]."""
    b, o, c = g.shape[0], w.shape[0], w.shape[1] * groups
    spread = np.zeros((b, groups, w.shape[1], *(size[i] + 2 * padding[i] for i in range(2))))
    grads = g.reshape(b, groups, o // groups, *g.shape[2:])
    weights = w.reshape(groups, o // groups, *w.shape[1:])
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = _places(g.shape[2], stride[0], i * dilation[0])
            cols = _places(g.shape[3], stride[1], j * dilation[1])
            spread[..., rows, cols] += np.einsum("bgoyx,goc->bgcyx", grads, weights[..., i, j])
    inner = [slice(padding[i], padding[i] + size[i]) for i in range(2)]
    out = spread[..., inner[0], inner[1]].reshape(b, c, *size)
    return out if bias is None else out + bias[:, None, None]


def conv2d_weight(
    x: Array,
    g: Array,
    kernel: Pair,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
) -> Array:
    """The adjoint of conv2d in its weight [o, c/groups, *kernel]."""
    b, c, o = x.shape[0], x.shape[1], g.shape[1]
    spread = _padded(x, padding, (0, 0)).reshape(
        b, groups, c // groups, *(x.shape[2 + i] + 2 * padding[i] for i in range(2))
    )
    grads = g.reshape(b, groups, o // groups, *g.shape[2:])
    out = np.zeros((groups, o // groups, c // groups, *kernel))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = _places(g.shape[2], stride[0], i * dilation[0])
            cols = _places(g.shape[3], stride[1], j * dilation[1])
            out[..., i, j] = np.einsum("bgcyx,bgoyx->goc", spread[..., rows, cols], grads)
    return out.reshape(o, c // groups, *kernel)


def taps(n: int, m: int, how: str) -> Array:
    """[m, n]: how much each of m outputs takes of each of n elements of an axis."""
    out = np.zeros((m, n))
    for i in range(m):
        if how == "nearest":
            out[i, i * n // m] = 1
            continue
        at = i * (n - 1) / max(m - 1, 1)
        if how == "linear":
            at = min(max((i + 0.5) * n / m - 0.5, 0.0), n - 1.0)
        low = int(at)
        out[i, low] += 1 - (at - low)
        out[i, min(low + 1, n - 1)] += at - low
    return out


def resize2d(x: Array, size: Pair, how: str) -> Array:
    """Images of another size: nearest, linear (between centres) or corners."""
    rows, columns = (taps(x.shape[2 + i], size[i], how) for i in range(2))
    return np.einsum("py,bcyx,qx->bcpq", rows, x, columns)


def unresize2d(g: Array, size: Pair, how: str) -> Array:
    """Its adjoint, to images of `size`."""
    rows, columns = (taps(size[i], g.shape[2 + i], how) for i in range(2))
    return np.einsum("py,bcpq,qx->bcyx", rows, g, columns)


def pool_size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Windows along one axis, as PyTorch counts them."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    made = room // stride + 1
    if ceil and room % stride and made * stride < n + padding:
        made += 1
    return made


def windows(
    x: Array,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair = (1, 1),
    ceil: bool = False,
    fill: float = 0.0,
) -> Array:
    """All windows of x [b,c,h,w]: [b,c,p,q,kh*kw]."""
    p, q = (
        pool_size(x.shape[2 + i], kernel[i], stride[i], padding[i], dilation[i], ceil)
        for i in range(2)
    )
    least = [(n - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 for i, n in enumerate((p, q))]
    spread = _padded(x, padding, (least[0], least[1]), fill)
    taps = [
        spread[:, :, _places(p, stride[0], i * dilation[0]), _places(q, stride[1], j * dilation[1])]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return np.stack(taps, -1)


def max_pool2d(
    x: Array,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    ceil: bool = False,
    values: Array | None = None,
) -> Array:
    """`values` (x itself) where x is greatest in each window: the first of equals, or of NaN."""
    seen = windows(x, kernel, stride, padding, dilation, ceil, -np.inf)
    if values is None:
        return seen.max(-1)
    moved = windows(values, kernel, stride, padding, dilation, ceil, -np.inf)
    return np.take_along_axis(moved, seen.argmax(-1)[..., None], -1)[..., 0]


def avg_pool2d(
    x: Array,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    ceil: bool = False,
    count_padding: bool = True,
) -> Array:
    """The mean of each window; what lies past the second margin is never counted."""
    inside = np.pad(
        np.ones_like(x),
        [(0, 0), (0, 0), *((p, p) for p in padding)],
        constant_values=float(count_padding),
    )
    given = (kernel, stride)
    sums = windows(x, *given, padding, ceil=ceil).sum(-1)
    p, q = sums.shape[2:]
    least = [(n - 1) * stride[i] + kernel[i] for i, n in enumerate((p, q))]
    room = _padded(inside, (0, 0), (least[0], least[1]))
    counts = sum(
        room[:, :, _places(p, stride[0], i), _places(q, stride[1], j)]
        for i in range(kernel[0])
        for j in range(kernel[1])
    )
    return sums / counts


def adjoint(function: Any, shape: tuple[int, ...], g: Array) -> Array:
    """The transpose of a linear function of arrays of `shape`, applied to g, column by column."""
    out = np.zeros(shape)
    for at in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[at] = 1.0
        out[at] = (function(unit) * g).sum()
    return out
