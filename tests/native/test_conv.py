"""conv2d and its two adjoints against NumPy float64, on every ISA.

A sum of k products stays within k/8 + 8 units in the last place of the sum of their magnitudes,
as blocks of 256 in order do; that is far below what an error of indexing makes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, EPARAM, ESHAPE, OK, run, set_threads, step

from support import images

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(29)

# name: x, weight, stride, padding, dilation, groups
SHAPES: dict[str, tuple[Any, ...]] = {
    "lenet 1": ((3, 1, 28, 28), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1), 1),
    "lenet 2": ((5, 6, 12, 12), (16, 6, 5, 5), (1, 1), (0, 0), (1, 1), 1),
    "one pixel": ((7, 3, 1, 1), (5, 3, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "pointwise": ((2, 40, 24, 24), (33, 40, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "pointwise stride": ((2, 8, 15, 14), (9, 8, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    "3x3 stride": ((2, 9, 17, 16), (20, 9, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    "stem": ((1, 3, 40, 37), (8, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    "uneven": ((2, 4, 13, 19), (6, 2, 2, 5), (3, 1), (2, 0), (2, 3), 2),
    "stride 3 dilation 2": ((2, 3, 20, 20), (4, 3, 3, 3), (3, 3), (2, 1), (2, 2), 1),
    "stride 4 dilation 6": ((1, 2, 30, 31), (3, 2, 3, 4), (4, 4), (6, 5), (6, 2), 1),
    "stride past the kernel": ((2, 2, 16, 16), (3, 2, 2, 2), (5, 4), (0, 0), (1, 1), 1),
    "all margin": ((1, 2, 2, 2), (3, 2, 3, 3), (1, 1), (4, 4), (1, 1), 1),
    "deep": ((2, 70, 7, 7), (17, 70, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "groups": ((2, 12, 9, 9), (8, 3, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise": ((2, 5, 20, 70), (5, 1, 3, 3), (1, 1), (1, 1), (1, 1), 5),
    "depthwise stride": ((3, 4, 15, 33), (4, 1, 3, 3), (2, 2), (1, 1), (1, 1), 4),
    "depthwise dilated": ((1, 3, 11, 40), (3, 1, 5, 4), (1, 3), (4, 2), (2, 2), 3),
    "depthwise 5x5": ((2, 3, 9, 21), (3, 1, 5, 5), (1, 1), (2, 2), (1, 1), 3),
    "depthwise 5x5 stride": ((1, 3, 13, 40), (3, 1, 5, 5), (2, 2), (2, 1), (1, 1), 3),
    "depthwise low": ((2, 4, 3, 7), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), 4),
    "depthwise cropped": ((1, 2, 9, 9), (2, 1, 3, 3), (2, 2), (3, 4), (1, 1), 2),
    "depthwise inner": ((2, 2, 14, 11), (2, 1, 3, 3), (2, 2), (0, 0), (1, 1), 2),
    "depthwise small": ((5, 3, 7, 7), (3, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    "depth multiplier": ((2, 3, 9, 9), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    "a column": ((2, 64, 1, 1), (4, 64, 125, 1), (2, 1), (63, 0), (1, 1), 1),
    "wide": ((1, 2, 5, 900), (3, 2, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many images": ((21, 3, 7, 7), (9, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "many images stride": ((18, 5, 9, 9), (3, 5, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    "taps far apart": ((1, 2, 40, 9), (3, 2, 3, 3), (1, 1), (9, 1), (9, 1), 1),
    "long": ((2, 3, 1, 1000), (4, 3, 1, 9), (1, 2), (0, 4), (1, 1), 1),
}


def params(name: str) -> tuple[int, ...]:
    """As the kernels take them."""
    *_, stride, padding, dilation, groups = SHAPES[name]
    return (*stride, *padding, *dilation, groups)


def options(name: str) -> dict[str, Any]:
    """As the oracle takes them."""
    *_, stride, padding, dilation, groups = SHAPES[name]
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}


def sizes(name: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shapes of x, weight and result."""
    x, w, stride, padding, dilation, _ = SHAPES[name]
    pairs = zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    return x, w, (x[0], w[0], *(images.conv_size(*pair) for pair in pairs))


