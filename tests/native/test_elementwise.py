"""unary, binary and compare kernels against NumPy float64, with bounds in ULP, on every ISA."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness import (
    EARGS,
    EDIVZERO,
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
    ulps,
)

pytestmark = pytest.mark.usefixtures("each_isa")
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(17)
INF, NAN = math.inf, math.nan
SPECIAL = [
    0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 1e-45, -1e-45, 1.1754942e-38, 1e-38, 3.4e38,
    -3.4e38, 88.72283, 88.72284, -87.33655, -103.97, -104.0, 65504.0, 2.0**23 + 1, 2.0**31, 1.5,
    2.5,
]  # fmt: skip
EDGES = np.array(SPECIAL, np.float32)
_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def sigmoid(x: Array) -> Array:
    """Exact in both tails."""
    z = np.exp(-np.abs(x))
    return np.where(x < 0, z, 1.0) / (1.0 + z)


def silu(x: Array) -> Array:
    """0 at -inf."""
    return np.where(x == -INF, -0.0, x * sigmoid(x))


def gelu(x: Array) -> Array:
    """By erfc, so that the lower tail keeps its digits."""
    return np.where(x < -39, -0.0, 0.5 * x * _erfc(-x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    """x sigmoid(2u)."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.where(x < -39, -0.0, np.where(x > 39, x, x * sigmoid(2 * u)))


# name: float64 model, range to sample, bound in ULP, smallest |result| where the bound holds
UNARY: dict[str, tuple[Callable[[Array], Array], tuple[float, float], float, float]] = {
    "neg": (np.negative, (-9, 9), 0.5, 0),
    "abs": (np.abs, (-9, 9), 0.5, 0),
    "sign": (np.sign, (-9, 9), 0.5, 0),
    "sqr": (np.square, (-9, 9), 0.501, 0),
    "sqrt": (np.sqrt, (0, 9), 0.501, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0, 9), 1.5, 0),
    "recip": (lambda x: 1 / x, (-9, 9), 0.501, 0),
    "exp": (np.exp, (-106, 90), 1.05, 0),
    "log": (np.log, (0, 9), 1.0, 0),
    "sin": (np.sin, (-1e5, 1e5), 1.6, 0),
    "cos": (np.cos, (-1e5, 1e5), 1.6, 0),
    "tanh": (np.tanh, (-10, 10), 1.5, 0),
    "erf": (_erf, (-4, 4), 3.5, 0),
    "sigmoid": (sigmoid, (-104, 20), 2.5, 0),
    "relu": (lambda x: np.where(x < 0, 0, x), (-9, 9), 0.5, 0),
    "gelu": (gelu, (-13, 9), 10, 1e-37),
    "gelu_tanh": (gelu_tanh, (-5, 9), 40, 1e-37),
    "silu": (silu, (-90, 20), 3.5, 1e-36),
    "floor": (np.floor, (-9, 9), 0.5, 0),
    "ceil": (np.ceil, (-9, 9), 0.5, 0),
    "round": (np.round, (-9, 9), 0.5, 0),
}
EVERY = {"gelu": (-13, 1e38), "gelu_tanh": (-5, 1e38)}  # ops not sampled over all bit patterns


