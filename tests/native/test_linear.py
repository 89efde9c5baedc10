"""linear and pack: against float64, and bit for bit across batches, layouts and threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    EPARAM,
    ESHAPE,
    OK,
    View,
    bf16,
    blocks,
    from_bf16,
    step,
    to_bf16,
    view,
)
from harness import run as call
from products import FUSED, Array, on_isa, pack, same_bits, threads

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
SIZES = [
    (1, 1, 1), (1, 16, 7), (1, 17, 256), (2, 33, 257), (3, 47, 64), (4, 48, 513), (5, 49, 31),
    (6, 128, 96), (7, 144, 300), (8, 15, 3), (9, 95, 77), (13, 200, 40), (16, 384, 384),
    (31, 10, 784), (1, 384, 1536), (65, 129, 255), (257, 49, 33), (3, 1, 1000),
]  # fmt: skip


def reference(x: Array, w: Array, bias: Array | None = None, act: str = "none") -> Array:
    """The same in float64."""
    y = x.astype(np.float64) @ w.astype(np.float64).T
    if bias is not None:
        y = y + bias.astype(np.float64)
    if act == "relu":
        return np.maximum(y, 0)
    if act == "gelu":
        return y * 0.5 * (1 + np.vectorize(math.erf)(y / math.sqrt(2)))
    if act == "gelu_tanh":
        return 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
    return y / (1 + np.exp(-y)) if act == "silu" else y


def bound(x: Array, w: Array) -> Array:
    """What rounding can cost: sums of 256 terms in f32, then of blocks, of absolute products."""
    terms = min(x.shape[1], 256) + x.shape[1] // 256 + 4
    size = np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64).T
    return size * terms * 2.0**-24 + 1e-30


def data(m: int, n: int, k: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (n, k), (n,)))
    return x, w, b


def run(x: Array | View, w: Array | View, bias: Array | None = None, act: int = 0) -> Array:
    out = np.full((view(x).shape[0], view(w).shape[0]), np.nan, np.float32)
    call("linear", out, x, w, bias, i=(act,))
    return out


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_matches_float64(each_isa: str, m: int, n: int, k: int) -> None:
    x, w, b = data(m, n, k)
    got = run(x, pack(w), b)
    assert (np.abs(got - reference(x, w, b)) <= bound(x, w) + np.abs(b) * 2.0**-23).all()


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_plain_and_packed_weights_give_the_same_bits(each_isa: str, m: int, n: int, k: int) -> None:
    x, w, b = data(m, n, k)
    want = run(x, pack(w), b, 3)
    wide = np.full((n + 2, 2 * k + 3), np.nan, np.float32)
    wide[1:-1, 1 : k + 1] = w
    reverse = np.ascontiguousarray(w[::-1])[::-1]
    for other in (w, wide[1:-1, 1 : k + 1], np.asfortranarray(w), reverse):
        assert same_bits(run(x, other, b, 3), want)


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_a_row_does_not_depend_on_its_batch_mates(each_isa: str, m: int, n: int, k: int) -> None:
    x, w, b = data(m, n, k)
    packed = pack(w)
    want = run(x, packed, b, 2)
    for row in range(0, m, max(1, m // 5)):
        assert same_bits(run(x[row : row + 1], packed, b, 2), want[row : row + 1])
    if m > 4:
        assert same_bits(run(x[2:5], packed, b, 2), want[2:5])


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_thread_counts_give_the_same_bits(each_isa: str, count: int) -> None:
    x, w, b = data(300, 400, 300)
    with threads(1):
        want = run(x, w, b, 1)
    with threads(count):
        assert same_bits(run(x, w, b, 1), want)
        assert same_bits(run(x, pack(w), b, 1), want)


def test_isas_with_fused_multiply_add_agree_to_the_bit() -> None:
    x, w, b = data(23, 70, 600)
    results = []
    for name in FUSED:
        with on_isa(name):
            results.append(run(x, w, b).tobytes())
    assert len(set(results)) <= 1


@pytest.mark.parametrize("act", range(5))
@pytest.mark.parametrize("with_bias", [True, False])
def test_activation_and_bias_are_fused(each_isa: str, act: int, with_bias: bool) -> None:
    x, w, b = data(11, 75, 300)
    bias = b if with_bias else None
    plain, got = run(x, w, bias), run(x, w, bias, act)
    want = reference(x, w, bias, ACTIVATIONS[act])
    assert (np.abs(got - want) <= 1.2 * bound(x, w) + 1e-6 * (1 + np.abs(want))).all()
    alone = np.empty_like(plain)
    if act:
        call(ACTIVATIONS[act], alone, plain)
        assert same_bits(got, alone)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_half_weights_equal_their_widened_selves(each_isa: str, kind: str) -> None:
    x, w, b = data(9, 37, 301)
    if kind == "f16":
        half: Array | View = w.astype(np.float16)
        wide = w.astype(np.float16).astype(np.float32)
    else:
        half = bf16(to_bf16(w))
        wide = from_bf16(half.array)
    want = run(x, wide, b)
    assert same_bits(run(x, half, b), want)
    assert same_bits(run(x, pack(half), b), want)


def test_half_inputs_and_outputs_convert_at_the_edges(each_isa: str) -> None:
    x, w, b = data(9, 37, 301)
    half = x.astype(np.float16)
    want = run(half.astype(np.float32), w, b)
    assert same_bits(run(half, w, b), want)
    out = np.zeros((9, 37), np.float16)
    call("linear", out, half, w, b.astype(np.float16))
    want = run(half.astype(np.float32), w, b.astype(np.float16).astype(np.float32))
    assert same_bits(out, want.astype(np.float16))
    brain = np.zeros((9, 37), np.uint16)
    call("linear", bf16(brain), bf16(to_bf16(x)), w, b)
    assert same_bits(brain, to_bf16(run(from_bf16(to_bf16(x)), w, b)))


def test_any_strides_of_x_out_and_bias(each_isa: str) -> None:
    x, w, b = data(20, 50, 70)
    packed, want = pack(w), run(x, pack(w), b)
    wide = np.zeros((40, 210), np.float32)
    wide[::2, ::3] = x
    upward, leftward = x[::-1].copy()[::-1], x[:, ::-1].copy()[:, ::-1]
    for other in (wide[::2, ::3], np.asfortranarray(x), upward, leftward):
        assert same_bits(run(other, packed, b), want)
    spread = np.repeat(b, 2)[::2]
    rows, columns, every = slice(40, 20, -1), slice(5, 55), slice(100, 0, -2)
    for index in ((slice(20), columns), (rows, every), (slice(0, 60, 3), slice(50))):
        for order in ("C", "F"):
            room = np.full((60, 110), 7, np.float32, order=order)
            call("linear", room[index], x, packed, spread)
            assert same_bits(room[index], want)
            room[index] = 7
            assert (room == 7).all(), "only its own elements are written"


def test_a_repeated_row_of_x_needs_no_copies(each_isa: str) -> None:
    x, w, b = data(1, 40, 30)
    got = run(np.broadcast_to(x, (12, 30)), pack(w), b)
    assert (got == run(x, w, b)).all()


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (0, 0, 0)])
def test_nothing_to_do_is_fine(each_isa: str, shape: tuple[int, int, int]) -> None:
    x, w, _ = data(*shape)
    assert run(x, w).shape == shape[:2]
    assert run(x, pack(w)).shape == shape[:2]


def test_no_terms_leave_the_bias(each_isa: str) -> None:
    x, w, b = data(5, 20, 0)
    assert (run(x, w, b) == b).all()
    assert (run(x, w) == 0).all()


def test_nan_and_infinity_stay_in_their_row_and_column(each_isa: str) -> None:
    x, w, b = data(12, 40, 50)
    x[3, 7], w[9, 4], w[20] = np.nan, np.inf, 0
    got = run(x, pack(w), b)
    assert np.isnan(got[3]).all()
    rows = [r for r in range(12) if r != 3]
    assert np.isinf(got[rows, 9]).all()
    keep = [c for c in range(40) if c != 9]
    assert np.isfinite(got[np.ix_(rows, keep)]).all()


def test_padding_of_the_last_panel_is_zero(each_isa: str) -> None:
    w = data(1, 21, 9)[1]
    packed = pack(w).array
    assert packed.shape == (2, 9, 16)
    assert (packed[0] == w[:16].T).all()
    assert (packed[1, :, :5] == w[16:].T).all()
    assert (packed[1, :, 5:] == 0).all()


def test_wrong_calls_are_told(each_isa: str) -> None:
    x, w, b = data(4, 6, 8)
    out = np.zeros((4, 6), np.float32)
    assert step("linear", out, x) == EARGS
    assert step("linear", out, x, None) == ESHAPE
    assert step("linear", out, x.astype(np.int32), w) == EDTYPE
    assert step("linear", out, x, w.astype(np.float64)) == EDTYPE
    assert step("linear", out, x, w, b.astype(np.int32)) == EDTYPE
    assert step("linear", out, x[:, :7], w) == ESHAPE
    assert step("linear", out, x[:3], w) == ESHAPE
    assert step("linear", out, x, w[:5]) == ESHAPE
    assert step("linear", out, x, w, b[:5]) == ESHAPE
    assert step("linear", out[0], x, w) == ESHAPE
    assert step("linear", out, x, w, b, i=(5,)) == EPARAM
    assert step("linear", out, x, w, b, i=(-1,)) == EPARAM
    panels = blocks(np.empty(1, np.float32), "f32x16", (6, 8), (8, 1))
    assert step("pack", panels, w[:5]) == ESHAPE
    assert step("pack", out, w) == EDTYPE
    assert step("linear", out, x, w, b, i=(4,)) == OK
