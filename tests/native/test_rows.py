"""softmax, log_softmax, layer_norm, rms_norm, topk against NumPy float64, on every ISA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    ENOMEM,
    ESHAPE,
    bf16,
    from_bf16,
    run,
    set_threads,
    step,
    to_bf16,
)

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(13)
WIDTHS = [1, 2, 3, 7, 15, 16, 17, 31, 33, 384, 511, 513, 2000, 49152]


def softmax(x: Any) -> Any:
    """In float64, over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, w: Any = 1.0, b: Any = 0.0, epsilon: float = 1e-5) -> Any:
    """In float64."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon) * w + b


def rms_norm(x: Any, w: Any = 1.0, epsilon: float = 1e-5) -> Any:
    """In float64."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * w


def rows(d: int, n: int = 3) -> Any:
    """Normal numbers of scale 4."""
    return (RNG.standard_normal((n, d)) * 4).astype(np.float32)


@pytest.mark.parametrize("d", WIDTHS)
def test_rows_equal_float64(d: int) -> None:
    """Every width around a vector and a tile."""
    x, w, b = rows(d), rows(d, 1)[0], rows(d, 1)[0]
    exact = x.astype(np.float64)
    np.testing.assert_allclose(run("softmax", np.empty_like(x), x), softmax(exact), rtol=4e-6)
    got = run("log_softmax", np.empty_like(x), x)
    np.testing.assert_allclose(got, np.log(softmax(exact)), rtol=1e-6, atol=2e-6)
    got = run("layer_norm", np.empty_like(x), x, w, b, f=(1e-5,))
    np.testing.assert_allclose(got, layer_norm(exact, w, b), rtol=1e-6, atol=2e-6)
    got = run("rms_norm", np.empty_like(x), x, w, f=(1e-5,))
    np.testing.assert_allclose(got, rms_norm(exact, w), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_strides_dtypes_and_in_place(op: str) -> None:
    """Transposed and reversed views; f64, f16, bf16; out is in."""
    model = {"softmax": softmax, "log_softmax": lambda x: np.log(softmax(x))}
    model |= {"layer_norm": layer_norm, "rms_norm": rms_norm}
    absent = [None] * {"layer_norm": 2, "rms_norm": 1}.get(op, 0)
    base = RNG.standard_normal((37, 5, 9))
    for x in (base, base.transpose(2, 1, 0), base[::-2, :, ::-1].transpose(1, 2, 0)):
        want = model[op](x)
        for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 3e-6), (np.float16, 5e-3)):
            y = x.astype(dtype) if dtype != np.float64 else x
            view = np.empty(y.T.shape, dtype).T
            got = run(op, view, y, *absent, f=(1e-5,))
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
        bits = to_bf16(x)
        got = run(op, bf16(np.zeros(x.shape, np.uint16)), bf16(bits), *absent, f=(1e-5,))
        np.testing.assert_allclose(from_bf16(got), want, rtol=2e-2, atol=2e-2)
        own = np.array(x, np.float32)
        expect = run(op, np.empty_like(own), own, *absent, f=(1e-5,))
        assert run(op, own, own, *absent, f=(1e-5,)).tobytes() == expect.tobytes()


def test_half_softmax_rows_sum_to_one() -> None:
    """candle#3727: zeros (1, 4096) give 1/4096 each, in f16 and bf16."""
    half = run("softmax", np.zeros((1, 4096), np.float16), np.zeros((1, 4096), np.float16))
    assert (half == 1 / 4096).all()
    zeros = np.zeros((1, 4096), np.uint16)
    assert (from_bf16(run("softmax", bf16(zeros.copy()), bf16(zeros))) == 1 / 4096).all()


def test_softmax_at_the_ends() -> None:
    """pytorch#41508: -inf gives 0; only a row of -inf alone, or with a NaN, gives NaN."""
    inf, nan = np.inf, np.nan
    x = np.zeros((5, 40), np.float32)
    x[0, 3] = -inf
    x[1] = -inf
    x[2, 39] = nan
    x[3] = np.linspace(-3e38, 3e38, 40)
    got = run("softmax", np.empty_like(x), x)
    assert got[0, 3] == 0 and abs(got[0].sum() - 1) < 1e-6
    assert np.isnan(got[1]).all() and np.isnan(got[2]).all()
    assert got[3, 39] == 1 and (got[3, :39] == 0).all()
    assert np.abs(got[4] - 1 / 40).max() < 1e-8
    logs = run("log_softmax", np.empty_like(x), x)
    assert logs[0, 3] == -inf and np.isnan(logs[1]).all() and np.isnan(logs[2]).all()


def test_norms_of_constant_and_extreme_rows() -> None:
    """onnxruntime#21935 (constant row), mlx#2238 (around 1449.5), pytorch PR 178123 (1e30)."""
    constant = np.full((2, 256), 1234.0, np.float32)
    w, b = np.full(256, 3.0, np.float32), np.full(256, 0.5, np.float32)
    assert (run("layer_norm", np.empty_like(constant), constant, w, b, f=(1e-5,)) == 0.5).all()
    near = (1449.5 + RNG.uniform(-0.25, 0.25, (4, 16))).astype(np.float32)
    got = run("layer_norm", np.empty_like(near), near, None, None, f=(1e-5,))
    np.testing.assert_allclose(got, layer_norm(near.astype(np.float64)), atol=1e-6)
    for size in (1e30, 3e38):
        far = np.array([[size, -size] * 8], np.float32)
        for op, absent in (("layer_norm", (None, None)), ("rms_norm", (None,))):
            got = run(op, np.empty_like(far), far, *absent, f=(1e-5,))
            np.testing.assert_allclose(got, [[1, -1] * 8], rtol=1e-6)


