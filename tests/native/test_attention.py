"""attention: against float64, and the same bits alone, in a batch, in a prefill and in a decode."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    ENOMEM,
    EPARAM,
    ERANGE,
    ESHAPE,
    View,
    bf16,
    from_bf16,
    step,
    to_bf16,
)
from harness import run as call
from products import Array, same_bits, threads


def data(b: int, t: int, s: int, h: int, g: int, d: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(b * 1009 + t * 101 + s * 11 + h + g + d)
    sizes = ((b, t, h, d), (b, s, g, d), (b, s, g, d))
    q, k, v = (rng.standard_normal(size).astype(np.float32) for size in sizes)
    return q, k, v


def run(
    q: Any, k: Any, v: Any, lengths: Any = None, causal: int = 0, at: int = 0, window: int = 0,
    cap: float = 0.0, scale: float | None = None,
) -> Array:  # fmt: skip
    out = np.full(q.shape, np.nan, np.float32)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    lengths = None if lengths is None else np.array(lengths, np.int32)
    call("attention", out, q, k, v, lengths, i=(causal, at, window), f=(scale, cap))
    return out


def seen(t: int, s: int, length: int, causal: int, at: int, window: int) -> Array:
    """Mask [t, s] of the keys that each query sees."""
    key, query = np.arange(s)[None], at + np.arange(t)[:, None]
    mask = np.broadcast_to(key < length, (t, s)).copy()
    if causal:
        mask &= key <= query
        if window:
            mask &= key > query - window
    return mask


def reference(
    q: Array, k: Array, v: Array, lengths: Any = None, causal: int = 0, at: int = 0,
    window: int = 0, cap: float = 0.0, scale: float | None = None,
) -> Array:  # fmt: skip
    """The same in float64."""
    b, t, h, d = q.shape
    s, g = k.shape[1:3]
    k, v = (np.repeat(x.astype(np.float64), h // g, axis=2) for x in (k, v))
    scores = np.einsum("bthd,bshd->bhts", q.astype(np.float64), k)
    scores *= d**-0.5 if scale is None else scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    out = np.zeros(q.shape)
    for i in range(b):
        mask = seen(t, s, s if lengths is None else lengths[i], causal, at, window)
        hidden = np.where(mask, scores[i], -np.inf)
        top = np.maximum(hidden.max(-1, keepdims=True, initial=-np.inf), -1e300)
        weight = np.exp(hidden - top)
        weight /= np.maximum(weight.sum(-1, keepdims=True), 1e-300)
        out[i] = np.einsum("hts,shd->thd", weight, v[i])
    return out


SHAPES = [
    (1, 1, 1, 1, 1, 1), (1, 1, 5, 3, 1, 32), (2, 7, 7, 4, 2, 16), (1, 33, 40, 2, 2, 5),
    (3, 20, 300, 6, 3, 64), (1, 150, 270, 3, 1, 17), (2, 17, 600, 9, 3, 64), (1, 3, 530, 4, 1, 256),
    (1, 2, 20, 2, 2, 300),
]  # fmt: skip


@pytest.mark.parametrize(("b", "t", "s", "h", "g", "d"), SHAPES)
@pytest.mark.parametrize("causal", [0, 1])
def test_matches_float64(
    each_isa: str, b: int, t: int, s: int, h: int, g: int, d: int, causal: int
) -> None:
    q, k, v = data(b, t, s, h, g, d)
    options: dict[str, Any] = {"causal": causal, "at": max(0, s - t) * causal}
    assert np.abs(run(q, k, v, **options) - reference(q, k, v, **options)).max() < 3e-6
    lengths = np.random.default_rng(1).integers(0, s, b, endpoint=True)
    got = run(q, k, v, lengths, **options)
    assert np.abs(got - reference(q, k, v, lengths, **options)).max() < 3e-6


@pytest.mark.parametrize("window", [1, 2, 15, 16, 100, 256, 300, 5000])
@pytest.mark.parametrize("at", [0, 3, 255, 260])
def test_sliding_window(each_isa: str, window: int, at: int) -> None:
    q, k, v = data(1, 40, 300, 6, 3, 24)
    got = run(q, k, v, causal=1, at=at, window=window)
    assert np.abs(got - reference(q, k, v, causal=1, at=at, window=window)).max() < 3e-6


def test_soft_cap_and_scale(each_isa: str) -> None:
    q, k, v = data(1, 30, 30, 4, 2, 32)
    for scale, cap in itertools.product((0.25, -0.5, 0.0, 3.0), (0.0, 5.0, 50.0)):
        got = run(q, k, v, scale=scale, cap=cap)
        assert np.abs(got - reference(q, k, v, scale=scale, cap=cap)).max() < 2e-5


def test_sharp_scores_do_not_overflow(each_isa: str) -> None:
    q, k, v = data(1, 5, 600, 1, 1, 8)
    got = run(q, k, v, scale=1000.0)
    assert np.abs(got - reference(q, k, v, scale=1000.0)).max() < 1e-2
    assert np.isfinite(run(q * 1e15, k * 1e15, v)).all()


@pytest.mark.parametrize("window", [0, 5, 100, 300])
@pytest.mark.parametrize(("h", "g", "d"), [(6, 3, 32), (4, 1, 40), (2, 2, 64)])
def test_decode_and_any_piece_of_a_prefill_give_the_same_bits(
    each_isa: str, window: int, h: int, g: int, d: int
) -> None:
    q, k, v = data(1, 530, 530, h, g, d)
    want = run(q, k, v, causal=1, window=window)
    for first, size in ((0, 1), (1, 1), (255, 1), (256, 1), (529, 1), (250, 20), (100, 430)):
        end = first + size
        piece = run(q[:, first:end], k[:, :end], v[:, :end], causal=1, at=first, window=window)
        assert same_bits(piece, want[:, first:end])


def test_batch_mates_and_padding_change_no_bit(each_isa: str) -> None:
    q, k, v = data(5, 40, 300, 4, 4, 32)
    lengths = [300, 7, 0, 256, 257]
    want = run(q, k, v, lengths)
    assert (want[2] == 0).all(), "a row with no key gives zeros (pytorch#41508)"
    for i, length in enumerate(lengths):
        alone = run(q[i : i + 1], k[i : i + 1, :length], v[i : i + 1, :length])
        assert same_bits(alone, want[i : i + 1])
        k[i, length:], v[i, length:] = np.nan, np.inf
    assert same_bits(run(q, k, v, lengths), want)


def test_keys_that_are_not_seen_cannot_matter(each_isa: str) -> None:
    q, k, v = data(1, 30, 300, 4, 2, 32)
    want = run(q, k, v, causal=1, at=250, window=20)
    k[:, 270:], v[:, 270:], k[:, :235], v[:, :235] = np.nan, np.inf, np.inf, np.nan
    got = run(q, k, v, causal=1, at=250, window=20)
    clean = slice(250 + 4, 250 + 20)
    assert same_bits(got[:, 4:20], want[:, 4:20]), f"queries {clean}"
    assert np.isnan(got[:, 20:]).all()


def test_nan_stays_in_its_row(each_isa: str) -> None:
    q, k, v = data(2, 9, 50, 2, 2, 16)
    q[0, 3, 1, 5] = np.nan
    got = run(q, k, v)
    assert np.isnan(got[0, 3, 1]).all()
    got[0, 3, 1] = 0
    assert np.isfinite(got).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_thread_counts_give_the_same_bits(each_isa: str, count: int) -> None:
    cases: list[tuple[Any, dict[str, Any]]] = [
        (data(3, 60, 300, 4, 2, 32), {"lengths": [300, 0, 100]}),
        (data(1, 1, 1500, 9, 3, 64), {"causal": 1, "at": 1499}),
        (data(1, 2, 1500, 4, 1, 48), {"causal": 1, "at": 1400, "window": 600}),
        (data(1, 200, 200, 2, 1, 16), {"causal": 1}),
    ]
    for (q, k, v), options in cases:
        with threads(1):
            want = run(q, k, v, **options)
        with threads(count):
            assert same_bits(run(q, k, v, **options), want)


def test_half_keys_and_values(each_isa: str) -> None:
    q, k, v = data(2, 5, 70, 4, 2, 24)
    k16, v16 = k.astype(np.float16), v.astype(np.float16)
    want = run(q, k16.astype(np.float32), v16.astype(np.float32))
    assert same_bits(run(q, k16, v16), want)
    out = np.zeros(q.shape, np.float16)
    call("attention", out, q.astype(np.float16), k16, v16, f=(24**-0.5,))
    wide = q.astype(np.float16).astype(np.float32)
    assert same_bits(out, run(wide, k16, v16).astype(np.float16))
    kb, vb = to_bf16(k), to_bf16(v)
    want = run(q, from_bf16(kb), from_bf16(vb))
    got = np.zeros_like(want)
    call("attention", got, q, bf16(kb), bf16(vb), f=(24**-0.5,))
    assert same_bits(got, want)


def test_any_strides(each_isa: str) -> None:
    q, k, v = data(2, 19, 70, 4, 2, 32)
    want = run(q, k, v)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2) for x in (q, k, v)]
    depth_first = [np.ascontiguousarray(np.moveaxis(x, 3, 0)) for x in (q, k, v)]
    keys_last = [np.ascontiguousarray(np.moveaxis(x, 1, 3)) for x in (q, k, v)]
    backwards = [x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1] for x in (q, k, v)]
    assert same_bits(run(*heads_first), want)
    assert same_bits(run(*(np.moveaxis(x, 0, 3) for x in depth_first)), want)
    assert same_bits(run(*(np.moveaxis(x, 3, 1) for x in keys_last)), want)
    assert same_bits(run(*backwards), want)
    room = np.full((4, 2, 64, 19), 7, np.float32)
    out = room.transpose(1, 3, 0, 2)[..., ::2]
    call("attention", out, q, k, v, f=(32**-0.5,))
    assert same_bits(np.ascontiguousarray(out), want)
    assert (room[:, :, 1::2] == 7).all()


def test_nothing_is_fine(each_isa: str) -> None:
    for sizes in ((0, 3, 4, 2, 2, 8), (1, 0, 4, 2, 2, 8), (1, 3, 4, 2, 2, 0)):
        assert run(*data(*sizes), scale=1.0).size == 0
    assert (run(*data(2, 3, 0, 2, 2, 8)) == 0).all()
    assert (run(*data(1, 3, 0, 2, 2, 8), causal=1) == 0).all()


def test_wrong_calls_are_told(each_isa: str) -> None:
    q, k, v = data(2, 3, 4, 4, 2, 8)
    out = np.zeros_like(q)
    whole = q.astype(np.int32)
    assert step("attention", out, q, k) == EARGS
    assert step("attention", out, q, None, None) == ESHAPE
    assert step("attention", out, whole, k, v) == EDTYPE
    assert step("attention", out[0], q, k, v) == ESHAPE
    assert step("attention", out[:, :2], q, k, v) == ESHAPE
    assert step("attention", out, q, k, v[:, :3]) == ESHAPE
    assert step("attention", out, q, k[..., :7], v[..., :7]) == ESHAPE
    assert step("attention", out[:, :, :3], q[:, :, :3], k, v) == ESHAPE
    assert step("attention", out, q, k[:, :, :0], v[:, :, :0]) == ESHAPE
    assert step("attention", out, q, k, v, np.array([1, 5], np.int32)) == ERANGE
    assert step("attention", out, q, k, v, np.array([-1, 4], np.int32)) == ERANGE
    assert step("attention", out, q, k, v, np.array([1, 2, 3], np.int32)) == ESHAPE
    assert step("attention", out, q, k, v, np.array([1, 2], np.int64)) == EDTYPE
    for whole_numbers in ((2,), (-1,), (1, -1), (1, 2**62), (1, 0, -1), (0, 0, 5)):
        assert step("attention", out, q, k, v, i=whole_numbers, f=(1.0, 0.0)) == EPARAM
    assert step("attention", out, q, k, v, f=(1.0, -1.0)) == EPARAM
    assert step("attention", out, q, k, v, f=(1.0, float("nan"))) == EPARAM


def test_sizes_past_all_memory_are_refused() -> None:
    one = np.zeros(1, np.float32)

    def view(*shape: int) -> View:
        return View(one, "f32", shape, (0, 0, 0, 0))

    many = view(1, 1, 2**40, 1)
    assert step("attention", many, many, many, many) == ESHAPE
    wide = view(1, 1, 1, 2**40)
    assert step("attention", wide, wide, wide, wide) == ESHAPE
    query, key = view(1, 16, 1, 1), view(1, 2**57, 1, 1)
    assert step("attention", query, query, key, key) in (ENOMEM, ESHAPE)
