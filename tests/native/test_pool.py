"""Pooling and its adjoints against their meaning in NumPy, on every ISA.

The maximum copies one element, so it is exact; an average divides a sum made in f64, so it is
within one unit in the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, EPARAM, ESHAPE, OK, run, set_threads, step

from support import images

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(31)

# name: shape, kernel, stride, padding, dilation, ceil
SHAPES: dict[str, tuple[Any, ...]] = {
    "pairs": ((3, 4, 12, 34), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "pairs of odd": ((2, 3, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),
    "overlapping": ((2, 3, 11, 13), (3, 3), (2, 2), (1, 1), (1, 1), False),
    "ceil": ((1, 2, 10, 8), (3, 3), (2, 2), (0, 0), (1, 1), True),
    "uneven": ((2, 2, 9, 17), (3, 2), (1, 3), (1, 0), (1, 1), False),
    "dilated": ((1, 3, 14, 15), (3, 2), (2, 1), (1, 1), (2, 3), False),
    "whole": ((2, 5, 7, 7), (7, 7), (1, 1), (0, 0), (1, 1), False),
    "one": ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0), (1, 1), False),
}


def scattered(x: Any) -> Any:
    """The same values backwards, with gaps, axes turned."""
    big = np.full((x.shape[3], 2 * x.shape[1], x.shape[0], 3 * x.shape[2]), np.nan, x.dtype)
    view = big[::-1, ::2, :, ::3].transpose(2, 1, 3, 0)
    view[...] = x
    return view


def sizes(name: str) -> tuple[int, ...]:
    """Shape of the windows."""
    shape, kernel, stride, padding, dilation, ceil = SHAPES[name]
    given = zip(shape[2:], kernel, stride, padding, dilation, strict=True)
    return (*shape[:2], *(images.pool_size(*one, ceil) for one in given))


def draw(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Few different values, so that windows hold equals."""
    return RNG.integers(-4, 5, shape).astype(dtype)


layouts = pytest.mark.parametrize(
    "layout", [lambda x: x, scattered], ids=["row-major", "scattered"]
)
dtypes = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@dtypes
@layouts
@pytest.mark.parametrize("name", SHAPES)
def test_maximum_and_its_adjoint(name: str, layout: Any, dtype: Any) -> None:
    """The first of equals is chosen, and it alone takes the gradient."""
    shape, kernel, stride, padding, dilation, ceil = SHAPES[name]
    how, given = (*kernel, *stride, *padding, *dilation), (kernel, stride, padding, dilation, ceil)
    x, other, g = (
        layout(draw(shape, dtype)),
        layout(draw(shape, dtype)),
        layout(draw(sizes(name), dtype)),
    )
    for values in (x, other):
        out = layout(np.full(sizes(name), np.nan, dtype))
        run("max_pool2d", out, x, values, i=how)
        np.testing.assert_array_equal(out, images.max_pool2d(x, *given, values=values))
    back = layout(np.full(shape, np.nan, dtype))
    run("max_unpool2d", back, x, g, i=how)
    picked = run("max_pool2d", np.empty(sizes(name), dtype), x, np.ascontiguousarray(other), i=how)
    assert (back * other).sum() == (g * picked).sum()
    assert (back != 0).sum() <= g.size


@dtypes
@layouts
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("name", [n for n in SHAPES if n != "dilated"])
def test_average_and_its_adjoint(name: str, counted: bool, layout: Any, dtype: Any) -> None:
    """Margins count or not; what lies past the second margin never does."""
    shape, kernel, stride, padding, _, ceil = SHAPES[name]
    how = (*kernel, *stride, *padding, int(counted))
    x = layout(RNG.standard_normal(shape).astype(dtype))
    g = layout(RNG.standard_normal(sizes(name)).astype(dtype))
    out = run("avg_pool2d", layout(np.full(sizes(name), np.nan, dtype)), x, i=how)
    want = images.avg_pool2d(x.astype(float), kernel, stride, padding, ceil, counted)
    unit = np.finfo(dtype).eps
    np.testing.assert_allclose(out, want, rtol=unit, atol=8 * np.finfo(float).eps)
    back = run("avg_unpool2d", layout(np.full(shape, np.nan, dtype)), g, i=how)
    np.testing.assert_allclose((back * x).sum(), (g * out).sum(), rtol=1e-3, atol=1e-3)