def samples(op: str, low: float, high: float, n: int = 60_000) -> Array:
    """Uniform numbers, numbers near 0, all sorts of bit patterns, and the edges."""
    bits = RNG.integers(0, 2**32, n, dtype=np.uint32).view(np.float32)
    floor, ceiling = EVERY.get(op, (-INF, INF))
    bits = bits[~((bits < floor) | (bits > ceiling))]
    near = RNG.uniform(-1, 1, n // 4)
    chosen = np.concatenate([RNG.uniform(low, high, n), near, SPECIAL]).astype(np.float32)
    return np.concatenate([bits, chosen])


@pytest.mark.parametrize("op", UNARY)
def test_unary_within_its_bound(op: str) -> None:
    """Every function over its range, all bit patterns and the special values."""
    model, (low, high), bound, smallest = UNARY[op]
    x = samples(op, low, high)
    with np.errstate(all="ignore"):
        want = model(x.astype(np.float64))
    error = ulps(run(op, np.empty_like(x), x), want)
    error[(np.abs(want) < smallest) & (np.abs(error) < 1e3)] = 0
    worst = int(np.argmax(error))
    assert error[worst] <= bound, f"{error[worst]:.3f} ULP at {x[worst]!r}"


@pytest.mark.parametrize(
    "op", ["sin", "tanh", "erf", "neg", "abs", "floor", "ceil", "round", "sqrt"]
)
def test_the_sign_of_zero(op: str) -> None:
    """-0 in, the zero of C out."""
    got = run(op, np.empty(2, np.float32), np.array([0.0, -0.0], np.float32))
    want = UNARY[op][0](np.array([0.0, -0.0]))
    assert (np.signbit(got) == np.signbit(want)).all() and (got == 0).all()


def test_sine_of_large_angles() -> None:
    """Reduced by 96 bits of 2/pi; NumPy's float64 is the model."""
    x = (2.0 ** RNG.uniform(29, 127.9, 20_000)).astype(np.float32) * RNG.choice([-1, 1], 20_000)
    for op, model in (("sin", np.sin), ("cos", np.cos)):
        got = run(op, np.empty(x.shape, np.float32), x.astype(np.float32))
        assert ulps(got, model(x.astype(np.float64))).max() <= 1.6


@pytest.mark.parametrize("op", UNARY)
def test_unary_f64_and_half(op: str) -> None:
    """f64 is C's double; f16 and bf16 are f32's result rounded once."""
    model, (low, high), _, _ = UNARY[op]
    x = RNG.uniform(max(low, -30), min(high, 30), (31, 45))
    got = run(op, np.empty_like(x), x)
    np.testing.assert_allclose(got, model(x), rtol=1e-13, atol=1e-300)
    half = x.astype(np.float16)
    single = run(op, np.empty(half.shape, np.float32), half.astype(np.float32))
    with np.errstate(over="ignore"):
        want = single.astype(np.float16)
    np.testing.assert_array_equal(run(op, np.empty_like(half), half), want)
    bits = to_bf16(x)
    single = run(op, np.empty(x.shape, np.float32), from_bf16(bits))
    np.testing.assert_array_equal(run(op, bf16(np.empty_like(bits)), bf16(bits)), to_bf16(single))


def test_unary_integers() -> None:
    """neg abs sign sqr relu floor ceil round; wrapping; functions of real numbers are refused."""
    x = np.array([-(2**31), -5, 0, 7, 2**31 - 1], np.int32)
    assert run("neg", np.empty_like(x), x).tolist() == [-(2**31), 5, 0, -7, -(2**31) + 1]
    assert run("abs", np.empty_like(x), x).tolist() == [-(2**31), 5, 0, 7, 2**31 - 1]
    assert run("sign", np.empty_like(x), x).tolist() == [-1, -1, 0, 1, 1]
    assert run("sqr", np.empty_like(x), x).tolist() == [0, 25, 0, 49, 1]
    assert run("relu", np.empty_like(x), x).tolist() == [0, 0, 0, 7, 2**31 - 1]
    for op in ("floor", "ceil", "round"):
        assert (run(op, np.empty_like(x), x) == x).all()
    big = np.array([-(2**63)])
    assert run("abs", np.empty_like(big), big).tolist() == [-(2**63)]
    assert step("exp", np.empty_like(x), x) == EDTYPE


# -- shapes and strides ---------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 511, 512, 513, 1030, 70_001])
def test_every_length(n: int) -> None:
    """Around a vector, a tile and the parallel grain; nothing beyond the end is touched."""
    x, y = RNG.standard_normal((2, n)).astype(np.float32)
    out = np.full(n + 40, 7, np.float32)
    run("add", out[20 : 20 + n], x, y)
    assert (
        (out[20 : 20 + n] == x + y).all() and (out[:20] == 7).all() and (out[20 + n :] == 7).all()
    )


VIEWS: list[Callable[[Array], Array]] = [
    lambda a: a,
    lambda a: a.transpose(2, 0, 1),
    lambda a: a[::-1, :, ::-1],
    lambda a: a[:, ::3],
    lambda a: a[:, :1, ::2],
    lambda a: np.broadcast_to(a[:1, :, :1], a.shape),
    lambda a: np.broadcast_to(a[0, 0, :], (5, *a[0].shape)),
    lambda a: a[:, :0],
    lambda a: a.reshape(1, -1, 1)[:, ::-2],
]


@pytest.mark.parametrize("view", range(len(VIEWS)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8])
def test_any_strides(view: int, dtype: Any) -> None:
    """Negative, zero and odd strides on inputs and output (pytorch#92680, numpy#23349)."""
    x = VIEWS[view](RNG.integers(1, 9, (9, 13, 21)).astype(dtype))
    y = RNG.integers(1, 9, x.shape[::-1]).astype(dtype).T
    for out in (
        np.empty(x.shape, dtype),
        np.empty(x.shape[::-1], dtype).T,
        np.empty(x.shape, dtype)[::-1],
    ):
        assert (run("add", out, x, y) == x + y).all()
        assert (run("mul", out, y, x) == x * y).all()


def test_strides_of_length_1_axes_are_ignored() -> None:
    """pytorch#195394: whatever stands there."""
    x = np.arange(6, dtype=np.float32)
    odd = np.lib.stride_tricks.as_strided(x, (1, 6, 1), (2**40, 4, -(2**40)))
    assert (run("add", np.empty((1, 6, 1), np.float32), odd, odd).ravel() == 2 * x).all()


def test_views_with_offsets() -> None:
    """candle#1914: one-element views taken from a row."""
    x = np.arange(4, dtype=np.float32)
    assert run("add", np.empty(1, np.float32), x[1:2], x[3:4])[0] == 4


def test_in_place_and_threads_change_nothing() -> None:
    """out may be one of the inputs; bits do not depend on the pool."""
    x, y = RNG.standard_normal((2, 300_001)).astype(np.float32)
    want = run("mul", np.empty_like(x), x, y).tobytes()
    for n in (1, 3):
        set_threads(n)
        own = x.copy()
        assert run("mul", own, own, y).tobytes() == want
        assert run("gelu", np.empty_like(x), x).tobytes() == run("gelu", x.copy(), x).tobytes()
    set_threads(2)


# -- binary ---------------------------------------------------------------------------------------

BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "floor_div": np.floor_divide, "rem": np.remainder,
    "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_binary_floats_are_exactly_rounded(op: str, dtype: Any) -> None:
    """Including NaN in either place (pytorch#25016), infinities and zeros."""
    x, y = (RNG.standard_normal((2, 5000)) * 100).astype(dtype)
    a, b = np.meshgrid(EDGES.astype(dtype), EDGES.astype(dtype))
    x, y = np.concatenate([x, a.ravel()]), np.concatenate([y, b.ravel()])
    with np.errstate(all="ignore"):
        want = BINARY[op](x, y)
    np.testing.assert_array_equal(run(op, np.empty_like(x), x, y), want)


def test_power() -> None:
    """Within 0.51 ULP; C's special cases."""
    x = np.concatenate([RNG.uniform(-3, 3, 40_000), 10.0 ** RNG.uniform(-44, 38, 40_000)])
    y = np.concatenate([RNG.integers(-6, 7, 20_000), RNG.uniform(-40, 40, 60_000)])
    a, b = np.meshgrid([*SPECIAL, 2, -2, 3, -3], [*SPECIAL, 2, -2, 3, -3, 2.0**24 + 2])
    x = np.concatenate([x, a.ravel()]).astype(np.float32)
    y = np.concatenate([y, b.ravel()]).astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(run("pow", np.empty_like(x), x, y), want).max() <= 0.51


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint32, np.uint8])
def test_integer_arithmetic_wraps_and_divides_towards_minus_infinity(dtype: Any) -> None:
    """pytorch#44858 #67770: a == (a // b) * b + a % b."""
    info = np.iinfo(dtype)
    x = RNG.integers(info.min, info.max, 3000, dtype, endpoint=True)
    y = RNG.integers(info.min, info.max, 3000, dtype, endpoint=True)
    y[::3] = RNG.integers(max(info.min, -4), 5, 1000)
    y[y == 0] = 3
    with np.errstate(over="ignore"):
        for op in ("add", "sub", "mul", "maximum", "minimum", "floor_div", "rem"):
            assert (run(op, np.empty_like(x), x, y) == BINARY[op](x, y)).all()
        assert (run("div", np.empty_like(x), x, y) == np.floor_divide(x, y)).all()
        small = (np.abs(y.astype(np.int64)) % 9).astype(dtype)
        assert (run("pow", np.empty_like(x), x, small) == np.power(x, small)).all()
    case = np.array([1, -1], np.int32)
    assert run("div", np.empty_like(case), case, case * 0 + 2).tolist() == [0, -1]