def test_a_row_does_not_depend_on_its_neighbours_or_on_threads() -> None:
    """Bit for bit."""
    x = rows(384, 500)
    w = rows(384, 1)[0]
    for op, more in (("softmax", ()), ("layer_norm", (w, w)), ("rms_norm", (w,))):
        whole = []
        for n in (1, 3):
            set_threads(n)
            whole.append(run(op, np.empty_like(x), x, *more, f=(1e-5,)))
        set_threads(2)
        one = run(op, np.empty((1, 384), np.float32), x[77:78], *more, f=(1e-5,))
        assert whole[0].tobytes() == whole[1].tobytes()
        assert one.tobytes() == whole[0][77:78].tobytes()


def test_what_rows_refuse() -> None:
    """Ranks, sizes, dtypes; rows of no width and no rows are nothing to do."""
    x, w = rows(8), np.ones(8, np.float32)
    out = np.zeros_like(x)
    assert step("softmax", out[:2], x) == ESHAPE
    assert step("softmax", np.empty((), np.float32), np.empty((), np.float32)) == ESHAPE
    assert step("softmax", out.astype(np.int32), x.astype(np.int32)) == EDTYPE
    assert step("softmax", out.astype(np.float64), x) == EDTYPE
    assert step("layer_norm", out, x, w[:7], None) == ESHAPE
    assert step("layer_norm", out, x, w.astype(np.float64), None) == EDTYPE
    assert step("layer_norm", out, x, w) == EARGS
    assert step("rms_norm", out, x, w, w) == EARGS
    assert step("softmax", out[:0], x[:0]) == 0 == step("softmax", out[:, :0], x[:, :0])


# -- topk -----------------------------------------------------------------------------------------


def best(x: Any, k: int) -> Any:
    """Indices of the k greatest, ties by index, NaN first."""
    key = np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x
    order = np.argsort(-key.astype(np.float64), axis=-1, kind="stable")
    if x.dtype.kind == "f":  # NaN before inf
        nan = np.take_along_axis(np.isnan(x), order, -1)
        again = np.argsort(~nan, axis=-1, kind="stable")
        order = np.take_along_axis(order, again, -1)
    return order[..., :k]


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8]
)
@pytest.mark.parametrize(
    ("n", "k"), [(1, 1), (7, 7), (50, 3), (300, 65), (3000, 100), (5000, 4999)]
)
def test_topk_with_many_ties(dtype: Any, n: int, k: int) -> None:
    """Descending, ties by the lower index; heap and sort alike."""
    x = RNG.integers(0, 1 + n // 4, (3, n)).astype(dtype)
    for y in (x, x[::-1, ::-1], np.asfortranarray(x)):
        values, ids = np.zeros((3, k), dtype), np.zeros((k, 3), np.int64).T
        run("topk", values, ids, y)
        assert (ids == best(y, k)).all()
        assert (values == np.take_along_axis(y, ids, -1)).all()


@pytest.mark.parametrize("k", [1, 5, 40, 200])
def test_topk_counts_nan_as_the_greatest(k: int) -> None:
    """NaN, inf, zeros of both signs (one tie), subnormals."""
    x = RNG.standard_normal((2, 200)).astype(np.float32)
    x[0, [3, 150]] = np.nan
    x[0, [7, 9]] = np.inf, -np.inf
    x[1, ::3] = 0.0
    x[1, 1::3] = -0.0
    x[1, 2] = 1e-45
    values, ids = np.zeros((2, k), np.float32), np.zeros((2, k), np.int64)
    run("topk", values, ids, x)
    assert (ids == best(x, k)).all()


def test_topk_of_a_vocabulary() -> None:
    """262,144 wide, any k."""
    x = RNG.standard_normal((1, 262144)).astype(np.float32)
    order = best(x, 262144)
    for k in (1, 64, 5000, 40000, 262144):
        values, ids = np.zeros((1, k), np.float32), np.zeros((1, k), np.int64)
        run("topk", values, ids, x)
        assert (ids == order[:, :k]).all()


def test_what_topk_refuses() -> None:
    """k beyond n; dtypes; none is fine."""
    x, values, ids = (
        np.zeros((2, 3), np.float32),
        np.zeros((2, 4), np.float32),
        np.zeros((2, 4), int),
    )
    assert step("topk", values, ids, x) == ESHAPE
    assert step("topk", values[:, :2], ids[:, :3], x) == ESHAPE
    assert step("topk", values[:1, :2], ids[:1, :2], x) == ESHAPE
    assert step("topk", values[:, :2], ids[:, :2].astype(np.int32), x) == EDTYPE
    assert step("topk", values[:, :2].astype(np.float64), ids[:, :2], x) == EDTYPE
    assert step("topk", values[:, :0], ids[:, :0], x[:, :0]) == 0


def test_a_row_too_long_for_memory_is_a_status() -> None:
    """A broadcast axis whose bytes overflow a number is refused, never a short buffer."""
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, np.float16), (2**61,), (0,))
    assert step("topk", np.zeros(1, np.float16), np.zeros(1, np.int64), endless) == ENOMEM
