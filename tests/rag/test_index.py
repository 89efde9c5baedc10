"""`VectorIndex`: exact, against a sort of all scores in float64."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from candle.errors import CandleError, DTypeError, OptionError, ShapeError, StoreError
from candle.rag.index import VectorIndex
from candle.tensor import Tensor


def vectors(count: int, dimension: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("metric", ["cosine", "dot"])
@pytest.mark.parametrize("k", [1, 7, 500])
def test_it_finds_what_a_full_sort_finds(metric: str, k: int) -> None:
    base, queries = vectors(500), vectors(9, seed=1)
    ids, scores = VectorIndex.build(base, metric).search(queries, k)
    assert ids.shape == scores.shape == (9, k)
    a, b = (unit(queries), unit(base)) if metric == "cosine" else (queries, base)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.array_equal(ids.numpy(), np.argsort(-exact, axis=1, kind="stable")[:, :k])
    assert np.allclose(scores.numpy(), np.sort(exact, axis=1)[:, ::-1][:, :k], atol=1e-5)


@pytest.mark.parametrize("count", [19, 20])
def test_an_empty_index_gives_empty_rows(count: int) -> None:
    """faiss#3830 (R04)."""
    index = VectorIndex(24)
    for empty in (index, VectorIndex.build(vectors(0))):
        ids, scores = empty.search(vectors(count), 5)
        assert ids.shape == scores.shape == (count, 0)


def test_nan_is_refused_with_its_row_and_nothing_is_added() -> None:
    """faiss#244 (R05)."""
    index = VectorIndex.build(vectors(5))
    for bad in (np.nan, np.inf, -np.inf):
        rows = vectors(4)
        rows[2, 3] = bad
        with pytest.raises(OptionError, match="row 2, column 3"):
            index.add(rows)
        with pytest.raises(OptionError, match="row 2, column 3"):
            index.search(rows, 1)
    assert len(index) == 5


def test_cosines_stay_within_bounds_and_zero_is_defined() -> None:
    """faiss#915 (R08)."""
    rows = np.concatenate([vectors(300, 768, seed=2), np.zeros((1, 768), np.float32)])
    _, scores = VectorIndex.build(rows).search(rows, 301)
    found = scores.numpy()
    assert found.min() >= -1.0 and found.max() <= 1.0
    assert np.all(found[300] == 0.0)


def test_ids_are_stable_and_never_given_out_again() -> None:
    """faiss#409 #190 #4655 #4656 (R07)."""
    rows = vectors(20)
    index = VectorIndex.build(rows[:10])
    assert index.remove([3, 7, 3, 99]) == 2
    assert index.add(rows[10:12]) == [10, 11]
    assert index.remove([11]) == 1
    assert index.add(rows[12:13]) == [12]
    left = [0, 1, 2, 4, 5, 6, 8, 9, 10, 12]
    ids, _ = index.search(rows[left], 1)
    assert ids.to_vec() == [[name] for name in left]


def test_given_ids_are_kept(tmp_path: Path) -> None:
    rows = vectors(4)
    index = VectorIndex.build(rows, ids=[40, 10, 30, 20])
    ids, _ = index.search(rows, 1)
    assert ids.to_vec() == [[40], [10], [30], [20]]
    assert index.add(vectors(1, seed=9)) == [41]
    for taken in ([10], [1, 1], [-1], [1 << 62], [1, 2]):
        with pytest.raises(OptionError):
            index.add(vectors(1 if len(taken) == 1 else 2 if taken == [1, 1] else 3), ids=taken)


def test_equal_scores_are_in_the_order_of_ids() -> None:
    same = np.tile(vectors(1), (30, 1))
    index = VectorIndex.build(same[:10], ids=list(range(29, 9, -2)))
    index.add(same[:10], ids=list(range(10, 30, 2)))
    ids, _ = index.search(same[:1], 8)
    assert ids.to_vec() == [list(range(10, 18))]