def test_integer_division_by_zero_is_a_status_not_a_signal() -> None:
    """pytorch#327; INT_MIN / -1 wraps."""
    ones = np.ones(700, np.int32)
    assert step("div", np.empty_like(ones), ones, ones * 0) == EDIVZERO
    assert step("floor_div", np.empty_like(ones), ones, ones * 0) == EDIVZERO
    assert step("rem", np.empty_like(ones), ones, ones * 0) == EDIVZERO
    assert step("pow", np.empty_like(ones), ones, -ones) == EPARAM
    low = np.array([-(2**63)])
    assert run("div", np.empty_like(low), low, np.array([-1])).tolist() == [-(2**63)]


def test_bool_arithmetic() -> None:
    """Sums are or, products are and."""
    x, y = np.array([[False, False, True, True], [False, True, False, True]])
    assert run("add", np.empty_like(x), x, y).tolist() == [False, True, True, True]
    assert run("mul", np.empty_like(x), x, y).tolist() == [False, False, False, True]
    assert run("maximum", np.empty_like(x), x, y).tolist() == [False, True, True, True]


# -- compare --------------------------------------------------------------------------------------

COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("op", COMPARE)
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_]
)
def test_compare_is_exact(op: str, dtype: Any) -> None:
    """All dtypes, strides, broadcasts, NaN; i64 beyond 2^53."""
    x = RNG.integers(0, 4, (37, 50)).astype(dtype)
    y = RNG.integers(0, 4, (50, 37)).astype(dtype).T
    if x.dtype.kind == "f":
        x[3], y[:, 4] = NAN, NAN
    if dtype is np.int64:
        x, y = x + 2**62, y + 2**62
    for a, b in ((x, y), (x[:, ::-2], y[:, ::-2]), (x, np.broadcast_to(y[:1], x.shape))):
        for out in (np.empty(a.shape, np.bool_), np.empty(a.shape[::-1], np.bool_).T):
            assert (run(op, out, a, b) == COMPARE[op](a, b)).all()


def test_what_elementwise_refuses() -> None:
    """Counts, shapes, dtypes, nulls; no elements are nothing to do."""
    x = np.ones((2, 3), np.float32)
    assert step("add", x, x) == EARGS
    assert step("exp", x, x, x) == EARGS
    assert step("add", x, x, x[:1]) == ESHAPE
    assert step("add", x, x, x.astype(np.float16)) == EDTYPE
    assert step("add", x.astype(np.float64), x, x) == EDTYPE
    assert step("add", x[:, :0], x[:, :0], x[:, :0]) == OK
    assert step("eq", x, x, x) == EDTYPE
    assert step("eq", x > 0, x, x.astype(np.int32)) == EDTYPE
    assert step("add", np.empty(0, np.float32), None, None) == OK
