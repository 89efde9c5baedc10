"""Tensor: creation, indexing, views, dtypes, promotion, matmul's rules, errors, pickling.

Numerics of operations stand in test_ops.py, NumPy and buffers in test_guests.py.
"""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import candle
from candle import DType, Tensor, Var
from candle import functional as F
from candle.errors import CandleError, DTypeError, OptionError, RangeError, ShapeError
from support.strategies import arrays, full_shapes, indexed, shapes

PLAIN = ["f32", "f64", "f16", "bf16", "i64", "i32", "u32", "u8", "bool"]


def tensor(array: Any) -> Tensor:
    return Tensor.from_numpy(np.ascontiguousarray(array))


# -- four public things --------------------------------------------------------------------------


def test_a_tensor_is_four_things() -> None:
    x, y = Tensor([[1.0, 2.0]]), Tensor([3.0])
    assert x.id != y.id
    assert (x.data.dtype, x.shape, x.op) == (DType.F32, (1, 2), None)
    assert "F32" in repr(x.dtype)
    assert "strides=[2, 1]" in repr(x.data)
    made = Var([1.0, 2.0]).mul(2.0)
    assert repr(made.op) == "Binary([2], [], kind=BinaryKind.MUL)"
    assert repr(made) == "Tensor([2.0, 4.0], shape=[2], dtype=f32, op=Binary)"


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Tensor([0.1, 1e20, math.nan]), "Tensor([0.1, 1e+20, nan], shape=[3], dtype=f32)"),
        (lambda: Tensor(3), "Tensor(3, shape=[], dtype=i64)"),
        (lambda: Tensor([[True], [False]]), "Tensor([[True], [False]], shape=[2, 1], dtype=bool)"),
        (lambda: Tensor([0.1], "bf16"), "Tensor([0.1], shape=[1], dtype=bf16)"),
        (lambda: Tensor.zeros((0, 3)), "Tensor(shape=[0, 3], dtype=f32)"),
        (lambda: Tensor.zeros((100,)), "Tensor(shape=[100], dtype=f32)"),
        (lambda: Var([0.5]), "Var([0.5], shape=[1], dtype=f32)"),
    ],
)
def test_repr_shows_small_ones(made: Any, text: str) -> None:
    assert repr(made()) == text


# -- creation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "dtype", "shape"),
    [
        (1.5, "f32", ()),
        (7, "i64", ()),
        (True, "bool", ()),
        ([1, 2.5], "f32", (2,)),
        ([True, 2], "i64", (2,)),
        ([[1, 2], [3, 4]], "i64", (2, 2)),
        ([], "f32", (0,)),
        ([[], []], "f32", (2, 0)),
        ([np.float32(1.5), np.int16(2)], "f32", (2,)),
        (((1.0,), (2.0,)), "f32", (2, 1)),
    ],
)
def test_lists_choose_their_dtype_and_shape(values: Any, dtype: str, shape: Any) -> None:
    made = Tensor(values)
    assert (str(made.dtype), made.shape) == (dtype, shape)
    assert made.to_vec() == (values if not isinstance(values, tuple) else [[1.0], [2.0]])


@pytest.mark.parametrize("dtype", PLAIN)
def test_lists_of_a_given_dtype(dtype: str) -> None:
    made = Tensor([[0, 1], [1, 0]], dtype)
    assert str(made.dtype) == dtype
    assert made.to_vec() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("values", "dtype", "error"),
    [
        ([[1], [2, 3]], None, ShapeError),
        ([1, [2]], None, ShapeError),
        ([[1], 2], None, ShapeError),
        (["a"], None, DTypeError),
        ([None], None, DTypeError),
        ([1j], None, DTypeError),
        ([300], "u8", OptionError),
        ([-1], "u32", OptionError),
        ([2**63], None, OptionError),
        ([1e39], "f32", OptionError),
        ([70000.0], "f16", OptionError),
        ([1.5], "i64", OptionError),
        ([math.nan], "i32", OptionError),
        ([1.0], "q8_0", DTypeError),
        ([1.0], "f33", DTypeError),
        ([[[[[[[[[1]]]]]]]]], None, ShapeError),
        (np.ones(3), None, DTypeError),
    ],
)
def test_what_is_no_tensor_is_refused(
    values: Any, dtype: str | None, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Tensor(values, dtype)


def test_a_list_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ShapeError):
        Tensor(ring)


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 5), (0, 10, 3), (10, 0, -3), (5, 5), (5, 2), (-3,), (0, 1, 0.25)]
)
def test_arange_counts_as_numpy(arguments: Any) -> None:
    made = Tensor.arange(*arguments)
    assert made.to_vec() == np.arange(*arguments).tolist()
    assert made.dtype is (DType.F32 if 0.25 in arguments else DType.I64)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