def test_random_changes_agree_with_a_plain_dictionary(tmp_path: Path) -> None:
    rng = random.Random(4)
    pool = vectors(2000, seed=3)
    model: dict[int, int] = {}
    index = VectorIndex(24)
    row = 0
    for step in range(80):
        if rng.random() < 0.6:
            count = rng.choice([1, 5, 40])
            for name in index.add(pool[row : row + count]):
                model[name] = row
                row += 1
        else:
            gone = [rng.randrange(row + 1) for _ in range(30)]
            assert index.remove(gone) == len(set(gone) & model.keys())
            for name in gone:
                model.pop(name, None)
        if step % 20 == 19:
            index.save(tmp_path / "a.seg")
            index = VectorIndex.open(tmp_path / "a.seg")
        assert len(index) == len(model)
    names = sorted(model)
    ids, scores = index.search(pool[[model[n] for n in names]], 1)
    assert [i for (i,) in ids.to_vec()] == names
    assert np.allclose(scores.numpy(), 1.0, atol=1e-6)


def test_saved_and_opened_it_answers_alike(tmp_path: Path) -> None:
    base, queries = vectors(300), vectors(5, seed=1)
    index = VectorIndex.build(base, "dot")
    index.remove([5, 6])
    before = [t.to_vec() for t in index.search(queries, 10)]
    index.save(tmp_path / "index.seg")
    again = VectorIndex.open(tmp_path / "index.seg")
    assert [t.to_vec() for t in again.search(queries, 10)] == before
    assert (again.metric, again.dimension, len(again)) == ("dot", 24, 298)
    assert again.add(queries[:1]) == [300]


def test_an_empty_index_is_saved_too(tmp_path: Path) -> None:
    VectorIndex(24).save(tmp_path / "index.seg")
    assert len(VectorIndex.open(tmp_path / "index.seg")) == 0


def test_cut_or_changed_files_raise_only_our_errors(tmp_path: Path) -> None:
    """chroma#7238 (R10)."""
    path = tmp_path / "index.seg"
    VectorIndex.build(vectors(10)).save(path)
    data = path.read_bytes()
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(StoreError):
            VectorIndex.open(path)
    rng = random.Random(6)
    for _ in range(300):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            VectorIndex.open(path).search(vectors(1), 5)
        except CandleError:
            continue


def test_the_callers_array_may_change_afterwards() -> None:
    base = vectors(5)
    index = VectorIndex.build(base, "dot")
    kept = base.copy()
    base[:] = 0
    ids, _ = index.search(kept, 1)
    assert len(set(map(tuple, ids.to_vec()))) > 1


def test_tensors_lists_and_strided_arrays_are_taken() -> None:
    base = vectors(6)
    expected = VectorIndex.build(base).search(base, 2)[0].to_vec()
    assert VectorIndex.build(Tensor.from_numpy(base)).search(base.tolist(), 2)[0].to_vec() == (
        expected
    )
    wide = np.repeat(base, 2, axis=0)
    assert VectorIndex.build(wide[::2]).search(base, 2)[0].to_vec() == expected


@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda: VectorIndex.build(vectors(3), "l2"), OptionError),
        (lambda: VectorIndex(0), OptionError),
        (lambda: VectorIndex.build(vectors(3)[0]), ShapeError),
        (lambda: VectorIndex.build(vectors(3).astype(np.float64)), DTypeError),
        (lambda: VectorIndex.build(vectors(3)).search(vectors(1, 25), 1), ShapeError),
        (lambda: VectorIndex.build(vectors(3)).add(vectors(1, 25)), ShapeError),
        (lambda: VectorIndex.build(vectors(3)).search(vectors(1), 0), OptionError),
        (lambda: VectorIndex.build(vectors(3)).search(vectors(1), True), OptionError),
    ],
)
def test_what_does_not_fit_is_refused(make: object, kind: type[CandleError]) -> None:
    with pytest.raises(kind):
        make()  # type: ignore[operator]
