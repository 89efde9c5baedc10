"""cumsum against NumPy float64 and int64, on every ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    EPARAM,
    ESHAPE,
    OK,
    bf16,
    from_bf16,
    run,
    set_threads,
    step,
    to_bf16,
)

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(41)
INTS = [np.int64, np.int32, np.uint32, np.uint8, np.bool_]


def exact(x: Any, axis: int) -> Any:
    """Running sums in float64, rounded once to the dtype of x."""
    return np.cumsum(x.astype(np.float64), axis).astype(x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("shape", [(1,), (7,), (513,), (5, 1100), (600, 3), (3, 4, 5), (2, 9, 700)])
def test_cumsum_is_the_rounded_sum_in_f64(dtype: Any, shape: tuple[int, ...]) -> None:
    """Every axis; lines and columns alike, bit for bit."""
    x = RNG.standard_normal(shape).astype(dtype)
    for axis in range(len(shape)):
        got = run("cumsum", np.empty(shape, dtype), x, i=(axis,))
        np.testing.assert_array_equal(got, exact(x, axis))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_strides_change_no_bit(dtype: Any) -> None:
    """Transposed, reversed, stepped and repeated inputs; strided outputs."""
    base = RNG.standard_normal((40, 66)).astype(dtype)
    for x in (base.T, base[::-1], base[:, ::-2], np.broadcast_to(base[:1], (9, 66))):
        for axis in (0, 1):
            want = exact(x, axis)
            np.testing.assert_array_equal(
                run("cumsum", np.empty(x.shape, dtype), x, i=(axis,)), want
            )
            out = np.empty((x.shape[1], 2 * x.shape[0]), dtype)[:, ::2].T[:, ::-1]
            np.testing.assert_array_equal(run("cumsum", out, x, i=(axis,)), want)


@pytest.mark.parametrize("dtype", INTS)
def test_integers_sum_to_i64_and_wrap(dtype: Any) -> None:
    """As NumPy's; no signal where a sum does not fit."""
    x = RNG.integers(0, 2, (6, 5)).astype(dtype)
    for axis in (0, 1):
        got = run("cumsum", np.empty((6, 5), np.int64), x, i=(axis,))
        np.testing.assert_array_equal(got, np.cumsum(x, axis, dtype=np.int64))
    far = np.array([2**63 - 1, 1, -(2**63), 5])
    got = run("cumsum", np.empty(4, np.int64), far, i=(0,))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, np.cumsum(far))


def test_bf16_and_special_values() -> None:
    """NaN and infinities go on to the end; 4096 ones add up in bf16."""
    x = to_bf16(np.ones(4096))
    got = from_bf16(run("cumsum", bf16(np.empty(4096, np.uint16)), bf16(x), i=(0,)))
    assert got[-1] == 4096
    x = np.array([1, np.inf, 2, -np.inf, 3, np.nan, 4], np.float32)
    with np.errstate(invalid="ignore"):
        want = np.cumsum(x)
    np.testing.assert_array_equal(run("cumsum", np.empty(7, np.float32), x, i=(0,)), want)


def test_a_long_sum_does_not_drift() -> None:
    """pytorch#55657 (T28): ten million terms of 0.1 within one unit of f64's."""
    x = np.full(10_000_000, 0.1, np.float32)
    got = run("cumsum", np.empty_like(x), x, i=(0,))
    assert got[-1] == np.float32(np.float64(np.float32(0.1)) * 1e7)


def test_threads_change_no_bit() -> None:
    x = RNG.standard_normal((300, 1000)).astype(np.float32)
    for axis in (0, 1):
        outs = []
        for n in (1, 2, 5):
            set_threads(n)
            outs.append(run("cumsum", np.empty_like(x), x, i=(axis,)))
        set_threads(2)
        assert all(o.tobytes() == outs[0].tobytes() for o in outs)


def test_what_cumsum_refuses() -> None:
    x = np.ones((2, 3), np.float32)
    assert step("cumsum", x.copy(), x, i=(2,)) == EPARAM == step("cumsum", x.copy(), x, i=(-1,))
    assert step("cumsum", np.empty((), np.float32), np.ones((), np.float32), i=(0,)) == EPARAM
    assert step("cumsum", np.empty((2, 3)), x) == EDTYPE
    assert step("cumsum", np.empty((2, 3), np.int32), x.astype(np.int32)) == EDTYPE
    assert step("cumsum", np.empty((3, 2), np.float32), x) == ESHAPE
    assert step("cumsum", x) == EARGS
    assert step("cumsum", x[:0].copy(), x[:0]) == OK
    assert step("cumsum", x[:, :0].copy(), x[:, :0], i=(0,)) == OK
