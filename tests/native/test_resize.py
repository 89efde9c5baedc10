"""resize2d and its adjoint against NumPy float64, on every ISA."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, EPARAM, ESHAPE, OK, run, set_threads, step

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(47)
NEAREST, LINEAR, CORNERS = range(3)
SIZES = [((4, 5), (8, 10)), ((5, 7), (3, 2)), ((1, 1), (3, 4)), ((6, 3), (1, 1)), ((7, 9), (7, 9)),
         ((3, 10), (11, 7)), ((2, 33), (5, 70))]  # fmt: skip


def matrix(n: int, m: int, mode: int) -> Any:
    """[m, n] float64: what each output takes of each input along one axis."""
    out = np.zeros((m, n))
    for i in range(m):
        if mode == NEAREST:
            out[i, i * n // m] = 1
            continue
        at = Fraction(i * (n - 1), max(m - 1, 1))
        if mode == LINEAR:
            at = min(max(Fraction((2 * i + 1) * n, 2 * m) - Fraction(1, 2), 0), n - 1)
        a = int(at)
        out[i, a] += float(1 - (at - a))
        out[i, min(a + 1, n - 1)] += float(at - a)
    return out


def resized(x: Any, size: tuple[int, int], mode: int) -> Any:
    """In float64."""
    rows, columns = (matrix(x.shape[2 + i], size[i], mode) for i in range(2))
    return np.einsum("py,bcyx,qx->bcpq", rows, x.astype(np.float64), columns)


def spread(g: Any, size: tuple[int, int], mode: int) -> Any:
    """The adjoint, in float64."""
    rows, columns = (matrix(size[i], g.shape[2 + i], mode) for i in range(2))
    return np.einsum("py,bcpq,qx->bcyx", rows, g.astype(np.float64), columns)


@pytest.mark.parametrize("mode", [NEAREST, LINEAR, CORNERS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m"), SIZES)
def test_both_directions(n: Any, m: Any, dtype: Any, mode: int) -> None:
    """Larger, smaller, to and from one element, unchanged; nearest is exact."""
    bound = 0 if mode == NEAREST else 8 * np.finfo(dtype).eps
    x = RNG.uniform(-1, 1, (2, 3, *n)).astype(dtype)
    got = run("resize2d", np.empty((2, 3, *m), dtype), x, i=(mode,))
    assert np.abs(got - resized(x, m, mode)).max() <= bound
    g = RNG.integers(-8, 8, (2, 3, *m)).astype(dtype)
    got = run("resize2d_grad", np.full((2, 3, *n), 9, dtype), g, i=(mode,))
    want = spread(g, n, mode)
    assert (np.abs(got - want) <= 8 * bound * (1 + np.abs(want))).all()


@pytest.mark.parametrize("mode", [NEAREST, LINEAR, CORNERS])
def test_strides_change_no_bit(mode: int) -> None:
    """Channels last, reversed, stepped, repeated; strided outputs."""
    base = RNG.standard_normal((2, 12, 10, 3)).astype(np.float32)
    views = (
        base.transpose(0, 3, 1, 2),
        base.transpose(0, 3, 2, 1)[..., ::-1],
        base[:, ::2].transpose(0, 3, 1, 2)[:, :, ::-1],
        np.broadcast_to(base.transpose(0, 3, 1, 2)[:, :1], (2, 4, 12, 10)),
    )
    for x in views:
        shape = (*x.shape[:2], 9, 14)
        plain = run("resize2d", np.empty(shape, np.float32), x.copy(), i=(mode,))
        out = np.empty((shape[0], shape[2], 2 * shape[3], shape[1]), np.float32)
        strided = out.transpose(0, 3, 1, 2)[..., ::2]
        np.testing.assert_array_equal(run("resize2d", strided, x, i=(mode,)), plain)
        back = run("resize2d_grad", np.empty(x.shape, np.float32), plain, i=(mode,))
        turned = np.empty(x.shape[::-1], np.float32).T
        np.testing.assert_array_equal(run("resize2d_grad", turned, strided, i=(mode,)), back)


def test_threads_change_no_bit() -> None:
    x = RNG.standard_normal((2, 5, 90, 70)).astype(np.float32)
    found = []
    for n in (1, 2, 5):
        set_threads(n)
        y = run("resize2d", np.empty((2, 5, 133, 201), np.float32), x, i=(LINEAR,))
        back = run("resize2d_grad", np.empty_like(x), y, i=(LINEAR,))
        found.append(y.tobytes() + back.tobytes())
    set_threads(2)
    assert len(set(found)) == 1


def test_a_weight_of_zero_takes_no_part() -> None:
    """An infinite neighbour makes no NaN where nothing of it is taken."""
    x = np.array([1.0, np.inf, 2.0], np.float32).reshape(1, 1, 1, 3)
    for mode in (NEAREST, LINEAR, CORNERS):
        same = run("resize2d", np.empty_like(x), x, i=(mode,))
        np.testing.assert_array_equal(same, x)


def test_what_resize_refuses() -> None:
    x, y = np.ones((1, 2, 3, 4), np.float32), np.ones((1, 2, 6, 8), np.float32)
    for name, pair in (("resize2d", (y, x)), ("resize2d_grad", (x, y))):
        assert step(name, *pair, i=(3,)) == EPARAM == step(name, *pair, i=(-1,))
        assert step(name, *(a.astype(np.float16) for a in pair)) == EDTYPE
        assert step(name, pair[0], pair[1].astype(np.float64)) == EDTYPE
        assert step(name, pair[0], pair[1][:, :1]) == ESHAPE
        assert step(name, pair[0], pair[1][0]) == ESHAPE
        assert step(name, pair[0]) == EARGS
    assert step("resize2d", y, x[:, :, :0]) == ESHAPE == step("resize2d_grad", x[..., :0], y)
    assert step("resize2d", y[:0], x[:0]) == OK
    for mode in (NEAREST, LINEAR, CORNERS):
        assert step("resize2d", y[..., :0], x, i=(mode,)) == OK
    grad = np.ones((1, 2, 3, 4), np.float32)
    assert (run("resize2d_grad", grad, y[:, :, :0]) == 0).all()