def test_arange_of_integers_is_range(start: int, stop: int, step: int) -> None:
    assert Tensor.arange(start, stop, step).to_vec() == [*range(start, stop, step)]


@pytest.mark.parametrize("arguments", [(0, 1, 0), (math.nan,), (0, math.inf), (0, 300, 1, "u8")])
def test_arange_refuses(arguments: Any) -> None:
    with pytest.raises(OptionError):
        Tensor.arange(*arguments)


@pytest.mark.parametrize("dtype", PLAIN)
def test_full_zeros_ones(dtype: str) -> None:
    assert Tensor.full((2,), 1, dtype).to_vec() == [1, 1]
    assert Tensor.zeros((1, 2), dtype).to_vec() == [[0, 0]]
    assert Tensor.ones((), dtype).to_vec() == 1
    assert Tensor.ones((3,), dtype).zeros_like().to_vec() == [0, 0, 0]


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, "u8"), (-1, "u32"), (2.5, "i32"), (2, "bool"), (math.nan, "i64")]
)
def test_full_refuses_what_the_dtype_cannot_hold(value: Any, dtype: str) -> None:
    with pytest.raises(OptionError):
        Tensor.full((2,), value, dtype)


@pytest.mark.parametrize(
    "shape", [(-1,), (2.5,), "ab", (1,) * 9, (2**40, 2**40), (0, 2**40, 2**40)]
)
def test_impossible_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(ShapeError):
        Tensor.zeros(shape)


def test_more_memory_than_there_is_raises_memory_error() -> None:
    for count in (2**46, 2**60, 2**62):
        with pytest.raises(MemoryError):
            Tensor.zeros((count,), "f64")
    assert Tensor.ones((3,)).sum().to_scalar() == 3.0


def test_seeds_repeat_and_draws_go_on() -> None:
    candle.manual_seed(7)
    first, second = candle.randn((100,)), Tensor.rand((100,))
    candle.manual_seed(7)
    assert candle.randn((40,)).to_vec() == first.to_vec()[:40]
    own = candle.Generator(7)
    assert Tensor.randn((100,), own).to_vec() == first.to_vec()
    assert Tensor.randn((100,), own).to_vec() != first.to_vec()
    assert all(0 <= v < 1 for v in second.to_vec())
    assert candle.Generator().seed != candle.Generator().seed


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "a"])
def test_seeds_are_checked(seed: Any) -> None:
    with pytest.raises(OptionError):
        candle.manual_seed(seed)


# -- indexing --------------------------------------------------------------------------------------


@given(indexed())
def test_indexing_is_numpy_s(case: Any) -> None:
    shape, index = case
    array = np.arange(math.prod(shape)).reshape(shape)
    got, want = tensor(array)[index], array[index]
    assert got.shape == want.shape
    assert got.to_vec() == want.tolist()