def test_nan_and_infinity() -> None:
    """The first NaN of a window wins; infinities order as numbers do."""
    x = np.full((1, 1, 4, 8), -np.inf, np.float32)
    x[0, 0, 1, 1], x[0, 0, 2, 2], x[0, 0, 3, 3], x[0, 0, 0, 7] = np.nan, 1, np.nan, np.inf
    out = run("max_pool2d", np.empty((1, 1, 2, 4), "f4"), x, x, i=(2, 2, 2, 2, 0, 0, 1, 1))
    np.testing.assert_array_equal(out[0, 0, 0], [np.nan, -np.inf, -np.inf, np.inf])
    np.testing.assert_array_equal(out[0, 0, 1], [-np.inf, np.nan, -np.inf, -np.inf])
    g = np.ones((1, 1, 2, 4), np.float32)
    back = run("max_unpool2d", np.empty_like(x), x, g, i=(2, 2, 2, 2, 0, 0, 1, 1))
    assert back[0, 0, 1, 1] == 1
    assert back[0, 0, 3, 3] == 1
    assert back.sum() == 8


def test_bits_do_not_depend_on_threads() -> None:
    """One thread and three."""
    x = RNG.standard_normal((9, 8, 30, 31)).astype(np.float32)
    kept = []
    for threads in (1, 3):
        set_threads(threads)
        out = run("avg_pool2d", np.empty((9, 8, 10, 10), "f4"), x, i=(3, 3, 3, 3, 0, 0, 1))
        most = run("max_pool2d", np.empty((9, 8, 15, 15), "f4"), x, x, i=(2, 2, 2, 2, 0, 0, 1, 1))
        kept.append(out.tobytes() + most.tobytes())
    set_threads(2)
    assert kept[0] == kept[1]


@pytest.mark.parametrize("shape", [(0, 2, 4, 4), (2, 0, 4, 4)])
def test_nothing_in_or_out(shape: tuple[int, ...]) -> None:
    """No images or no channels: nothing is read or written."""
    x, small = np.zeros(shape, "f4"), np.zeros((*shape[:2], 2, 2), "f4")
    run("max_pool2d", small, x, x, i=(2, 2, 2, 2, 0, 0, 1, 1))
    run("max_unpool2d", x, x, small, i=(2, 2, 2, 2, 0, 0, 1, 1))
    run("avg_pool2d", small, x, i=(2, 2, 2, 2, 0, 0, 1))
    run("avg_unpool2d", x, small, i=(2, 2, 2, 2, 0, 0, 1))


def test_what_is_refused() -> None:
    """Counts, types, shapes and parameters that memory safety needs."""
    x, small = np.zeros((1, 2, 6, 6), "f4"), np.zeros((1, 2, 3, 3), "f4")
    for op, views, good in (
        ("max_pool2d", (small, x, x), (2, 2, 2, 2, 0, 0, 1, 1)),
        ("max_unpool2d", (x, x, small), (2, 2, 2, 2, 0, 0, 1, 1)),
        ("avg_pool2d", (small, x), (2, 2, 2, 2, 0, 0, 1)),
        ("avg_unpool2d", (x, small), (2, 2, 2, 2, 0, 0, 1)),
    ):
        assert step(op, *views, i=good) == OK
        assert step(op, *views[:-1], i=good) == EARGS
        assert step(op, *(v.astype("i4") for v in views), i=good) == EDTYPE
        assert step(op, views[0].astype("f8"), *views[1:], i=good) == EDTYPE
        assert step(op, views[0][0], *views[1:], i=good) == ESHAPE
        for at, bad in ((0, 0), (1, 1 << 40), (2, 0), (3, -1), (4, -1), (5, 1 << 40)):
            assert step(op, *views, i=(*good[:at], bad, *good[at + 1 :])) == EPARAM
