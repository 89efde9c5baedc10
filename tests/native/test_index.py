"""take, index_add, gather, scatter_add and rope against NumPy, on every ISA."""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
import pytest
from harness import (
    EARGS,
    EDTYPE,
    EPARAM,
    ERANGE,
    ESHAPE,
    bf16,
    blocks,
    from_bf16,
    run,
    set_threads,
    step,
    to_bf16,
)

pytestmark = pytest.mark.usefixtures("each_isa")
RNG = np.random.default_rng(7)
DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8]


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """Small whole numbers: sums are exact in every dtype."""
    return RNG.integers(0, 8, shape).astype(dtype)


# -- take -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [np.int64, np.int32, np.uint32])
def test_take_copies_rows_for_any_rank_of_indices(dtype: Any, index: Any) -> None:
    """Ranks 0 to 3 of indices, rows of rank 0 to 2."""
    for tail in ((), (5,), (3, 4)):
        table = numbers((11, *tail), dtype)
        for shape in ((), (1,), (7,), (2, 3), (2, 1, 4)):
            ids = np.asarray(RNG.integers(0, 11, shape), index)
            out = run("take", np.zeros((*shape, *tail), dtype), table, ids)
            assert (out == table[ids]).all()


def test_take_honours_strides_of_every_view() -> None:
    """Transposed and reversed tables, strided indices and outputs (numpy#23349)."""
    table = RNG.standard_normal((13, 20)).astype(np.float32).T[::-1, ::2]
    ids = RNG.integers(0, 20, (6, 8))[::2, ::-1]
    out = np.zeros((3, 7, 16), np.float32).transpose(0, 2, 1)[:, ::2]
    assert (run("take", out, table, ids) == table[ids]).all()


def test_take_converts_half_rows_to_f32() -> None:
    """An f16 or bf16 table may give f32 rows."""
    half = RNG.standard_normal((9, 33)).astype(np.float16)
    ids = np.array([8, 0, 3], np.int32)
    assert (run("take", np.zeros((3, 33), np.float32), half, ids) == half[ids]).all()
    bits = to_bf16(RNG.standard_normal((9, 33)))
    got = run("take", np.zeros((3, 33), np.float32), bf16(bits), ids)
    assert (got == from_bf16(bits)[ids]).all()


@pytest.mark.parametrize("out", [np.float32, np.float16])
def test_take_dequantises_block_rows(out: Any) -> None:
    """Rows of Q8_0: f16 scale, 32 int8."""
    scales = RNG.uniform(0.01, 0.1, (9, 4)).astype(np.float16)
    codes = RNG.integers(-128, 128, (9, 4, 32)).astype(np.int8)
    packed = np.concatenate([scales[..., None].view(np.uint8), codes.view(np.uint8)], -1)
    table = blocks(np.ascontiguousarray(packed), "q8_0", (9, 128), (128, 1))
    ids = np.array([[2, 8], [0, 2]], np.uint32)
    exact = (scales.astype(np.float32)[..., None] * codes).reshape(9, 128)[ids]
    assert (run("take", np.zeros((2, 2, 128), out), table, ids) == exact.astype(out)).all()


@pytest.mark.parametrize("bad", [-1, 11, 2**40])
def test_an_index_outside_the_table_is_an_error(bad: int) -> None:
    """pytorch#12670: never read past the table; nothing is written."""
    out = np.full((3, 2), 9, np.float32)
    assert step("take", out, numbers((11, 2)), np.array([0, bad, 1])) == ERANGE
    assert (out == 9).all()


def test_take_refuses_what_does_not_fit() -> None:
    """Ranks, sizes, dtypes, nulls."""
    table, ids = numbers((4, 3)), np.zeros(2, np.int64)
    assert step("take", np.zeros((2, 4), np.float32), table, ids) == ESHAPE
    assert step("take", np.zeros((3, 3), np.float32), table, ids) == ESHAPE
    assert step("take", np.zeros((2, 3), np.int32), table, ids) == EDTYPE
    assert step("take", np.zeros((2, 3), np.float32), table, ids.astype(np.uint8)) == EDTYPE
    assert step("take", np.zeros((2, 3), np.float32), table) == EARGS
    assert step("take", np.zeros((0, 3), np.float32), table, ids[:0]) == 0
    assert step("take", np.zeros((2, 3), np.float32), table[:0], ids) == ERANGE