@given(full_shapes, st.data())
def test_reshape_permute_and_flip_are_numpy_s(shape: tuple[int, ...], data: st.DataObject) -> None:
    axes = data.draw(st.permutations(range(len(shape))))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    array = np.arange(math.prod(shape)).reshape(shape)
    moved = tensor(array).permute(axes)
    assert moved.to_vec() == array.transpose(axes).tolist()
    assert moved.flip(axis).to_vec() == np.flip(array.transpose(axes), axis).tolist()
    assert moved.reshape(-1).to_vec() == array.transpose(axes).reshape(-1).tolist()
    assert moved[..., None].squeeze(-1).to_vec() == moved.to_vec()


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (2, RangeError),
        (-3, RangeError),
        ((0, 0, 0), RangeError),
        ((..., ...), RangeError),
        (1.0, RangeError),
        (True, RangeError),
        ("a", RangeError),
        ([0, 1], RangeError),
    ],
)
def test_wrong_indices_are_refused(index: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Tensor([[1, 2, 3], [4, 5, 6]])[index]


def test_numpy_integers_index() -> None:
    x = Tensor([[1, 2, 3], [4, 5, 6]])
    assert x[np.int64(1), np.uint8(2)].to_scalar() == 6
    assert Tensor.zeros(np.int64(2)).shape == (2,)
    assert x.sum(np.int64(0)).to_vec() == [5, 7, 9]


def test_an_index_tensor_takes_rows() -> None:
    x = Tensor([[1, 2], [3, 4], [5, 6]])
    assert x[Tensor([2, 0])].to_vec() == [[5, 6], [1, 2]]
    assert x.i(0).to_vec() == [1, 2]
    with pytest.raises(RangeError):
        x[Tensor([3])]
    with pytest.raises(DTypeError):
        x[Tensor([1.0])]


def test_iteration_goes_over_rows() -> None:
    assert [row.to_vec() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    with pytest.raises(ShapeError):
        len(Tensor(1.0))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.narrow(0, 1, 2),
        lambda x: x.narrow(0, -1, 1),
        lambda x: x.narrow(0, 3, 0),
        lambda x: x.narrow(0, 0, -1),
        lambda x: x.narrow(2, 0, 1),
        lambda x: Tensor(1.0).narrow(0, 0, 1),
        lambda x: Tensor(1.0).flip(0),
        lambda x: x.sum(2),
        lambda x: x.transpose(0, 2),
        lambda x: x.dim(5),
    ],
)
def test_axes_and_ranges_are_checked(call: Any) -> None:
    with pytest.raises(RangeError):
        call(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.reshape((4, 2)),
        lambda x: x.reshape((-1, -1)),
        lambda x: x.reshape((-1, 4)),
        lambda x: x.reshape((-2, -3)),
        lambda x: x.permute((0,)),
        lambda x: x.permute((0, 0)),
        lambda x: x.squeeze(0),
        lambda x: x.expand((2, 4)),
        lambda x: x.expand((3,)),
        lambda x: x.expand((-1, 2, 3)),
        lambda x: x.sum((0, 0)),
        lambda x: x.add(Tensor([1.0, 2.0])),
        lambda x: Tensor.cat([]),
        lambda x: Tensor.cat([x, Tensor([[1.0]])]),
        lambda x: Tensor.cat([Tensor(1.0), Tensor(2.0)]),
        lambda x: Tensor.stack([x, x[0]]),
        lambda x: x.max(0).reshape(0),
        lambda x: x[:0].max(),
        lambda x: x.to_scalar(),
        lambda x: bool(x),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call: Any) -> None:
    with pytest.raises(ShapeError):
        call(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))


def test_a_scalar_has_the_axes_0_and_minus_1() -> None:
    """tinygrad#4498 (T31)."""
    x = Tensor(2.0)
    for axis in (0, -1):
        assert x.sum(axis).to_scalar() == 2.0
        assert F.softmax(x, axis).to_scalar() == 1.0
    with pytest.raises(RangeError):
        x.sum(1)


# -- views share storage ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.reshape((6, 4)),
        lambda x: x.transpose(0, 2),
        lambda x: x.narrow(1, 1, 2),
        lambda x: x[::-1, ..., ::2],
        lambda x: x.unsqueeze(0),
        lambda x: x[1].expand((5, 3, 4)),
        lambda x: x.detach(),
        lambda x: x.transpose(0, 1).reshape((3, 2, 2, 2)),
        lambda x: x.contiguous(),
    ],
)
def test_views_share_storage(view: Any) -> None:
    x = Tensor.arange(24).reshape((2, 3, 4))
    assert view(x).data.storage is x.data.storage


@given(full_shapes, st.data())
def test_a_reshape_of_any_view_keeps_the_elements(shape: Any, data: st.DataObject) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    axes = data.draw(st.permutations(range(len(shape))))
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 2, -1]))) for _ in shape)
    x, y = tensor(array).permute(axes)[steps], array.transpose(axes)[steps]
    for wanted in (y.shape[::-1], (-1,), (1, *y.shape, 1)):
        if len(wanted) <= 8:
            assert x.reshape(wanted).to_vec() == y.reshape(wanted).tolist()


