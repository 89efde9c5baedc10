"""Products with quantised blocks: equal to their definition to the bit on every ISA."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
from pathlib import Path
from typing import Any

import harness
import numpy as np
import pytest
from harness import OK, View, blocks, run, step
from numpy.typing import NDArray
from quant_model import FORMATS, product, quantise, random_rows, unpack

Array = NDArray[Any]
GOLDEN = Path(__file__).resolve().parents[1] / "golden/quant_blocks.npz"


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest) -> str:
    """Each block format."""
    return str(request.param)


def weight(name: str, rows: Array, n: int, k: int, stride: int | None = None) -> View:
    """Rows of blocks; `stride` in elements."""
    return blocks(rows, name, (n, k), (k if stride is None else stride, 1))


def linear(
    name: str, x: Array, rows: Array, bias: Array | None = None, act: int = 0, f32: int = 0
) -> Array:
    """out [m,n] f32 of the operation `linear`."""
    out = np.full((x.shape[0], rows.shape[0]), np.nan, np.float32)
    run("linear", out, x, weight(name, rows, rows.shape[0], x.shape[1]), bias, i=(act, f32))
    return out


def dequantised(name: str, rows: Array, k: int) -> Array:
    """The operation `copy` from blocks to f32."""
    out = np.empty((rows.shape[0], k), np.float32)
    run("copy", out, weight(name, rows, rows.shape[0], k))
    return out


def same(a: Array, b: Array) -> bool:
    """Equal to the bit; any NaN equals any other."""
    return a.shape == b.shape and bool(
        ((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all()
    )


def sizes(name: str) -> list[tuple[int, int]]:
    """(n, k) with rows that fill no group of 16, and odd numbers of blocks."""
    block = FORMATS[name][0]
    return [
        (1, block),
        (15, 2 * block),
        (16, 3 * block),
        (17, 2 * block),
        (45, 9 * block),
        (64, 8 * block),
    ]


def test_golden_values_of_the_reference(name: str, each_isa: str) -> None:
    """Dequantised rows equal the `gguf` package's (tests/golden/make_quant_blocks.py)."""
    golden = np.load(GOLDEN)
    rows, want = golden[name + "_rows"], golden[name + "_values"]
    assert same(dequantised(name, rows, want.shape[1]), want)
    assert same(unpack(name, rows).dequantised(), want)


def test_every_byte_pattern_dequantises_as_the_model_says(name: str, each_isa: str) -> None:
    rows = random_rows(name, 37, 5 * FORMATS[name][0], np.random.default_rng(1), sane=False)
    with np.errstate(all="ignore"):
        want = unpack(name, rows).dequantised()
    assert same(dequantised(name, rows, want.shape[1]), want)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 64])
def test_product_equals_the_model_to_the_bit(name: str, each_isa: str, m: int) -> None:
    rng = np.random.default_rng(m)
    for n, k in sizes(name):
        rows, x = random_rows(name, n, k, rng), rng.standard_normal((m, k)).astype(np.float32)
        assert same(linear(name, x, rows), product(x, unpack(name, rows)))