# -- index_add ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_adds_every_row_in_turn(dtype: Any) -> None:
    """Repeated indices add up (embedding gradients)."""
    for tail in ((), (5,), (3, 700)):
        acc, src = numbers((6, *tail), dtype), numbers((9, *tail), dtype)
        ids = RNG.integers(0, 6, 9)
        want = acc.copy()
        np.add.at(want, ids, src)
        assert (run("index_add", acc, src, ids) == want).all()


def test_index_add_takes_half_rows_into_f32() -> None:
    """Gradients in f16 accumulate in f32."""
    acc, ids = np.zeros((2, 3), np.float32), np.zeros(4096, np.int64)
    run("index_add", acc, np.ones((4096, 3), np.float16), ids)
    assert (acc == [[4096] * 3, [0] * 3]).all()


def test_index_add_gives_the_same_bits_for_any_number_of_threads() -> None:
    """Index order is kept for every element."""
    src = RNG.standard_normal((500, 3000)).astype(np.float32)
    ids = RNG.integers(0, 7, 500)
    outs = []
    for n in (1, 2, 5):
        set_threads(n)
        outs.append(run("index_add", np.zeros((7, 3000), np.float32), src, ids).copy())
    set_threads(2)
    assert all(outs[0].tobytes() == o.tobytes() for o in outs)


def test_index_add_refuses_bad_indices() -> None:
    """Nothing is added if one is outside."""
    acc = np.zeros((3, 2), np.float32)
    ones = np.ones((2, 2), np.float32)
    assert step("index_add", acc, ones, np.array([0, 3])) == ERANGE
    assert step("index_add", acc, ones, np.array([0, -1], np.int32)) == ERANGE
    assert step("index_add", acc, ones, np.array([0])) == ESHAPE
    assert (acc == 0).all()


# -- gather and scatter_add -----------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_is_take_along_axis(axis: int, dtype: Any) -> None:
    """Also on transposed and reversed views."""
    x = numbers((5, 6, 7), dtype)
    shape = [5, 6, 7]
    shape[axis] = 9
    ids = RNG.integers(0, x.shape[axis], shape)
    want = np.take_along_axis(x, ids, axis)
    assert (run("gather", np.zeros(shape, dtype), x, ids, i=(axis,)) == want).all()
    flip = x.T[::-1].T[:, ::-1]
    want = np.take_along_axis(flip, ids, axis)
    assert (run("gather", np.zeros(shape, dtype), flip, ids, i=(axis,)) == want).all()


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter_add_is_the_adjoint_of_gather(axis: int, dtype: Any) -> None:
    """acc[.., idx, ..] += src."""
    shape = [4, 5, 6]
    shape[axis] = 11
    src, ids = numbers(tuple(shape), dtype), RNG.integers(0, 3, shape).astype(np.int32)
    acc = numbers((4, 5, 6), dtype)
    want = acc.copy()
    places = list(np.indices(shape))
    places[axis] = ids
    np.add.at(want, tuple(places), src)
    assert (run("scatter_add", acc, src, ids, i=(axis,)) == want).all()


def test_gather_and_scatter_refuse_bad_indices_axes_and_shapes() -> None:
    """Never outside the axis."""
    x, ids = numbers((3, 4)), np.zeros((3, 2), np.int64)
    out = np.zeros((3, 2), np.float32)
    assert step("gather", out, x, ids + 4, i=(1,)) == ERANGE
    assert step("gather", out, x, ids - 1, i=(1,)) == ERANGE
    assert step("gather", out, x, ids, i=(2,)) == EPARAM
    assert step("gather", out, x, ids, i=(0,)) == ESHAPE
    assert step("gather", out, x[:, :0], ids, i=(1,)) == ERANGE
    assert step("scatter_add", x, out, ids + 4, i=(1,)) == ERANGE
    assert step("scatter_add", x[:, :0], out, ids, i=(1,)) == ERANGE
    assert step("scatter_add", x, out, ids, i=(-1,)) == EPARAM
    assert step("gather", out[:, :0], x, ids[:, :0], i=(1,)) == 0


# -- rope -----------------------------------------------------------------------------------------