def test_copies_do_not_share() -> None:
    x = Tensor.arange(6).reshape((2, 3))
    assert x.copy().data.storage is not x.data.storage
    assert x.t().contiguous().data.storage is not x.data.storage


def test_one_element_views_do_not_answer_an_operand() -> None:
    """candle#1914 (T40): a + b of two one-element views is their sum, with offsets honoured."""
    x = Tensor([[1.0], [2.0], [3.0]])
    assert (x[1] + x[2]).to_vec() == [5.0]


def test_strides_of_axes_of_length_1_are_ignored() -> None:
    """pytorch#195394, numpy#23349 (T18, T34)."""
    array = np.zeros((1, 10, 20), np.float32)[::-1]
    x = Tensor.from_numpy(array)
    assert x.is_contiguous()
    assert x.reshape(-1).data.storage is x.data.storage
    base = np.arange(8.0, dtype=np.float32)
    odd = np.lib.stride_tricks.as_strided(base, (2, 1, 4), (16, 999996, 4))
    assert Tensor.from_numpy(odd).sum((0, 1)).to_vec() == [4.0, 6.0, 8.0, 10.0]


def test_in_place_on_repeated_elements_is_refused() -> None:
    """pytorch#17935 (T37): adding into an expanded view would add many times."""
    from candle import eager

    x = Tensor.ones((1, 1)).expand((4, 5))
    with pytest.raises(OptionError, match="copy"):
        eager.copy_into(x.data, Tensor.ones((4, 5)).data)


def test_in_place_from_an_overlapping_view_is_exact() -> None:
    from candle import eager

    x = Tensor.arange(6)
    eager.copy_into(x[1:].data, x[:-1].data)
    assert x.to_vec() == [0, 0, 1, 2, 3, 4]


# -- dtypes ----------------------------------------------------------------------------------------