def draw(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def scattered(x: Any) -> Any:
    """The same values at strides that nothing likes: backwards, with gaps, axes turned."""
    big = np.full((x.shape[3], 2 * x.shape[1], x.shape[0], 3 * x.shape[2]), np.nan, x.dtype)
    view = big[::-1, ::2, :, ::3].transpose(2, 1, 3, 0)
    view[...] = x
    return view


def close(got: Any, want: Any, magnitude: Any, k: int) -> None:
    """Within the bound of a sum of k terms of this magnitude."""
    unit = np.finfo(got.dtype).eps
    assert got.shape == want.shape
    assert (np.abs(got - want) <= unit * (8 + k / 8) * magnitude + 1e-30).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [lambda x: x, scattered], ids=["row-major", "scattered"])
@pytest.mark.parametrize("name", SHAPES)
def test_three_products_equal_float64(name: str, layout: Any, dtype: Any) -> None:
    """pytorch#1246 (weights with gaps), #195394 (odd strides of axes of one), #18948."""
    shape_x, shape_w, shape_y = sizes(name)
    x, w, g = (layout(draw(s, dtype)) for s in (shape_x, shape_w, shape_y))
    wide = [a.astype(np.float64) for a in (x, w, g)]
    size = [np.abs(a) for a in wide]
    given, bias = options(name), draw(shape_w[:1], dtype)
    out = layout(np.full(shape_y, np.nan, dtype))
    run("conv2d", out, x, w, bias, i=params(name))
    top = images.conv2d(size[0], size[1], np.abs(bias).astype(float), **given)
    want = images.conv2d(wide[0], wide[1], bias.astype(float), **given)
    close(out, want, top, int(np.prod(shape_w[1:])))
    back = layout(np.full(shape_x, np.nan, dtype))
    run("conv2d_input", back, g, w, None, i=params(name))
    hw = shape_x[2:]
    want = images.conv2d_input(wide[2], wide[1], hw, **given)
    close(back, want, images.conv2d_input(size[2], size[1], hw, **given), int(np.prod(shape_w)))
    grad = np.full(shape_w, np.nan, dtype)
    run("conv2d_weight", grad, x, g, i=params(name))
    want = images.conv2d_weight(wide[0], wide[2], shape_w[2:], **given)
    top = images.conv2d_weight(size[0], size[2], shape_w[2:], **given)
    close(grad, want, top, int(np.prod(shape_y[2:])) * shape_y[0])


def test_transposed_with_bias() -> None:
    """A transposed convolution: positions that no tap meets hold the bias alone."""
    g, w, bias = draw((2, 3, 4, 4)), draw((3, 2, 2, 2)), draw((2,))
    out = np.full((2, 2, 13, 13), np.nan, np.float32)
    run("conv2d_input", out, g, w, bias, i=(4, 4, 1, 1, 1, 1, 1))
    want = images.conv2d_input(g, w, (13, 13), bias, (4, 4), (1, 1))
    np.testing.assert_allclose(out, want, atol=1e-5)
    assert (out[:, :, 1::4, 1::4] == bias[:, None, None]).all()


@pytest.mark.parametrize(
    "name",
    [
        "lenet 1",
        "lenet 2",
        "3x3 stride",
        "deep",
        "groups",
        "depthwise",
        "depthwise small",
        "depthwise inner",
    ],
)
def test_bits_do_not_depend_on_threads_or_batch_mates(name: str) -> None:
    """One image alone, and one of many; one thread and three."""
    shape_x, shape_w, shape_y = sizes(name)
    many = 9
    x, w, g = draw((many, *shape_x[1:])), draw(shape_w), draw((many, *shape_y[1:]))
    kept = []
    for threads in (1, 3):
        set_threads(threads)
        kept.append(
            (
                run("conv2d", np.empty_like(g), x, w, None, i=params(name)),
                run("conv2d_input", np.empty_like(x), g, w, None, i=params(name)),
                run("conv2d_weight", np.empty_like(w), x, g, i=params(name)),
            )
        )
    set_threads(2)
    for one, other in zip(*kept, strict=True):
        assert one.tobytes() == other.tobytes()
    alone = run("conv2d", np.empty_like(g[4:5]), x[4:5], w, None, i=params(name))
    assert alone.tobytes() == kept[0][0][4:5].tobytes()
    alone = run("conv2d_input", np.empty_like(x[4:5]), g[4:5], w, None, i=params(name))
    assert alone.tobytes() == kept[0][1][4:5].tobytes()


