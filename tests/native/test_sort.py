"""sort against NumPy's stable argsort, on every ISA."""

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
RNG = np.random.default_rng(43)
DTYPES = [
    np.float32, np.float64, np.float16, np.int64, np.int32, np.uint32, np.uint8, np.bool_,
]  # fmt: skip


def order(x: Any, descending: bool) -> Any:
    """Stable both ways, NaN as the greatest: ranks of the distinct values, then argsort."""
    _, rank = np.unique(x, return_inverse=True, equal_nan=True)
    rank = rank.reshape(x.shape)
    return np.argsort(-rank if descending else rank, -1, kind="stable")


def check(x: Any, descending: bool) -> None:
    indices = np.empty(x.shape, np.int64)
    values = run("sort", np.empty(x.shape, x.dtype), indices, x, i=(int(descending),))
    want = order(x, descending)
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, -1))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sort_is_stable_both_ways(dtype: Any, descending: bool) -> None:
    """Few values, so that most are ties; short rows and long."""
    for shape in ((1,), (2,), (31,), (32,), (33,), (4, 100), (2, 3, 70), (1, 3000)):
        check(RNG.integers(0, 9, shape).astype(dtype), descending)


@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_any_values(descending: bool) -> None:
    """All bytes of the keys matter; negative ones too."""
    check(RNG.standard_normal((3, 999)).astype(np.float32) * 1e20, descending)
    check(RNG.standard_normal((3, 999)) * 1e-200, descending)
    check(RNG.integers(-(2**63), 2**63 - 1, (2, 500)), descending)
    check(RNG.integers(-(2**31), 2**31 - 1, (2, 500)).astype(np.int32), descending)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_nan_counts_as_the_greatest(dtype: Any) -> None:
    """Last ascending as NumPy, first descending; -0 and 0 stay as they came."""
    x = np.array([np.nan, 1, -np.inf, 0.0, -0.0, np.inf, -np.nan, -1, 0.0, -0.0] * 5, dtype)
    check(x, False)
    check(x, True)
    values = run("sort", np.empty(10, dtype), np.empty(10, np.int64), x[:10])
    assert np.signbit(values[2:6]).tolist() == [False, True, False, True]


def test_bf16() -> None:
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    bits = to_bf16(x)
    indices = np.empty(x.shape, np.int64)
    got = from_bf16(run("sort", bf16(np.empty_like(bits)), indices, bf16(bits)))
    np.testing.assert_array_equal(got, np.sort(from_bf16(bits), -1))


def test_strides_of_every_view() -> None:
    """pytorch#92680 (T34): transposed, reversed, stepped, repeated."""
    base = RNG.integers(0, 50, (80, 60)).astype(np.float32)
    for x in (base.T, base[::-1, ::-1], base[:, ::3], np.broadcast_to(base[:1], (4, 60))):
        want = order(x, False)
        values = np.empty((x.shape[1], x.shape[0]), np.float32).T[::-1]
        indices = np.empty((x.shape[0], 2 * x.shape[1]), np.int64)[:, ::-2]
        run("sort", values, indices, x)
        np.testing.assert_array_equal(indices, want)
        np.testing.assert_array_equal(values, np.take_along_axis(x, want, -1))


def test_threads_change_nothing() -> None:
    x = RNG.integers(0, 20, (200, 300)).astype(np.float32)
    found = []
    for n in (1, 2, 5):
        set_threads(n)
        indices = np.empty(x.shape, np.int64)
        run("sort", np.empty_like(x), indices, x)
        found.append(indices.tobytes())
    set_threads(2)
    assert len(set(found)) == 1


def test_what_sort_refuses() -> None:
    x, at = np.ones((2, 3), np.float32), np.zeros((2, 3), np.int64)
    assert step("sort", x.copy(), at, x, i=(2,)) == EPARAM
    assert step("sort", x.copy(), at.astype(np.int32), x) == EDTYPE
    assert step("sort", x.astype(np.float64), at, x) == EDTYPE
    assert step("sort", x[:, :2].copy(), at[:, :2], x) == ESHAPE
    assert (
        step("sort", np.empty((), np.float32), np.zeros((), np.int64), np.ones((), np.float32))
        == ESHAPE
    )
    assert step("sort", x.copy(), at) == EARGS
    assert step("sort", x[:0].copy(), at[:0], x[:0]) == OK
    assert step("sort", x[:, :0].copy(), at[:, :0], x[:, :0]) == OK
