"""sum, mean, var, max, min, argmax, argmin against NumPy float64, on every ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    EPARAM,
    ESHAPE,
    ISAS,
    bf16,
    from_bf16,
    run,
    set_isa,
    set_threads,
    step,
    to_bf16,
)

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(11)
LENGTHS = [1, 2, 15, 16, 17, 31, 33, 511, 512, 513, 1025, 65537]
PLACES = {"argmax": np.argmax, "argmin": np.argmin}
BEST = {"max": np.max, "min": np.min}


def reduced(op: str, x: Any, axes: int = 1, out: Any = None, correction: int = 0) -> Any:
    """The operation over the last `axes` axes of x."""
    shape = x.shape[: x.ndim - axes]
    kind = out or (np.int64 if op.startswith("arg") else x.dtype)
    return run(op, np.zeros(shape, kind), x, i=(axes, correction))


@pytest.mark.parametrize("n", LENGTHS)
def test_sums_equal_float64(n: int) -> None:
    """sum, mean, var of f32 and f64 rows, contiguous or not."""
    whole = RNG.standard_normal((3, n + 5, 2)) * 3 + 1
    for x in (whole[:, :n, 0], whole[:, 5:, 1][:, ::-1]):
        for y in (x, x.astype(np.float32), np.asfortranarray(x.astype(np.float32))):
            exact = y.astype(np.float64)
            tight = (
                {"rtol": 1e-6, "atol": 1e-6 * n**0.5} if y.dtype == np.float32 else {"rtol": 1e-11}
            )
            np.testing.assert_allclose(reduced("sum", y), exact.sum(1), **tight)
            np.testing.assert_allclose(reduced("mean", y), exact.mean(1), **tight)
            np.testing.assert_allclose(reduced("var", y), exact.var(1), rtol=1e-6)


def test_the_order_of_a_sum_depends_on_its_shape_only() -> None:
    """The same bits for any strides, any number of threads, any neighbours, and any ISA."""
    x = RNG.standard_normal((40, 70000)).astype(np.float32)
    outs = {}
    for isa in ISAS:
        set_isa(isa)
        for op in ("sum", "mean", "var"):
            for threads in (1, 3):
                set_threads(threads)
                outs[isa, op, threads, "rows"] = reduced(op, x)
                outs[isa, op, threads, "columns"] = reduced(op, np.asfortranarray(x))
                one = [reduced(op, x[i : i + 1])[0] for i in range(40)]
                outs[isa, op, threads, "alone"] = np.array(one, np.float32)
    set_threads(2)
    for op in ("sum", "mean", "var"):
        assert len({o.tobytes() for key, o in outs.items() if key[1] == op}) == 1


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8]
)
def test_greatest_and_least_with_first_of_ties(n: int, dtype: Any) -> None:
    """Many ties: the first wins (pytorch#17738 #41998 #22853)."""
    x = RNG.integers(0, 5, (6, n)).astype(dtype)
    for y in (x, x[::-1, ::-1], np.asfortranarray(x)):
        for op, model in PLACES.items():
            assert (reduced(op, y) == model(y, 1)).all()
        for op, model in BEST.items():
            assert (reduced(op, y) == model(y, 1)).all()


def test_ties_of_the_case() -> None:
    """pytorch#17738: `[1, 1]` and 0."""
    x = np.array([[2, 3, 0, 3, 3], [1, 3, 1, 3, 1]], np.float32)
    assert reduced("argmax", x).tolist() == [1, 1]
    assert reduced("argmax", np.ones((1, 16), np.float32)).tolist() == [0]


@pytest.mark.parametrize("n", [1, 5, 16, 100, 70000])
def test_a_nan_wins_and_the_first_nan_is_the_place(n: int) -> None:
    """pytorch#25016."""
    x = RNG.standard_normal((8, n)).astype(np.float32)
    for row in range(1, 8):
        x[row, RNG.integers(0, n, row)] = np.nan
    x[0, n // 2] = np.inf
    for y in (x, np.asfortranarray(x), x.astype(np.float64)):
        for op, model in PLACES.items():
            assert (reduced(op, y) == model(y, 1)).all()
        for op, model in BEST.items():
            np.testing.assert_array_equal(reduced(op, y), model(y, 1))


def test_infinities_alone() -> None:
    """A row of -inf has its maximum at 0."""
    x = np.full((2, 600), -np.inf, np.float32)
    x[1] = np.inf
    assert reduced("argmax", x).tolist() == [0, 0] == reduced("argmin", x).tolist()
    assert reduced("max", x).tolist() == [-np.inf, np.inf] == reduced("min", x).tolist()


@pytest.mark.parametrize("axes", [0, 1, 2, 3])
def test_several_axes_and_awkward_strides(axes: int) -> None:
    """Every order of axes, reversed and stepped; indices count in row-major order."""
    base = RNG.integers(-50, 50, (6, 10, 14)).astype(np.float32)
    for perm in ((0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)):
        for x in (base.transpose(perm), base[::2, ::-1, ::3].transpose(perm)):
            flat = x.reshape(*x.shape[: 3 - axes], -1)
            assert (reduced("sum", x, axes) == flat.sum(-1)).all()
            assert (reduced("max", x, axes) == flat.max(-1)).all()
            assert (reduced("argmin", x, axes) == flat.argmin(-1)).all()
            np.testing.assert_allclose(
                reduced("var", x, axes), flat.astype(np.float64).var(-1), rtol=1e-6
            )


def test_broadcast_axes() -> None:
    """A zero stride counts every time."""
    x = np.broadcast_to(np.arange(5, dtype=np.float32)[:, None], (5, 700))
    assert (reduced("sum", x) == np.arange(5) * 700).all()
    assert reduced("argmax", x).tolist() == [0] * 5


def test_half_rows_round_only_at_the_end() -> None:
    """candle PR 3765: ones (4096, 2) f16 over axis 0; the mean of 65520 ones is 1, not inf."""
    ones = np.ones((4096, 2), np.float16)
    assert reduced("sum", ones.T).tolist() == [4096, 4096]
    assert reduced("sum", np.ones((2, 8192), np.float16)[:, ::2]).tolist() == [4096, 4096]
    assert reduced("mean", np.ones((1, 65520), np.float16)).tolist() == [1]
    assert np.isinf(reduced("sum", np.ones((1, 65520), np.float16))[0])
    assert reduced("sum", np.ones((1, 65520), np.float16), out=np.float32).tolist() == [65520]
    x = RNG.standard_normal((4, 3000))
    bits = to_bf16(x)
    got = from_bf16(run("sum", bf16(np.zeros(4, np.uint16)), bf16(bits), i=(1,)))
    exact = from_bf16(bits).astype(np.float64).sum(1)
    assert (got == from_bf16(to_bf16(exact.astype(np.float32)))).all()


def test_integers_sum_to_i64_and_wrap() -> None:
    """i32 u8 bool sum into i64; i64 wraps."""
    assert reduced("sum", np.full((2, 300), 255, np.uint8), out=np.int64).tolist() == [76500] * 2
    big = np.full((1, 4), 2**31 - 1, np.int32)
    assert reduced("sum", big, out=np.int64).tolist() == [4 * (2**31 - 1)]
    assert reduced("sum", np.full((1, 3), True), out=np.int64).tolist() == [3]
    assert reduced("sum", np.full((1, 2), 2**62)).tolist() == [-(2**63)]
    assert reduced("max", np.array([[2**62 + 1, 2**62]])).tolist() == [2**62 + 1]
    assert reduced("max", np.array([[False, True]])).tolist() == [True]


def test_empty_axes() -> None:
    """tinygrad PR 3318: sum 0, mean NaN, var NaN, max refused; no outputs: nothing to do."""
    x = np.zeros((3, 0), np.float32)
    assert reduced("sum", x).tolist() == [0, 0, 0]
    assert np.isnan(reduced("mean", x)).all()
    assert np.isnan(reduced("var", x)).all()
    for op in ("max", "min"):
        assert step(op, np.zeros(3, np.float32), x, i=(1,)) == ESHAPE
    assert step("argmax", np.zeros(3, np.int64), x, i=(1,)) == ESHAPE
    assert step("max", np.zeros(0, np.float32), np.zeros((0, 4), np.float32), i=(1,)) == 0
    assert reduced("sum", np.full((), 7, np.float32), 0) == 7
    assert np.isnan(reduced("var", np.ones((2, 3), np.float32), correction=3)).all()


def test_variance_is_robust() -> None:
    """mlx#2238: 16 values around 1449.5; pytorch PR 178123: f32 rows of 1e18 stay finite."""
    x = (1449.5 + RNG.uniform(-0.25, 0.25, (1, 16))).astype(np.float32)
    assert abs(reduced("var", x)[0] / x.astype(np.float64).var() - 1) < 1e-6
    far = np.array([[1e18, -1e18] * 50], np.float32)
    assert abs(reduced("var", far)[0] / 1e36 - 1) < 1e-6
    assert reduced("var", np.full((1, 777), 1234.5, np.float32))[0] == 0


def test_the_mean_of_millions_does_not_drift() -> None:
    """pytorch#55657: within 1e-5 of float64 (here 20 million items; in any number of threads)."""
    x = (RNG.random(20_000_000, np.float32) * 3).reshape(2, 2, -1)
    exact = x.astype(np.float64).mean()
    got = set()
    for threads in (1, 2):
        set_threads(threads)
        got.add(float(reduced("mean", x, 3)))
    assert len(got) == 1
    assert abs(got.pop() - exact) < 1e-7 * exact


def test_what_is_refused() -> None:
    """Dtypes, ranks, axes."""
    x, out = np.ones((2, 3), np.float32), np.zeros(2, np.float32)
    assert step("sum", out, x, i=(3,)) == EPARAM
    assert step("sum", out, x, i=(-1,)) == EPARAM
    assert step("sum", out, x, i=(2,)) == ESHAPE
    assert step("sum", np.zeros(3, np.float32), x, i=(1,)) == ESHAPE
    assert step("sum", out.astype(np.int64), x, i=(1,)) == EDTYPE
    assert step("argmax", out, x, i=(1,)) == EDTYPE
    assert step("max", out.astype(np.float16), x, i=(1,)) == EDTYPE
    assert step("mean", out, x.astype(np.int32), i=(1,)) == EDTYPE
    assert step("var", out, x, i=(1, -1)) == EPARAM
    assert step("sum", out, x, x, i=(1,)) == EARGS
