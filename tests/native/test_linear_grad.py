"""Gradients of linear: the bits of matmul on transposed views, and sums of columns in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, set_threads, step
from harness import run as call

SIZES = [
    (1, 64, 64),
    (1, 1, 1),
    (3, 10, 84),
    (32, 17, 33),
    (64, 120, 256),
    (300, 20, 70),
    (0, 4, 5),
]
Array = Any


def draw(m: int, n: int, k: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(m + n + k)
    g, x, w = (rng.standard_normal(s).astype(np.float32) for s in ((m, n), (m, k), (n, k)))
    return g, x, w


def gradients(g: Array, x: Array, w: Array) -> tuple[Array, Array, Array]:
    gx, gw, gb = np.ones_like(x), np.ones_like(w), np.ones(w.shape[0], np.float32)
    call("linear_grad", gx, gw, gb, g, x, w)
    return gx, gw, gb


def product(a: Array, b: Array) -> Array:
    return call("matmul", np.ones((a.shape[0], b.shape[1]), np.float32), a, b)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_each_has_the_bits_of_its_parts(each_isa: str, m: int, n: int, k: int) -> None:
    g, x, w = draw(m, n, k)
    gx, gw, gb = gradients(g, x, w)
    np.testing.assert_array_equal(gx, product(g, w))
    np.testing.assert_array_equal(gw, product(g.T, x))
    np.testing.assert_array_equal(gb, g.sum(0, dtype=np.float64).astype(np.float32))


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_strides_change_no_bit(each_isa: str, m: int, n: int, k: int) -> None:
    g, x, w = draw(m, n, k)
    want = gradients(g, x, w)
    turned = [np.asfortranarray(v) for v in (g, x, w)]
    wide = [np.repeat(v, 2, axis=1)[::-1, ::2][::-1] for v in (g, x, w)]
    for views in (turned, wide):
        for got, expected in zip(gradients(*views), want, strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_repeated_gradient_is_read_where_it_is(each_isa: str) -> None:
    _, x, w = draw(5, 6, 7)
    one = np.broadcast_to(np.float32(0.5), (5, 6))
    for got, want in zip(gradients(one, x, w), gradients(one.copy(), x, w), strict=True):
        np.testing.assert_array_equal(got, want)


def test_each_may_be_absent(each_isa: str) -> None:
    g, x, w = draw(4, 20, 30)
    want = gradients(g, x, w)
    for wanted in range(3):
        outs: list[Array] = [None, None, None]
        outs[wanted] = np.ones_like(want[wanted])
        call("linear_grad", *outs, g, x, w)
        np.testing.assert_array_equal(outs[wanted], want[wanted])


def test_threads_change_no_bit() -> None:
    results = []
    for count in (1, 2, 5):
        set_threads(count)
        results.append(gradients(*draw(128, 200, 300)))
    set_threads(2)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(got, want)


def test_views_that_do_not_fit_are_refused(each_isa: str) -> None:
    g, x, w = draw(4, 5, 6)
    gx, gw, gb = np.ones_like(x), np.ones_like(w), np.ones(5, np.float32)
    assert step("linear_grad", gx, gw, gb, g, x) == EARGS
    assert step("linear_grad", gx, gw, gb, g, x, w.T) == ESHAPE
    assert step("linear_grad", gx[:3], gw, gb, g, x, w) == ESHAPE
    assert step("linear_grad", gx, gw.T, gb, g, x, w) == ESHAPE
    assert step("linear_grad", gx, gw, gb[:4], g, x, w) == ESHAPE
    assert step("linear_grad", gx, gw, gb, g[:3], x, w) == ESHAPE
    assert step("linear_grad", gx, gw, gb, g.astype(np.float64), x, w) == EDTYPE
