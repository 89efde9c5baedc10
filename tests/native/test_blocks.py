"""Convolution and pooling of images in blocks of 16 channels, on every ISA, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, EPARAM, ESHAPE, OK, run, set_threads, step

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(17)


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def blocked(x: Any) -> Any:
    """[n, c, h, w] as [n, c/16, h, w, 16]."""
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // 16, 16, h, w).transpose(0, 1, 3, 4, 2))


def plain(x: Any) -> Any:
    n, b, h, w, _ = x.shape
    return x.transpose(0, 1, 4, 2, 3).reshape(n, b * 16, h, w)


def weights(w: Any) -> Any:
    """[o, c, kh, kw] as [o/16, c/16, kh, kw, 16, 16], or of one block of c channels."""
    o, c, kh, kw = w.shape
    deep = min(c, 16)
    cut = w.reshape(o // 16, 16, c // deep, deep, kh, kw)
    return np.ascontiguousarray(cut.transpose(0, 2, 4, 5, 3, 1))


def minimal(w: Any) -> Any:
    """[o, c, 3, 3] as [16, o/16, c, 16]."""
    g = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    points = np.einsum("iy,ocyx,jx->ijoc", g, w.astype(np.float64), g)
    o, c = w.shape[:2]
    cut = points.reshape(16, o // 16, 16, c).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(cut.astype(np.float32))


def patches(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float) -> Any:
    """[n, c, p, q, kh, kw] in f64; padding at both ends."""
    pad = [(0, 0), (0, 0), *((p, p) for p in padding)]
    x = np.pad(x.astype(np.float64), pad, constant_values=fill)
    out = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    found = np.empty((*x.shape[:2], *out, *kernel))
    for ty in range(kernel[0]):
        for tx in range(kernel[1]):
            y, z = ty * dilation[0], tx * dilation[1]
            rows = slice(y, y + (out[0] - 1) * stride[0] + 1, stride[0])
            found[..., ty, tx] = x[:, :, rows, z : z + (out[1] - 1) * stride[1] + 1 : stride[1]]
    return found


def image(out: tuple[int, ...]) -> Any:
    n, c, h, w = out
    return np.full((n, c // 16, h, w, 16), np.nan, np.float32)


# channels, out channels, size, kernel, stride, padding, dilation
SHAPES = {
    "first layer": (3, 32, (17, 19), (7, 7), (2, 2), (3, 3), (1, 1)),
    "one channel": (1, 16, (9, 40), (5, 5), (1, 1), (0, 0), (1, 1)),
    "a part of a block": (6, 16, (12, 12), (5, 5), (1, 1), (0, 0), (1, 1)),
    "1 x 1": (32, 80, (7, 9), (1, 1), (1, 1), (0, 0), (1, 1)),
    "3 x 3": (16, 48, (15, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    "chunks": (144, 16, (5, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "spread": (16, 64, (11, 14), (3, 2), (2, 3), (2, 1), (2, 3)),
    "outside": (16, 16, (1, 2), (3, 3), (1, 1), (3, 3), (1, 1)),
}


@pytest.mark.parametrize("end", ["plain", "relu", "relu6", "added"])
@pytest.mark.parametrize("name", SHAPES)
def test_convolution(name: str, end: str) -> None:
    c, o, size, kernel, stride, padding, dilation = SHAPES[name]
    x, w, bias = draw(2, c, *size), draw(o, c, *kernel), draw(o)
    wanted = np.einsum(
        "ncpqyx,ocyx->nopq", patches(x, kernel, stride, padding, dilation, 0.0), w.astype("f8")
    )
    wanted += bias.astype("f8")[:, None, None]
    more = draw(*wanted.shape)
    out, add = image(wanted.shape), None
    if end == "added":
        wanted, add = wanted + more, blocked(more)
    if end != "plain":
        wanted = wanted.clip(0.0, 6.0 if end == "relu6" else None)
    given = x if c < 16 and name != "a part of a block" else None
    if given is None:
        whole = np.zeros((2, -(-c // 16) * 16, *size), np.float32)
        whole[:, :c] = x
        given = blocked(whole)
    ints = (*stride, *padding, *dilation, {"plain": 0, "relu6": 2}.get(end, 1))
    run("conv_block", out, given, weights(w), bias, add, i=ints, f=(6.0,))
    limit = 1e-5 * np.sqrt(c * kernel[0] * kernel[1])
    assert np.abs(plain(out) - wanted).max() < limit


@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize("size", [(4, 4), (13, 7), (3, 30)])
def test_minimal_filtering(size: tuple[int, int], padding: tuple[int, int]) -> None:
    x, w, bias = draw(3, 32, *size), draw(80, 32, 3, 3), draw(80)
    one = (1, 1)
    wanted = np.einsum("ncpqyx,ocyx->nopq", patches(x, (3, 3), one, padding, one, 0.0), w)
    more = draw(*wanted.shape)
    wanted = np.maximum(wanted + bias.astype("f8")[:, None, None] + more, 0.0)
    out = image(wanted.shape)
    ints = (1, 1, *padding, 1, 1, 1)
    run("conv_winograd", out, blocked(x), minimal(w), bias, blocked(more), i=ints)
    assert np.abs(plain(out) - wanted).max() < 1e-4


@pytest.mark.parametrize("name", ["3 x 3", "spread", "outside"])
def test_each_channel_alone(name: str) -> None:
    _, _, size, kernel, stride, padding, dilation = SHAPES[name]
    x, w, bias = draw(2, 48, *size), draw(48, *kernel), draw(48)
    seen = patches(x, kernel, stride, padding, dilation, 0.0)
    wanted = np.einsum("ncpqyx,cyx->ncpq", seen, w.astype("f8"))
    wanted = np.maximum(wanted + bias.astype("f8")[:, None, None], 0.0)
    cut = np.ascontiguousarray(w.reshape(3, 16, *kernel).transpose(0, 2, 3, 1))
    out = image(wanted.shape)
    run("conv_block_depth", out, blocked(x), cut, bias, i=(*stride, *padding, *dilation, 1))
    assert np.abs(plain(out) - wanted).max() < 1e-4


@pytest.mark.parametrize("name", ["3 x 3", "spread", "outside"])
def test_maximum(name: str) -> None:
    _, _, size, kernel, stride, padding, dilation = SHAPES[name]
    x = draw(2, 32, *size)
    x[0, 3, 0, 0] = np.nan
    wanted = patches(x, kernel, stride, padding, dilation, -np.inf).max((4, 5))
    out = image(wanted.shape)
    run("max_pool_block", out, blocked(x), i=(*stride, *padding, *dilation, *kernel))
    assert np.array_equal(plain(out), wanted.astype(np.float32), equal_nan=True)


def test_bits_do_not_depend_on_threads_or_on_other_images() -> None:
    x, w = blocked(draw(3, 32, 14, 14)), draw(64, 32, 3, 3)
    for op, weight in (("conv_block", weights(w)), ("conv_winograd", minimal(w))):
        seen = set()
        for count in (1, 2, 3):
            set_threads(count)
            for images in (x, x[1:2]):
                out = image((len(images), 64, 14, 14))
                run(op, out, images, weight, None, None, i=(1, 1, 1, 1, 1, 1))
                seen.add(out[len(images) // 2].tobytes())
        assert len(seen) == 1


GOOD: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv_block": (
        lambda: [image((1, 32, 6, 6)), blocked(draw(1, 16, 6, 6)), weights(draw(32, 16, 3, 3))],
        (1, 1, 1, 1, 1, 1),
    ),
    "conv_winograd": (
        lambda: [image((1, 32, 6, 6)), blocked(draw(1, 16, 6, 6)), minimal(draw(32, 16, 3, 3))],
        (1, 1, 1, 1, 1, 1),
    ),
    "conv_block_depth": (
        lambda: [image((1, 16, 6, 6)), blocked(draw(1, 16, 6, 6)), draw(1, 3, 3, 16)],
        (1, 1, 1, 1, 1, 1),
    ),
    "max_pool_block": (
        lambda: [image((1, 16, 6, 6)), blocked(draw(1, 16, 6, 6))],
        (1, 1, 1, 1, 1, 1, 3, 3),
    ),
}
ABSENT = {"conv_block": 2, "conv_winograd": 2, "conv_block_depth": 1, "max_pool_block": 0}


@pytest.mark.parametrize("op", GOOD)
def test_what_does_not_fit_is_refused(op: str) -> None:
    make, ints = GOOD[op]
    rest = [None] * ABSENT[op]
    assert step(op, *make(), *rest, i=ints) == OK
    assert step(op, *make(), *rest, None, i=ints) == EARGS
    for place in range(len(make())):
        views = make()
        views[place] = views[place].astype(np.float64)
        assert step(op, *views, *rest, i=ints) in (EDTYPE, ESHAPE)
        views = make()
        views[place] = np.repeat(views[place], 2, -1)[..., ::2]
        assert step(op, *views, *rest, i=ints) == ESHAPE
        for axis in range(views[place].ndim):
            views = make()
            views[place] = np.ascontiguousarray(views[place][(slice(None),) * axis + (slice(1),)])
            status = step(op, *views, *rest, i=ints)
            assert status in (OK, ESHAPE, EDTYPE, EPARAM)
    for at in range(len(ints)):
        for odd in (-1, 0, 65, 2**40, 2**63 - 1, -(2**63)):
            changed = (*ints[:at], odd, *ints[at + 1 :])
            assert step(op, *make(), *rest, i=changed) in (OK, EPARAM, ESHAPE)
    if op != "max_pool_block":
        assert step(op, *make(), *rest, i=(*ints, 3)) == EPARAM


def test_sizes_of_zero() -> None:
    nothing = np.empty((0, 1, 4, 4, 16), np.float32)
    run("max_pool_block", nothing, nothing, i=(1, 1, 0, 0, 1, 1, 1, 1))
    none = np.empty((2, 1, 0, 5, 16), np.float32)
    out = image((2, 16, 2, 5))
    run("conv_block_depth", out, none, draw(1, 1, 1, 16), None, i=(1, 1, 1, 0, 1, 1))
    assert not out.any()
