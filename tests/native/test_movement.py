"""copy, fill, iota, where: every dtype and stride, one table of casts on every ISA."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, OK, bf16, blocks, from_bf16, run, step, to_bf16

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(19)
DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint32, np.uint8, np.bool_]
INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 5), (4, 4), (64, 64), (100, 37), (2, 33, 65), (4, 7, 9, 31)]
)
def test_copy_of_every_permutation(dtype: Any, shape: tuple[int, ...]) -> None:
    """Transposes are blocked; both directions, reversed axes too."""
    a = (RNG.random(shape) * 100).astype(dtype)
    for perm in itertools.permutations(range(len(shape))):
        view = a.transpose(perm)
        assert (run("copy", np.empty(view.shape, dtype), view) == view).all()
        assert (run("copy", np.empty(shape, dtype).transpose(perm), view) == view).all()
        flip = view[::-1, ..., ::-1]
        assert (run("copy", np.empty(view.shape, dtype), flip) == flip).all()


def test_copy_of_a_large_transpose_in_parallel() -> None:
    """Several strips, several threads."""
    a = RNG.random((1030, 777)).astype(np.float32)
    assert (run("copy", np.empty((777, 1030), np.float32), a.T) == a.T).all()
    assert (run("copy", np.empty((1030, 777), np.float32), a) == a).all()


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_casts_of_whole_numbers_equal_numpy(source: Any, to: Any) -> None:
    """Values that every dtype holds; strides on both sides."""
    x = RNG.integers(0, 120, (40, 33)).astype(source)
    for view in (x, x.T, x[::-2, ::3]):
        want = view.astype(to)
        assert (run("copy", np.empty(view.shape, to), view) == want).all()
        assert (run("copy", np.empty(view.shape[::-1], to).T, view) == want).all()


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("to", "want"),
    [
        (np.uint8, [0, 0, 255, 0, 255, 0, 255, 255, 0, 255, 0, 0]),
        (
            np.int32,
            [-3, -1, 2**31 - 1, 0, 2**31 - 1, -(2**31), 255, 300, 0, 2**31 - 1, -(2**31), 0],
        ),
        (np.uint32, [0, 0, 2**32 - 1, 0, 2**32 - 1, 0, 255, 300, 0, 2**31, 0, 0]),
        (np.int64, [-3, -1, 2**63 - 1, 0, 2**63 - 1, -(2**63), 255, 300, 0, 2**31, -(2**31), 0]),
        (np.bool_, [1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1]),
    ],
)
def test_floats_to_integers_saturate_alike_everywhere(
    source: Any, to: Any, want: list[int]
) -> None:
    """mlx#2015, numpy#23481: truncate, saturate, NaN to 0; bool is x != 0."""
    x = [-3.0, -1.5, 1e20, NAN, INF, -INF, 255.9, 300.0, -0.0, 2.0**31, -(2.0**31), 0.25]
    got = run("copy", np.empty(12, to), np.array(x, source))
    assert got.tolist() == [to(w) for w in want]


def test_integers_to_integers_keep_their_low_bits() -> None:
    """As NumPy; to bool x != 0."""
    x = RNG.integers(-(2**63), 2**63 - 1, 500)
    for to in (np.int32, np.uint32, np.uint8, np.bool_):
        assert (run("copy", np.empty(500, to), x) == x.astype(to)).all()


def test_casts_to_half_round_once() -> None:
    """f64 and i64 to f16 and bf16: no double rounding through f32."""
    x = RNG.standard_normal(50_000) * 10.0 ** RNG.integers(-9, 6, 50_000)
    ties = np.array(
        [
            1 + 2**-11 + 2**-40,
            1 + 2**-11 - 2**-40,
            65519.999,
            65520.0,
            2**-25,
            2**-25 * (1 + 2**-40),
        ]
    )
    x = np.concatenate([x, ties, [NAN, INF, -INF, 0.0, -0.0, 1e300]])
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(run("copy", np.empty(x.shape, np.float16), x), want)
    a = 1 + 2.0**-8  # halfway between two bf16
    got = from_bf16(
        run("copy", bf16(np.empty(3, np.uint16)), np.array([a, a + 2**-40, a - 2**-40]))
    )
    assert got.tolist() == [1, 1 + 2**-7, 1]
    i = np.array([2**40 + 2**32, 2**40 + 2**32 + 1, 2**40 + 2**32 - 1, -(2**63)])
    got = from_bf16(run("copy", bf16(np.empty(4, np.uint16)), i))
    assert got.tolist() == [2**40, 2**40 + 2**33, 2**40, -(2.0**63)]
    i = RNG.integers(-(2**63), 2**63 - 1, 5000)
    assert (run("copy", np.empty(5000, np.float32), i) == i.astype(np.float32)).all()


