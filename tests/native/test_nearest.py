"""nearest: exact top-k by dot product, ties by row; the same bits in any batch and thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, View, step
from harness import run as call
from products import Array, same_bits, threads

SIZES = [
    (1, 1, 1, 1), (1, 5, 3, 2), (1, 100, 384, 10), (2, 33, 17, 33), (3, 1000, 64, 3),
    (4, 16, 100, 16), (5, 70, 31, 100), (9, 4096, 8, 1), (17, 5000, 40, 20), (1, 3000, 1024, 5),
]  # fmt: skip


def data(m: int, n: int, d: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(m * 7919 + n * 31 + d)
    q, x = rng.standard_normal((m, d)), rng.standard_normal((n, d))
    return q.astype(np.float32), x.astype(np.float32)


def run(q: Array, x: Array, k: int, mask: Any = None) -> tuple[Array, Array]:
    scores, rows = np.full((len(q), k), np.nan, np.float32), np.full((len(q), k), -7, np.int64)
    call("nearest", scores, rows, q, x, mask)
    return scores, rows


def whole_scores(q: Array, x: Array) -> Array:
    """Every score, as the kernel itself computes it: the top of one vector alone."""
    return np.concatenate([run(q, x[i : i + 1], 1)[0] for i in range(len(x))], axis=1)


def order(scores: Array, k: int) -> Array:
    """Rows by descending score, ties by row; NaN is no match."""
    rows = np.argsort(-scores, kind="stable")[:k]
    return np.where(np.isnan(scores[rows]), -1, rows)


@pytest.mark.parametrize(("m", "n", "d", "k"), SIZES)
def test_matches_float64(each_isa: str, m: int, n: int, d: int, k: int) -> None:
    q, x = data(m, n, d)
    scores, rows = run(q, x, k)
    exact, found = q.astype(np.float64) @ x.T.astype(np.float64), min(k, n)
    bound = np.linalg.norm(q, axis=1).max() * np.linalg.norm(x, axis=1).max() * d * 2.0**-24
    for i in range(m):
        assert len(set(rows[i, :found])) == found
        assert np.abs(scores[i, :found] - exact[i, rows[i, :found]]).max() <= bound
        assert np.abs(scores[i, :found] - np.sort(exact[i])[::-1][:found]).max() <= bound
        assert (np.diff(scores[i, :found]) <= 0).all()
    assert (rows[:, found:] == -1).all()
    assert np.isneginf(scores[:, found:]).all()


@pytest.mark.parametrize(("m", "n", "d"), [(9, 90, 37), (4, 64, 16), (1, 50, 384), (6, 33, 5)])
def test_a_score_has_the_same_bits_in_any_batch(each_isa: str, m: int, n: int, d: int) -> None:
    q, x = data(m, n, d)
    single = whole_scores(q, x)
    scores, rows = run(q, x, n)
    for i in range(m):
        assert same_bits(rows[i], order(single[i], n))
        assert same_bits(scores[i], single[i][rows[i]])
        alone = run(q[i : i + 1], x, n)
        assert same_bits(alone[0][0], scores[i])
        assert same_bits(alone[1][0], rows[i])


def test_ties_go_by_row(each_isa: str) -> None:
    q = np.ones((5, 4), np.float32)
    x = np.repeat(np.array([[1.0], [3.0], [2.0]], np.float32), 4, 1)[np.arange(9000) % 3]
    for count in (1, 3):
        with threads(count):
            scores, rows = run(q, x, 4000)
        want = np.concatenate([np.arange(1, 9000, 3), np.arange(2, 9000, 3)])[:4000]
        assert (rows == want).all()
        assert (scores[:, :3000] == 12).all()


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_thread_counts_give_the_same_answer(each_isa: str, count: int) -> None:
    for m, n, d, k in ((1, 20000, 24, 50), (11, 9000, 33, 7), (700, 3000, 200, 3)):
        q, x = data(m, n, d)
        with threads(1):
            want = run(q, x, k)
        with threads(count):
            got = run(q, x, k)
        assert same_bits(got[0], want[0])
        assert same_bits(got[1], want[1])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_mask_leaves_only_allowed_rows(each_isa: str, share: float) -> None:
    q, x = data(6, 3000, 20)
    mask = np.random.default_rng(3).random(3000) < share
    scores, rows = run(q, x, 40, mask.astype(np.uint8) * 255)
    kept = np.flatnonzero(mask)
    want_scores, want_rows = run(q, x[kept], 40)
    assert same_bits(scores, want_scores)
    assert same_bits(rows, np.where(want_rows < 0, -1, np.append(kept, -1)[want_rows]))
    spread = np.repeat(mask, 3)[::3]
    assert same_bits(run(q, x, 40, spread)[1], rows)


def test_nan_is_no_match_and_infinities_are(each_isa: str) -> None:
    q, x = data(3, 40, 8)
    x[5], x[7, 0], x[20] = np.nan, np.inf, -np.inf
    q[2] = np.nan
    with np.errstate(invalid="ignore"):
        exact = q.astype(np.float64) @ x.T.astype(np.float64)
    scores, rows = run(q, x, 50)
    for i in range(3):
        matched = [r for r in rows[i] if r >= 0]
        assert sorted(matched) == list(np.flatnonzero(~np.isnan(exact[i])))
        assert not np.isnan(scores[i]).any()
    assert (rows[2] == -1).all()
    few = run(q, x, 3)
    assert same_bits(few[0], scores[:, :3])
    assert same_bits(few[1], rows[:, :3])


def test_any_strides(each_isa: str) -> None:
    q, x = data(5, 130, 37)
    want = run(q, x, 9)
    wide = np.zeros((260, 80), np.float32)
    wide[::2, 3:40] = x
    for y in (np.asfortranarray(x), wide[::2, 3:40], x[::-1, ::-1].copy()[::-1, ::-1]):
        got = run(np.asfortranarray(q), y, 9)
        assert same_bits(got[0], want[0])
        assert same_bits(got[1], want[1])
    scores, rows = np.zeros((9, 5), np.float32).T, np.zeros((10, 18), np.int64)[::2, ::-2]
    call("nearest", scores, rows, q, x)
    assert (scores == want[0]).all()
    assert (rows == want[1]).all()


def test_nothing_is_fine(each_isa: str) -> None:
    for m, n, d, k in ((0, 5, 3, 2), (3, 5, 4, 0), (2, 0, 4, 3), (2, 5, 0, 3), (2, 0, 0, 1)):
        scores, rows = run(*data(m, n, d), k)
        if n == 0:
            assert (rows == -1).all()
        elif m and k:
            assert (scores == 0).all()
            assert (rows == np.arange(k)).all()


def test_wrong_calls_are_told(each_isa: str) -> None:
    q, x = data(3, 10, 8)
    scores, rows = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.int64)
    assert step("nearest", scores, rows, q) == EARGS
    assert step("nearest", scores) == EARGS
    assert step("nearest", scores, rows.astype(np.int32), q, x) == EDTYPE
    assert step("nearest", scores, rows, q, x.astype(np.float16)) == EDTYPE
    assert step("nearest", scores, rows, q, x, np.ones(10, np.int32)) == EDTYPE
    assert step("nearest", scores, rows[:, :3], q, x) == ESHAPE
    assert step("nearest", scores[:2], rows[:2], q, x) == ESHAPE
    assert step("nearest", scores, rows, q, x[:, :7]) == ESHAPE
    assert step("nearest", scores, rows, q, x, np.ones(9, np.uint8)) == ESHAPE
    assert step("nearest", scores[0], rows[0], q[0], x) == ESHAPE


@pytest.mark.parametrize("d", [0, 1])
def test_sizes_past_all_memory_are_refused(d: int) -> None:
    q, x = data(1, 10, d)
    scores, rows = np.zeros((1, 4), np.float32), np.zeros((1, 4), np.int64)
    many = 2**60
    views = [View(a, kind, (many, a.shape[1]), (0, 1)) for a, kind in (
        (scores, "f32"), (rows, "i64"), (q, "f32")
    )]  # fmt: skip
    assert step("nearest", *views, x) == ESHAPE
