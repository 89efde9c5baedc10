"""matmul: every dtype against float64 or exact integers, any strides, and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, bf16, from_bf16, step, to_bf16
from harness import run as call
from products import FUSED, Array, on_isa, pack, same_bits, threads

SIZES = [
    (1, 1, 1), (1, 16, 300), (2, 31, 64), (3, 32, 257), (5, 17, 33), (8, 48, 256), (13, 97, 40),
    (16, 64, 512), (17, 64, 512), (40, 40, 40), (300, 20, 70), (70, 300, 20), (1, 1000, 100),
]  # fmt: skip
WHOLE = [np.int64, np.int32, np.uint32, np.uint8]


def data(m: int, n: int, k: int, batch: tuple[int, ...] = ()) -> tuple[Array, Array]:
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    a, b = rng.standard_normal((*batch, m, k)), rng.standard_normal((*batch, k, n))
    return a.astype(np.float32), b.astype(np.float32)


def run(a: Array, b: Array, dtype: Any = np.float32) -> Array:
    out = np.ones((*a.shape[:-1], b.shape[-1]), dtype)
    call("matmul", out, a, b)
    return out


def close(got: Array, a: Array, b: Array) -> bool:
    """Within what sums of 256 terms in f32, then of blocks, can lose."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    terms = min(a.shape[-1], 256) + a.shape[-1] // 256 + 3
    return bool((np.abs(got - a @ b) <= np.abs(a) @ np.abs(b) * terms * 2.0**-24).all())


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_matches_float64(each_isa: str, m: int, n: int, k: int) -> None:
    a, b = data(m, n, k)
    assert close(run(a, b), a, b)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_strides_change_no_bit(each_isa: str, m: int, n: int, k: int) -> None:
    a, b = data(m, n, k)
    want = run(a, b)
    a_wide, b_wide = np.zeros((2 * m, 3 * k), np.float32), np.zeros((k, n + 5), np.float32)
    a_wide[::2, ::3], b_wide[:, 2:-3] = a, b
    for x in (a, np.asfortranarray(a), a_wide[::2, ::3], a[::-1, ::-1].copy()[::-1, ::-1]):
        for y in (b, np.asfortranarray(b), b_wide[:, 2:-3], b[::-1, ::-1].copy()[::-1, ::-1]):
            assert same_bits(run(x, y), want)
    out = np.zeros((n, 2 * m), np.float32).T[::2]
    call("matmul", out, a, b)
    assert same_bits(out, want)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_sums_as_linear_does(each_isa: str, m: int, n: int, k: int) -> None:
    a, b = data(m, n, k)
    out = np.empty((m, n), np.float32)
    call("linear", out, a, pack(b.T), None)
    assert same_bits(run(a, b), out)
    assert same_bits(run(a[m // 2 : m // 2 + 1], b), out[m // 2 : m // 2 + 1])


@pytest.mark.parametrize("batch", [(3,), (2, 3), (2, 1, 3, 2), (0,), (2, 2, 2, 1, 1, 1)])
def test_batches_are_products_of_their_own(each_isa: str, batch: tuple[int, ...]) -> None:
    a, b = data(7, 20, 33, batch)
    got = run(a, b)
    for index in np.ndindex(*batch):
        assert same_bits(got[index], run(a[index], b[index]))
    turned = np.ascontiguousarray(np.moveaxis(a, -2, 0))
    assert same_bits(run(np.moveaxis(turned, 0, -2), b), got)


def test_a_shared_matrix_is_a_zero_stride(each_isa: str) -> None:
    a, b = data(7, 20, 33, (4,))
    shared = np.broadcast_to(b[1], b.shape)
    assert same_bits(run(a, shared), run(a, shared.copy()))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_thread_counts_give_the_same_bits(each_isa: str, count: int) -> None:
    a, b = data(270, 250, 300, (2,))
    with threads(1):
        want = run(a, b)
    with threads(count):
        assert same_bits(run(a, b), want)
        assert same_bits(run(np.asfortranarray(a), b), want)


@pytest.mark.parametrize("m", [1, 3, 64])
@pytest.mark.parametrize("panels", [1, 5, 68, 133])
def test_few_rows_give_the_same_bits_however_cut(each_isa: str, m: int, panels: int) -> None:
    """An odd panel, a rest of k that fills no step, and tasks as wide as the thread count asks."""
    a, b = data(m, 16 * panels, 277)
    with threads(1):
        want = run(a, b)
        assert close(want, a, b)
        assert same_bits(run(np.vstack([a, a[::-1]] * 9), b)[:m], want)
    for count in (2, 3, 5):
        with threads(count):
            assert same_bits(run(a, b), want)


def test_isas_with_fused_multiply_add_agree_to_the_bit() -> None:
    a, b = data(23, 70, 600)
    results = set()
    for name in FUSED:
        with on_isa(name):
            results.add(run(a, b).tobytes())
    assert len(results) <= 1


def test_half_types_convert_at_the_edges_and_sum_in_f32(each_isa: str) -> None:
    a, b = data(19, 37, 400)
    a16, b16 = a.astype(np.float16), b.astype(np.float16)
    want = run(a16.astype(np.float32), b16.astype(np.float32))
    assert same_bits(run(a16, b16), want)
    assert same_bits(run(a16.copy(order="F"), b16.copy(order="F")), want)
    assert same_bits(run(a16, b16, np.float16), want.astype(np.float16))
    out = np.zeros((19, 37), np.uint16)
    call("matmul", bf16(out), bf16(to_bf16(a)), bf16(to_bf16(b)))
    assert same_bits(out, to_bf16(run(from_bf16(to_bf16(a)), from_bf16(to_bf16(b)))))


def test_f64(each_isa: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 9, 50)), rng.standard_normal((2, 50, 130))
    exact = np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    for y in (b, np.moveaxis(np.moveaxis(b, 1, 2).copy(), 1, 2)):
        assert np.abs(run(a, y, np.float64) - exact).max() < 1e-13


@pytest.mark.parametrize("dtype", WHOLE)
def test_integers_wrap(each_isa: str, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, info.max, (5, 70), dtype, endpoint=True)
    b = rng.integers(info.min, info.max, (70, 67), dtype, endpoint=True)
    with np.errstate(over="ignore"):
        want = np.einsum("ik,kj->ij", a, b)
    assert same_bits(run(a, b, dtype), want)
    assert same_bits(run(a[::-1], b[:, ::-1], dtype), np.ascontiguousarray(want[::-1, ::-1]))


def test_nothing_and_no_terms(each_isa: str) -> None:
    for m, n in ((0, 3), (3, 0)):
        assert run(*data(m, n, 4)).shape == (m, n)
    for dtype in (np.float32, np.float64, np.int32, np.float16):
        a, b = np.ones((3, 0), dtype), np.ones((0, 20), dtype)
        assert (run(a, b, dtype) == 0).all()


def test_a_nan_times_zero_is_a_nan(each_isa: str) -> None:
    a, b = data(20, 40, 30)
    a[4], b[7, 9] = 0, np.nan
    got = run(a, b)
    assert np.isnan(got[:, 9]).all()
    assert np.isfinite(np.delete(got, 9, 1)).all()


def test_wrong_calls_are_told(each_isa: str) -> None:
    a, b = data(4, 6, 8)
    out = np.zeros((4, 6), np.float32)
    assert step("matmul", out, a) == EARGS
    assert step("matmul", out, a[:, :7], b) == ESHAPE
    assert step("matmul", out, a[:3], b) == ESHAPE
    assert step("matmul", out, a, b[:, :5]) == ESHAPE
    assert step("matmul", out[None], a, b) == ESHAPE
    assert step("matmul", out[0], a[0], b[0]) == ESHAPE
    assert step("matmul", out, a.astype(np.int32), b) == EDTYPE
    assert step("matmul", out, a.astype(np.float64), b) == EDTYPE
    assert step("matmul", out > 0, a > 0, b > 0) == EDTYPE