def test_every_half_there_and_back() -> None:
    """All 65,536 bit patterns of f16 and bf16, NaN included."""
    bits = np.arange(65536, dtype=np.uint32).astype(np.uint16)
    half = bits.view(np.float16)
    single = run("copy", np.empty(65536, np.float32), half)
    np.testing.assert_array_equal(single, half.astype(np.float32))
    np.testing.assert_array_equal(run("copy", np.empty(65536, np.float16), single), half)
    single = run("copy", np.empty(65536, np.float32), bf16(bits))
    np.testing.assert_array_equal(single, from_bf16(bits))
    back = run("copy", bf16(np.empty(65536, np.uint16)), single)
    np.testing.assert_array_equal(from_bf16(back), from_bf16(bits))
    f = RNG.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            run("copy", np.empty(f.shape, np.float16), f), f.astype(np.float16)
        )
    finite = f[np.isfinite(f)]
    assert (run("copy", bf16(np.empty(finite.shape, np.uint16)), finite) == to_bf16(finite)).all()


def test_copy_of_block_rows() -> None:
    """Q8_0 rows to f32, f16 and bf16; strided rows and outputs; whole blocks only."""
    scales = RNG.uniform(0.01, 0.1, (6, 32)).astype(np.float16)
    codes = RNG.integers(-128, 128, (6, 32, 32)).astype(np.int8)
    packed = np.ascontiguousarray(
        np.concatenate([scales[..., None].view(np.uint8), codes.view(np.uint8)], -1)
    )
    exact = (scales.astype(np.float32)[..., None] * codes).reshape(6, 1024)
    whole = blocks(packed, "q8_0", (6, 1024), (1024, 1))
    for to in (np.float32, np.float16):
        assert (run("copy", np.empty((6, 1024), to), whole) == exact.astype(to)).all()
    assert (run("copy", np.empty((1024, 6), np.float32).T, whole) == exact).all()
    part = blocks(packed, "q8_0", (2, 3, 96), (1024 * 3, 1024, 1))
    assert (
        run("copy", np.empty((2, 3, 96), np.float32), part) == exact[:, :96].reshape(2, 3, 96)
    ).all()
    out = np.empty((6, 1000), np.float32)
    assert step("copy", out, blocks(packed, "q8_0", (6, 1000), (1024, 1))) == ESHAPE
    assert step("copy", out[:, :960], blocks(packed, "q8_0", (6, 960), (1000, 1))) == ESHAPE
    assert step("copy", out[:, :960], blocks(packed, "q8_0", (6, 960), (960, 2))) == ESHAPE
    assert step("copy", np.empty((6, 1024), np.int32), whole) == EDTYPE
    assert step("copy", whole, np.empty((6, 1024), np.float32)) == EDTYPE


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_and_iota(dtype: Any) -> None:
    """Any strides; the value rounded once; integers from i0."""
    value = 1 if dtype is np.bool_ else 77
    ints = np.dtype(dtype).kind not in "f"
    params: dict[str, Any] = {"i": (value,)} if ints else {"f": (value + 0.1,)}
    want = dtype(value) if ints else dtype(value + 0.1)
    for out in (np.zeros((5, 7), dtype), np.zeros((7, 5), dtype).T[::-1], np.zeros((), dtype)):
        assert (run("fill", out, **params) == want).all()
    assert (run("fill", np.ones((40, 50), dtype)) == 0).all()
    if dtype is np.bool_:
        return
    params = {"i": (3, 2)} if ints else {"f": (0.5, 0.25)}
    want = (
        (3 + 2 * np.arange(1000)).astype(dtype)
        if ints
        else (0.5 + 0.25 * np.arange(1000)).astype(dtype)
    )
    assert (run("iota", np.zeros(1000, dtype), **params) == want).all()
    assert (run("iota", np.zeros(2000, dtype)[::-2], **params) == want).all()


def test_where_takes_each_by_its_condition() -> None:
    """bool and u8 conditions (any non-zero), every dtype, strides and broadcasts."""
    cond = RNG.integers(0, 3, (30, 41)).astype(np.uint8)
    for dtype in DTYPES:
        a, b = RNG.integers(0, 100, (2, 30, 41)).astype(dtype)
        for c in (cond, cond > 1):
            got = run("where", np.empty((30, 41), dtype), c, a, b)
            assert (got == np.where(c, a, b)).all()
            b1 = np.broadcast_to(b[:1, :1], b.shape)
            got = run("where", np.empty((41, 30), dtype).T, c[::-1], a, b1)
            assert (got == np.where(c[::-1], a, b1)).all()


def test_what_movement_refuses() -> None:
    """Counts, shapes, dtypes; no elements are nothing to do."""
    x = np.ones((2, 3), np.float32)
    assert step("copy", x) == EARGS
    assert step("copy", x, x.T) == ESHAPE
    assert step("iota", x) == ESHAPE
    assert step("where", x, x, x, x) == EDTYPE
    assert step("where", x, x > 0, x, x.astype(np.float64)) == EDTYPE
    assert step("where", x, x > 0, x) == EARGS
    assert step("copy", x[:0], x[:0]) == OK == step("fill", x[:0]) == step("iota", x[0, :0])
    assert step("fill", None) == OK