@pytest.mark.parametrize(
    ("x", "w"),
    [
        ((0, 3, 8, 8), (4, 3, 3, 3)),
        ((2, 0, 8, 8), (4, 0, 3, 3)),
        ((2, 3, 8, 8), (0, 3, 3, 3)),
        ((2, 3, 2, 8), (4, 3, 3, 3)),
    ],
)
def test_nothing_in_or_out(x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """No images, no channels in or out, no results: zeros where there is anything at all."""
    y = (x[0], w[0], x[2] - 2, x[3] - 2)
    i = (1, 1, 0, 0, 1, 1, 1)
    out, back, grad = (np.full(s, np.nan, np.float32) for s in (y, x, w))
    zeros = [np.ones(s, np.float32) for s in (x, w, y)]
    run("conv2d", out, zeros[0], zeros[1], None, i=i)
    run("conv2d_input", back, zeros[2], zeros[1], None, i=i)
    run("conv2d_weight", grad, zeros[0], zeros[2], i=i)
    assert (out == 0).all()
    assert (back == 0).all()
    assert (grad == 0).all()


def test_one_nan_stays_where_it_belongs() -> None:
    """A NaN in one image and channel reaches its own window only, and a margin adds nothing."""
    x, w = draw((2, 3, 9, 9)), draw((4, 3, 3, 3))
    x[1, 2, 4, 4] = np.nan
    out = run("conv2d", np.empty((2, 4, 9, 9), np.float32), x, w, None, i=(1, 1, 1, 1, 1, 1, 1))
    seen = np.isnan(out)
    assert not seen[0].any()
    assert seen[1, :, 3:6, 3:6].all()
    assert seen.sum() == 4 * 9


def test_what_is_refused() -> None:
    """Counts, types, shapes and parameters that memory safety needs."""
    x, w, y = (
        np.zeros((1, 4, 8, 8), "f4"),
        np.zeros((6, 2, 3, 3), "f4"),
        np.zeros((1, 6, 6, 6), "f4"),
    )
    good = (1, 1, 0, 0, 1, 1, 2)
    for op, views in (
        ("conv2d", (y, x, w, None)),
        ("conv2d_input", (x, y, w, None)),
        ("conv2d_weight", (w, x, y)),
    ):
        assert step(op, *views, i=good) == OK
        assert step(op, *views[:2], i=good) == EARGS
        assert step(op, views[0].astype("f8"), *views[1:], i=good) == EDTYPE
        assert step(op, views[0].astype("i4"), *views[1:], i=good) == EDTYPE
        assert step(op, views[0][0], *views[1:], i=good) == ESHAPE
        for at, bad in ((0, 0), (1, -1), (2, -1), (3, 1 << 40), (4, 0), (5, 1 << 40), (6, 0)):
            wrong = (*good[:at], bad, *good[at + 1 :])
            assert step(op, *views, i=wrong) == EPARAM
        assert step(op, *views, i=(1, 1, 0, 0, 1, 1, 3)) == ESHAPE
    assert step("conv2d", y, x, w, np.zeros(5, "f4"), i=good) == ESHAPE
    assert step("conv2d", y, x, w, np.zeros(6, "f8"), i=good) == EDTYPE
    assert step("conv2d_weight", np.asfortranarray(w), x, y, i=good) == ESHAPE