def rope_model(
    x: Any, positions: Any, r: int, neox: bool, base: float, scale: float, factors: Any
) -> Any:
    """Rotary positions in float64."""
    half = r // 2
    turn = base ** (-2.0 * np.arange(half) / r) * scale / factors
    angle = (positions.astype(np.float64)[:, None] * turn)[:, None, :]
    first = np.arange(half) if neox else 2 * np.arange(half)
    second = first + (half if neox else 1)
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * np.cos(angle) - b * np.sin(angle)
    out[..., second] = b * np.cos(angle) + a * np.sin(angle)
    return out


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize(("d", "r"), [(64, 64), (80, 64), (6, 6), (2, 2), (130, 102), (256, 256)])
def test_rope_turns_pairs_as_float64_does(neox: bool, d: int, r: int) -> None:
    """Both pairings, partial widths, positions up to a million."""
    x = RNG.standard_normal((2, 5, 3, d)).astype(np.float32)
    positions = np.array([0, 1, 77, 131071, 1_000_000], np.int32)
    factors = RNG.uniform(1, 8, r // 2).astype(np.float32)
    want = rope_model(x, positions, r, neox, 10000.0, 0.25, factors)
    got = run("rope", np.zeros_like(x), x, positions, factors, i=(r, int(neox)), f=(1e4, 0.25))
    assert np.abs(got - want).max() < 2e-6
    run("rope", x, x, positions, factors, i=(r, int(neox)), f=(1e4, 0.25))
    assert x.tobytes() == got.tobytes(), "in place"


def test_rope_on_strided_and_half_views() -> None:
    """A head-major view, f16 and bf16 storage; no factors."""
    base = RNG.standard_normal((3, 4, 32)).astype(np.float32)
    x = base.transpose(1, 0, 2)[:, ::-1]
    positions = np.arange(8, dtype=np.int32)[::2]
    want = rope_model(x, positions, 32, True, 5e5, 1.0, 1.0)
    out = np.zeros((4, 32, 3), np.float32).transpose(0, 2, 1)
    got = run("rope", out, x, positions, None, i=(32, 1), f=(5e5, 1.0))
    assert np.abs(got - want).max() < 2e-6
    half = x.astype(np.float16)
    got = run("rope", np.zeros_like(half), half, positions, None, i=(32, 1), f=(5e5, 1.0))
    assert np.abs(got - rope_model(half, positions, 32, True, 5e5, 1.0, 1.0)).max() < 4e-3


def test_a_position_does_not_depend_on_its_batch() -> None:
    """The same bits alone and among others."""
    x = RNG.standard_normal((4, 9, 2, 20)).astype(np.float32)
    positions = np.arange(9, dtype=np.int32) * 31
    whole = run("rope", np.zeros_like(x), x, positions, None, i=(20, 1), f=(1e4, 1.0))
    one = run("rope", np.zeros((1, 2, 20), np.float32), x[2, 5:6], positions[5:6], None,
              i=(20, 1), f=(1e4, 1.0))  # fmt: skip
    assert one.tobytes() == whole[2, 5:6].tobytes()


def test_rope_refuses_what_it_cannot_turn() -> None:
    """Widths, bases, counts of positions and factors."""
    x, positions = np.zeros((2, 1, 8), np.float32), np.zeros(2, np.int32)
    ok: dict[str, Any] = {"i": (8, 1), "f": (1e4, 1.0)}
    assert step("rope", x, x, positions, None, **ok) == 0
    for i, f in (((7, 1), (1e4, 1.0)), ((0, 1), (1e4, 1.0)), ((10, 1), (1e4, 1.0)),
                 ((8, 2), (1e4, 1.0)), ((8, 1), (0.0, 1.0)), ((8, 1), (1e4, 0.0))):  # fmt: skip
        assert step("rope", x, x, positions, None, i=i, f=f) == EPARAM
    assert step("rope", x, x, positions[:1], None, **ok) == ESHAPE
    assert step("rope", x, x, positions, np.ones(3, np.float32), **ok) == ESHAPE
    assert step("rope", x, x, positions.astype(np.int64), None, **ok) == EDTYPE
    assert step("rope", x[:0], x[:0], positions[:0], None, **ok) == 0
    assert harness.step("rope", x, x, positions) == EARGS