def test_integer_division_rounds_down_and_refuses_zero() -> None:
    """pytorch#44858, pytorch#327 (T04, T06)."""
    a, b = Tensor([1, -1, 7, -7], "i32"), Tensor([2, 2, -2, -2], "i32")
    assert (a // b).to_vec() == [0, -1, -4, 3]
    assert (a % b).to_vec() == [1, 1, -1, -1]
    assert ((a // b) * b + a % b).to_vec() == a.to_vec()
    for dtype in ("i64", "i32", "u32", "u8"):
        with pytest.raises(ZeroDivisionError, match="div"):
            Tensor([1, 2], dtype).floor_div(Tensor([1, 0], dtype))
    assert (Tensor([1.0, -1.0, 0.0]) / 0.0).to_vec()[:2] == [math.inf, -math.inf]


@pytest.mark.parametrize("dtype", ["i64", "i32"])
def test_the_least_integer_over_minus_one_wraps(dtype: str) -> None:
    """Two's complement, never a signal."""
    least = -(2 ** (63 if dtype == "i64" else 31))
    assert Tensor([least], dtype).floor_div(-1).to_vec() == [least]


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [
        ("f32", "f64", "f64"),
        ("f16", "bf16", "f32"),
        ("f16", "f32", "f32"),
        ("bf16", "i64", "bf16"),
        ("i64", "f16", "f16"),
        ("i64", "f32", "f32"),
        ("u32", "i32", "i64"),
        ("u8", "i32", "i32"),
        ("u8", "u32", "u32"),
        ("bool", "u8", "u8"),
        ("bool", "f32", "f32"),
    ],
)
def test_two_dtypes_meet_in_the_wider(a: str, b: str, meet: str) -> None:
    x, y = Tensor([1], a), Tensor([1], b)
    assert str((x + y).dtype) == str((y + x).dtype) == meet
    assert (x + y).to_vec() == [2]
    assert x.eq(y).dtype is DType.BOOL


@pytest.mark.parametrize(
    ("dtype", "number", "meet"),
    [
        ("f16", 2.5, "f16"),
        ("f32", 2, "f32"),
        ("u8", 2, "u8"),
        ("i32", 2.5, "f32"),
        ("bool", 2, "i64"),
        ("bool", True, "bool"),
        ("bf16", np.float64(2.5), "bf16"),
        ("i32", np.int16(2), "i32"),
    ],
)
def test_a_number_takes_the_tensor_s_dtype(dtype: str, number: Any, meet: str) -> None:
    assert str((Tensor([1], dtype) + number).dtype) == meet


def test_a_number_out_of_range_is_refused_but_compares() -> None:
    x = Tensor([1, 255], "u8")
    with pytest.raises(OptionError):
        x + 300
    with pytest.raises(OptionError):
        x * -1
    assert (x < 300).to_vec() == [True, True]
    assert (x > -1).to_vec() == [True, True]


def test_division_gives_floats() -> None:
    assert (Tensor([1, 2]) / 2).to_vec() == [0.5, 1.0]
    assert (Tensor([1, 2]) / Tensor([2, 4])).dtype is DType.F32
    assert (Tensor([1, 2]) / Tensor([2.0, 4.0], "f16")).dtype is DType.F16
    assert (1 / Tensor([2, 4])).to_vec() == [0.5, 0.25]


def test_operators_and_their_reflections() -> None:
    x = Tensor([1.0, 2.0, 4.0])
    assert (x + 1).to_vec() == (1 + x).to_vec() == [2.0, 3.0, 5.0]
    assert (1 - x).to_vec() == [0.0, -1.0, -3.0]
    assert (8 / x).to_vec() == [8.0, 4.0, 2.0]
    assert (2**x).to_vec() == [2.0, 4.0, 16.0]
    assert (9 // x).to_vec() == [9.0, 4.0, 2.0]
    assert (9 % x).to_vec() == [0.0, 1.0, 1.0]
    assert (-x).abs().to_vec() == abs(x).to_vec() == x.to_vec()
    assert (x @ x).to_scalar() == 21.0
    assert (x == 2.0).to_vec() == [False, True, False]
    assert (x != 2.0).to_vec() == [True, False, True]
    assert (5 - Tensor([1, 2], "u8")).to_vec() == [4, 3]


def test_zero_and_minus_zero_are_different_numbers() -> None:
    x = Tensor([1.0])
    assert math.copysign(1.0, (x * 0.0).to_vec()[0]) == 1.0
    assert math.copysign(1.0, (x * -0.0).to_vec()[0]) == -1.0


def test_comparison_with_something_else_is_python_s() -> None:
    x = Tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(DTypeError):
        x + "a"
    with pytest.raises(DTypeError, match="from_numpy"):
        x + np.ones(3)


def test_floats_to_integers_follow_one_table() -> None:
    """numpy#23481, tensorflow#59702 (T36): saturate, NaN to 0, on every machine."""
    x = Tensor([-3.0, -1.5, 1.5, 1e20, math.nan, math.inf, -math.inf, 256.0])
    assert x.to_dtype("u8").to_vec() == [0, 0, 1, 255, 0, 255, 0, 255]
    top = 2**31 - 1
    assert x.to_dtype("i32").to_vec() == [-3, -1, 1, top, 0, top, -(2**31), 256]
    assert x.to_dtype("bool").to_vec() == [True, True, True, True, True, True, True, True]


def test_block_weights_take_no_arithmetic() -> None:
    w = Tensor.from_buffer(bytes(34 * 2), "q8_0", (2, 32))
    assert w.copy().buffer() == w.buffer()
    for call in (lambda: w + w, lambda: w + 1, lambda: w.reshape((64,)), lambda: w.t()):
        with pytest.raises(DTypeError, match="dequantize"):
            call()
    assert w.dequantize().to_vec() == [[0.0] * 32] * 2
    assert w.narrow(0, 1, 1).dequantize().to_vec() == [[0.0] * 32]
    with pytest.raises(DTypeError, match="whole blocks"):
        Tensor.from_buffer(bytes(34), "q8_0", (32, 1))


def test_where_takes_numbers_on_either_side() -> None:
    mask = Tensor([True, False])
    assert mask.where_cond(Tensor([1.0, 2.0]), 0.0).to_vec() == [1.0, 0.0]
    assert mask.where_cond(0.0, Tensor([1.0, 2.0])).to_vec() == [0.0, 2.0]
    assert mask.where_cond(1, 2).to_vec() == [1, 2]
    with pytest.raises(DTypeError):
        Tensor([1.0]).where_cond(1.0, 2.0)


# -- reductions ------------------------------------------------------------------------------------


def test_the_first_of_equals_wins() -> None:
    """pytorch#17738, pytorch#41998 (T01)."""
    x = Tensor([[2, 3, 0, 3, 3], [1, 3, 1, 3, 1]])
    assert x.argmax(1).to_vec() == [1, 1]
    assert Tensor.ones((16,)).argmax().to_scalar() == 0
    values, indices = x.to_dtype("f32").topk(2)
    assert indices.to_vec() == [[1, 3], [1, 3]]
    assert values[:, 0].to_vec() == x.max(1).to_vec()


def test_nan_wins_in_either_order() -> None:
    """pytorch#25016 (T03)."""
    ones, nans = Tensor.ones((3,)), Tensor.full((3,), math.nan)
    for made in (ones.maximum(nans), nans.maximum(ones), ones.minimum(nans), nans.minimum(ones)):
        assert all(map(math.isnan, made.to_vec()))
    assert Tensor([1.0, math.nan, 3.0, math.nan]).argmax().to_scalar() == 1


def test_half_precision_sums_do_not_overflow_or_stall() -> None:
    """candle PR 3765 (T09)."""
    x = Tensor.ones((4096, 2), "f16")
    assert x.sum(0).to_vec() == [4096.0, 4096.0]
    assert x.t().sum(1).to_vec() == [4096.0, 4096.0]
    assert Tensor.ones((65520,), "f16").mean().to_scalar() == 1.0


def test_half_precision_softmax_sums_to_one() -> None:
    """candle#3727 (T07)."""
    for dtype in ("f16", "bf16"):
        rows = F.softmax(Tensor.zeros((1, 4096), dtype))
        assert rows.to_vec()[0][0] == 1 / 4096
        assert rows.to_dtype("f32").sum().to_scalar() == pytest.approx(1.0, abs=1e-3)


def test_a_long_mean_does_not_drift(rng: np.random.Generator) -> None:
    """pytorch#55657 (T28)."""
    array = rng.standard_normal(5_000_000, np.float32) + 7
    got = Tensor.from_numpy(array).mean().to_scalar()
    assert got == pytest.approx(array.mean(dtype=np.float64), rel=1e-6)


def test_rows_far_from_zero_are_normalised() -> None:
    """onnxruntime#21935, mlx#2238, pytorch PR 178123 (T10, T12, T13)."""
    one, nil = Tensor.ones((256,)), Tensor.zeros((256,))
    assert F.layer_norm(Tensor.full((2, 256), 1234.0), one, nil).to_vec() == [[0.0] * 256] * 2
    values = [1449.5 + 0.5 * math.sin(k) for k in range(16)]
    got = F.layer_norm(Tensor(values), one[:16], nil[:16]).to_vec()
    exact = np.array(Tensor(values).to_vec())
    want = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    np.testing.assert_allclose(got, want, atol=1e-3)
    huge = F.layer_norm(Tensor([1e30, -1e30] * 128), one, nil).to_vec()
    assert all(abs(abs(v) - 1) < 1e-3 for v in huge)


def test_reductions_of_nothing() -> None:
    """tinygrad PR 3318 (T31)."""
    x = Tensor.zeros((0, 3))
    assert x.sum(0).to_vec() == [0.0] * 3
    assert all(map(math.isnan, x.mean(0).to_vec()))
    assert math.isnan(Tensor([1.0]).var().to_scalar())
    for reduce in (x.max, x.min, x.argmax, x.argmin):
        with pytest.raises(ShapeError):
            reduce(0)
    assert x.max(1).shape == (0,)


def test_softmax_of_a_row_without_hope_is_nan() -> None:
    """mlx#2395 (T30): documented; attention gives zeros for such a row instead."""
    assert all(map(math.isnan, F.softmax(Tensor([-math.inf, -math.inf])).to_vec()))


# -- matmul ----------------------------------------------------------------------------------------


def test_matmul_never_broadcasts_batches() -> None:
    """The error states both shapes and what mends it; and that does mend it."""
    a, b = Tensor.ones((2, 3)), Tensor.ones((4, 3, 5))
    with pytest.raises(ShapeError) as caught:
        a @ b
    text = str(caught.value)
    assert "[2, 3] @ [4, 3, 5]" in text
    assert "left.unsqueeze(0).expand([4, 2, 3])" in text
    assert a.unsqueeze(0).expand([4, 2, 3]).matmul(b).shape == (4, 2, 5)


@pytest.mark.parametrize(
    ("a", "b", "mend"),
    [
        ((4, 2, 3), (1, 3, 5), "right.expand([4, 3, 5])"),
        ((3,), (4, 3, 5), "left.unsqueeze(0).unsqueeze(0).expand([4, 1, 3])"),
        ((1, 2, 3), (4, 3, 5), "left.expand([4, 2, 3])"),
        ((2, 1, 2, 3), (1, 5, 3, 4), "left.expand([2, 5, 2, 3]) and right.expand([2, 5, 3, 4])"),
        ((4, 2, 3), (5, 3, 5), "cannot be"),
    ],
)
def test_matmul_says_what_mends_it(a: Any, b: Any, mend: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor.ones(a).matmul(Tensor.ones(b))
    assert mend in str(caught.value)
    assert f"{list(a)} @ {list(b)}" in str(caught.value)


@pytest.mark.parametrize(("a", "b"), [((2, 3), (4, 5)), ((3,), (4,)), ((), (3,)), ((2, 3), ())])
def test_matmul_refuses_sizes_that_differ(a: Any, b: Any) -> None:
    with pytest.raises(ShapeError, match="matmul"):
        Tensor.ones(a).matmul(Tensor.ones(b))


def test_matmul_refuses_two_dtypes_and_no_tensor() -> None:
    with pytest.raises(DTypeError):
        Tensor.ones((2, 2)).matmul(Tensor.ones((2, 2), "f64"))
    with pytest.raises(DTypeError):
        Tensor.ones((2, 2)).matmul(2.0)


# -- errors ----------------------------------------------------------------------------------------


def test_an_error_keeps_op_expected_and_got() -> None:
    with pytest.raises(CandleError) as caught:
        Tensor.ones((2, 3)).reshape((4,))
    error = caught.value
    assert (error.op, error.got) == ("reshape", [4])
    assert str(error) == "reshape: expected 6 elements, as in [2, 3], got [4]"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_errors_are_the_builtins_that_callers_expect() -> None:
    with pytest.raises(ValueError, match="reshape"):
        Tensor([1.0]).reshape(2)
    with pytest.raises(IndexError):
        Tensor([1.0])[1]
    with pytest.raises(TypeError):
        Tensor(["x"])


# -- out -------------------------------------------------------------------------------------------


@given(shapes.flatmap(arrays))
def test_to_vec_gives_back_every_bit(array: Any) -> None:
    x = tensor(array)
    np.testing.assert_array_equal(np.array(x.to_vec(), np.float32).reshape(array.shape), array)


def test_scalars_become_numbers() -> None:
    assert float(Tensor(2.5)) == 2.5
    assert int(Tensor([[7]])) == 7
    assert bool(Tensor([True]))
    assert Tensor([[3]]).item() == 3


@pytest.mark.parametrize("dtype", [*PLAIN, "q8_0"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_tensors_pickle(dtype: str, protocol: int) -> None:
    if dtype == "q8_0":
        x = Tensor.from_buffer(bytes(range(68)), dtype, (2, 32))
    else:
        x = Tensor([[0, 1], [1, 1]], dtype).t()
    y = pickle.loads(pickle.dumps(x, protocol))
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert bytes(y.buffer()) == bytes(x.contiguous().buffer())


def test_large_tensors_pickle_out_of_band_without_a_copy() -> None:
    x = Tensor.arange(1000)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(data) < 500
    assert pickle.loads(data, buffers=buffers).data.address == x.data.address


def test_a_variable_stays_one() -> None:
    v = Var([[1.0, 2.0]])
    for made in (pickle.loads(pickle.dumps(v)), copy.deepcopy(v), copy.copy(v)):
        assert type(made) is Var
        assert made.tracked
        assert made.to_vec() == v.to_vec()
        made.set(Tensor([[5.0, 6.0]]))
        assert v.to_vec() == [[1.0, 2.0]]


def test_the_device_is_the_cpu() -> None:
    x = Tensor([1.0])
    assert x.device == candle.Device.cpu()
    assert x.to_device("cpu") is x
    with pytest.raises(candle.DeviceError):
        x.to_device("cuda:0")