def test_any_bytes_as_blocks_give_the_models_result(name: str, each_isa: str) -> None:
    """Scales that are NaN, infinite, subnormal or negative are data like any other."""
    rng = np.random.default_rng(2)
    rows = random_rows(name, 50, 4 * FORMATS[name][0], rng, sane=False)
    x = rng.standard_normal((9, rows.shape[1] // FORMATS[name][1] * FORMATS[name][0]))
    with np.errstate(all="ignore"):
        want = product(x.astype(np.float32), unpack(name, rows))
    assert same(linear(name, x.astype(np.float32), rows), want)


def test_extreme_integers_do_not_saturate(name: str, each_isa: str) -> None:
    """All bits set against the largest activations: 16-bit intermediate sums must not clip."""
    k = 2 * FORMATS[name][0]
    for byte in (0x00, 0x7F, 0x80, 0xFF):
        rows = random_rows(name, 16, k, np.random.default_rng(3))
        keep = rows.copy()
        rows[:] = byte
        halves = {"q6_k": (208,)}.get(name, (0, 2) if unpack(name, keep).m is not None else (0,))
        for at in halves:
            rows.reshape(16, -1, FORMATS[name][1])[..., at : at + 2] = keep.reshape(
                16, -1, FORMATS[name][1]
            )[..., at : at + 2]
        for sign in (1.0, -1.0):
            x = np.full((5, k), sign, np.float32)
            x[1, ::2] *= -1
            assert same(linear(name, x, rows), product(x, unpack(name, rows)))
            assert same(linear(name, x[:1], rows), product(x[:1], unpack(name, rows)))


def test_error_is_within_the_bound_of_quantised_activations(name: str, each_isa: str) -> None:
    """|out - x W^T| <= sum over blocks of d / 2 * sum |w|, and 2^-20 of the sum of magnitudes."""
    rng = np.random.default_rng(4)
    k = 6 * FORMATS[name][0]
    rows, x = random_rows(name, 33, k, rng), rng.standard_normal((5, k)).astype(np.float32)
    w = unpack(name, rows).dequantised().astype(np.float64)
    _, d = quantise(x)
    half = np.repeat(d, 32, axis=1) * 0.5000001
    parts = unpack(name, rows)
    size = np.abs(parts.q) * np.repeat(np.abs(parts.s), 32, axis=1)
    if parts.c is not None:
        size = size * np.repeat(np.abs(parts.c), 16, axis=1)
    if parts.m is not None:
        size = size + np.repeat(np.abs(parts.m), 32, axis=1)
    bound = half @ np.abs(w).T + 2.0**-20 * (np.abs(x) @ size.T)
    assert (np.abs(linear(name, x, rows) - x.astype(np.float64) @ w.T) <= bound).all()


def test_a_row_does_not_depend_on_its_batch_mates(name: str, each_isa: str) -> None:
    """Decoding and prompt processing agree (DESIGN.md, one order of summation)."""
    rng = np.random.default_rng(5)
    k = 3 * FORMATS[name][0]
    rows, x = random_rows(name, 40, k, rng), rng.standard_normal((64, k)).astype(np.float32)
    whole = linear(name, x, rows)
    for m in (1, 3, 7):
        assert same(linear(name, x[5 : 5 + m].copy(), rows), whole[5 : 5 + m])


def test_threads_do_not_change_a_bit(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(6)
    k = 2 * FORMATS[name][0]
    before = harness.lib.cdl_threads()
    try:
        for m, n in ((1, 2000), (300, 130)):
            rows = random_rows(name, n, k, rng)
            x = rng.standard_normal((m, k)).astype(np.float32)
            results = []
            for threads in (1, 2, 3):
                harness.set_threads(threads)
                results.append(linear(name, x, rows))
            want = product(x, unpack(name, rows))
            assert all(same(result, want) for result in results)
    finally:
        harness.set_threads(before)


def test_instruction_sets_agree_to_the_bit(name: str) -> None:
    rng = np.random.default_rng(7)
    k = 5 * FORMATS[name][0]
    rows, x = (
        random_rows(name, 70, k, rng, sane=False),
        rng.standard_normal((20, k)).astype(np.float32),
    )
    results = []
    for one in harness.ISAS:
        harness.set_isa(one)
        results += [
            linear(name, x, rows),
            np.vstack([linear(name, x[i : i + 1], rows) for i in range(20)]),
        ]
    assert all(same(r, results[0]) for r in results)


def test_nan_and_infinity_reach_the_output(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(8)
    k = 2 * FORMATS[name][0]
    rows = random_rows(name, 20, k, rng)
    x = rng.standard_normal((6, k)).astype(np.float32)
    x[1, k - 1], x[2, 0], x[4, 3] = np.nan, np.inf, -np.inf
    out = linear(name, x, rows)
    assert np.isnan(out[[1, 2, 4]]).all()
    assert np.isfinite(out[[0, 3, 5]]).all()
    for t in range(6):
        assert same(linear(name, x[t : t + 1].copy(), rows), out[t : t + 1])


def test_huge_small_and_zero_activations(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(9)
    k = 2 * FORMATS[name][0]
    rows, x = random_rows(name, 20, k, rng), rng.standard_normal((7, k))
    scale = np.array([0.0, 1e-45, 1e-38, 1e-30, 1e-29, 1e20, 3e37])[:, None]
    x = (x * scale).astype(np.float32)
    with np.errstate(all="ignore"):
        want = product(x, unpack(name, rows))
    assert same(linear(name, x, rows), want)
    assert not want[0].any()


def test_bias_and_activation_follow_the_sum(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(10)
    k = FORMATS[name][0]
    rows, bias = random_rows(name, 21, k, rng), rng.standard_normal(21).astype(np.float32)
    x = rng.standard_normal((5, k)).astype(np.float32)
    plain = product(x, unpack(name, rows)) + bias
    assert same(linear(name, x, rows, bias), plain)
    assert same(linear(name, x, rows, bias, act=1), np.maximum(plain, 0))
    z = plain.astype(np.float64)
    silu, tanh = linear(name, x, rows, bias, act=4), linear(name, x, rows, bias, act=3)
    np.testing.assert_allclose(silu, z / (1 + np.exp(-z)), rtol=1e-5, atol=1e-6)
    want = 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(tanh, want, rtol=1e-5, atol=1e-6)
    for act in (2, 3, 4):
        whole = linear(name, x, rows, bias, act=act)
        assert same(linear(name, x[2:3].copy(), rows, bias, act=act), whole[2:3])


def test_unquantised_activations_are_exact_to_f32(name: str, each_isa: str) -> None:
    """i1 = 1 dequantises the weight and sums in f32: 2^-18 of the sum of magnitudes."""
    rng = np.random.default_rng(11)
    for n, k in sizes(name):
        rows, x = random_rows(name, n, k, rng), rng.standard_normal((6, k)).astype(np.float32)
        bias = rng.standard_normal(n).astype(np.float32)
        w = unpack(name, rows).dequantised().astype(np.float64)
        out = linear(name, x, rows, bias, f32=1)
        assert (np.abs(out - (x @ w.T + bias)) <= 2.0**-18 * (np.abs(x) @ np.abs(w).T + 1)).all()
        assert same(linear(name, x[2:3].copy(), rows, bias, f32=1), out[2:3])


def test_strided_and_half_activations_and_outputs(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(12)
    k = 2 * FORMATS[name][0]
    rows = random_rows(name, 19, k, rng)
    for dtype in (np.float32, np.float16):
        base = rng.standard_normal((k, 10)).astype(dtype)
        x = base[::-1, ::2].T  # [5, k], strides of both signs
        out = np.zeros((19, 10), dtype).T[::2]
        run("linear", out, x, weight(name, rows, 19, k))
        want = product(np.ascontiguousarray(x).astype(np.float32), unpack(name, rows))
        assert (out == want.astype(dtype)).all()


def test_rows_of_a_wider_or_reversed_weight(name: str, each_isa: str) -> None:
    rng = np.random.default_rng(13)
    block, size, _ = FORMATS[name]
    rows = random_rows(name, 18, 4 * block, rng)
    x = rng.standard_normal((2, 2 * block)).astype(np.float32)
    part = unpack(name, np.ascontiguousarray(rows[:, size : 3 * size]))
    out = np.zeros((2, 18), np.float32)
    run("linear", out, x, weight(name, rows[:, size : 3 * size], 18, 2 * block, stride=4 * block))
    assert same(out, product(x, part))
    run(
        "linear",
        out,
        x,
        weight(name, rows[::-1, size : 3 * size], 18, 2 * block, stride=-4 * block),
    )
    assert same(out, product(x, part)[:, ::-1].copy())


@pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="needs mprotect")
def test_nothing_is_read_outside_the_weight(name: str, each_isa: str) -> None:
    """The weight lies between two forbidden pages, once against each."""
    libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)
    rng = np.random.default_rng(14)
    page = mmap.PAGESIZE
    for n, k in sizes(name)[:5]:
        rows = random_rows(name, n, k, rng)
        inner = -(-rows.nbytes // page) * page
        memory = np.frombuffer(mmap.mmap(-1, inner + 2 * page), np.uint8)
        forbidden = (memory.ctypes.data, memory.ctypes.data + page + inner)
        try:
            for guard in forbidden:
                assert libc.mprotect(ctypes.c_void_p(guard), page, 0) == 0
            for at in (page, page + inner - rows.nbytes):
                copy = memory[at : at + rows.nbytes].reshape(n, -1)
                copy[:] = rows
                for m, f32 in ((1, 0), (6, 0), (2, 1)):
                    x = rng.standard_normal((m, k)).astype(np.float32)
                    assert same(linear(name, x, copy, f32=f32), linear(name, x, rows, f32=f32))
        finally:
            for guard in forbidden:
                libc.mprotect(ctypes.c_void_p(guard), page, 3)


@pytest.mark.parametrize("shape", [(0, 5, 1), (3, 0, 1), (3, 5, 0), (0, 0, 0)])
def test_zero_sizes_are_legal(name: str, each_isa: str, shape: tuple[int, int, int]) -> None:
    m, n, blocks = shape
    k = blocks * FORMATS[name][0]
    rows, x = random_rows(name, n, k, np.random.default_rng(15)), np.ones((m, k), np.float32)
    bias = np.arange(n, dtype=np.float32)
    for f32 in (0, 1):
        out = linear(name, x, rows, bias, f32=f32)
        if not blocks:
            assert same(out, np.tile(bias, (m, 1)))


def test_views_that_do_not_fit_are_refused(name: str, each_isa: str) -> None:
    block = FORMATS[name][0]
    rows, x = (
        random_rows(name, 4, block, np.random.default_rng(16)),
        np.ones((2, block), np.float32),
    )
    out, w = np.zeros((2, 4), np.float32), weight(name, rows, 4, block)
    assert step("linear", out, x, w) == OK
    bad = [
        (out, x),
        (out[:, :3], x, w),
        (out[:1], x, w),
        (out, x[:, 1:], w),
        (out, x.astype(np.float64), w),
        (out, x, w, np.zeros(3, np.float32)),
        (out, x[:, : block // 2], weight(name, rows, 4, block // 2)),
        (out, x, weight(name, rows, 4, block, stride=block + 1)),
        (out, x, View(None, name, (4, block), (block, 1))),
    ]
    assert all(step("linear", *views) != OK for views in bad)
    assert step("linear", out, x, w, i=(9,)) != OK
