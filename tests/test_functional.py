"""pad, upsample, chunk, cumsum, sort, index_add and scatter_add: corners, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from candle import DType, Generator, Tensor, Var
from candle import functional as F
from candle.errors import DTypeError, OptionError, RangeError, ShapeError
from candle.testing import assert_close, gradcheck

# -- chunk and flip --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [0, -1])
def test_no_chunks_are_an_error(chunks: int) -> None:
    """candle PR 3778 (T33): a ValueError, not a division by zero."""
    with pytest.raises(ValueError, match="1 chunk or more"):
        Tensor.zeros((4, 2)).chunk(chunks)


def test_chunks_are_views_of_equal_length() -> None:
    x = Tensor.arange(10)
    assert [c.to_vec() for c in x.chunk(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [c.shape for c in Tensor.zeros((2, 3)).chunk(5, -1)] == [(2, 1)] * 3
    assert [c.shape for c in Tensor.zeros((2, 0)).chunk(4, 1)] == [(2, 0)]
    assert all(c.data.storage is x.data.storage for c in x.chunk(2))
    with pytest.raises(RangeError, match="scalar"):
        Tensor(1.0).chunk(1)


def test_flip_of_axes() -> None:
    x = Tensor([[1, 2], [3, 4]])
    assert x.flip((0, 1)).to_vec() == [[4, 3], [2, 1]] == x.flip([-1, -2]).to_vec()
    with pytest.raises(ShapeError, match="different axes"):
        x.flip((1, -1))


# -- running sums and orders -----------------------------------------------------------------------


def test_cumsum_of_half_precision_keeps_its_sums() -> None:
    """candle PR 3765 (T09): 4096 ones add up, though f16 counts no further than 2048 by ones."""
    assert Tensor.ones(4096, "f16").cumsum(0)[-1].to_scalar() == 4096
    assert Tensor.ones((300, 2), "bf16").cumsum(0)[-1].to_vec() == [300.0, 300.0]
    assert Tensor.ones(3, "u8").cumsum(0).dtype is DType.I64


def test_drawing_by_running_sums_follows_the_weights() -> None:
    """tinygrad#4999 (T39): not always the last index; chi-square of 4 degrees, p = 0.001."""
    weights = Tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    ends = weights.cumsum(0).div(15.0)
    draws = Tensor.rand((15_000, 1), Generator(3))
    found = draws.ge(ends).to_dtype("i64").sum(1).numpy()
    counts = np.bincount(found, minlength=5)
    expected = np.arange(1, 6) * 1000
    assert ((counts - expected) ** 2 / expected).sum() < 18.5


def test_max_argmax_topk_and_sort_agree_on_ties() -> None:
    """pytorch#17738, #33253 (T01): the first of equals, everywhere."""
    x = Tensor([[2.0, 3, 0, 3, 3], [1, 3, 1, 3, 1]])
    assert x.argmax(1).to_vec() == [1, 1] == x.topk(1)[1].squeeze(1).to_vec()
    assert x.sort(descending=True)[1].narrow(1, 0, 1).squeeze(1).to_vec() == [1, 1]
    assert x.gather(x.argmax(1, keepdim=True), 1).squeeze(1).to_vec() == x.max(1).to_vec()
    assert Tensor.ones(16).argmax().to_scalar() == 0


def test_orders_of_special_values() -> None:
    """NaN counts as the greatest: last, and first where descending."""
    x = Tensor([np.nan, 1.0, -np.inf, np.inf])
    assert x.sort()[1].to_vec() == [2, 1, 3, 0]
    assert x.sort(descending=True)[1].to_vec() == [0, 3, 1, 2] == x.topk(4)[1].to_vec()
    with pytest.raises(RangeError, match="scalar"):
        Tensor(1.0).sort()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_orders_in_half_precision_have_gradients(dtype: str) -> None:
    x = Var([3.0, 1.0, 2.0], dtype)
    x.sort()[0].mul(Tensor([1.0, 2.0, 4.0], dtype)).sum().backward()
    grad = x.grad()
    assert grad is not None
    assert grad.dtype is x.dtype
    assert grad.to_vec() == [4.0, 1.0, 2.0]


# -- sums at indices -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_at_indices_are_kept_in_single(dtype: str) -> None:
    """candle PR 3765 (T09): 4096 times one is 4096, though f16 counts no further than 2048."""
    zero, ones = Tensor.zeros(2, dtype), Tensor.ones(4096, dtype)
    at = Tensor.zeros(4096, "i64")
    for made in (zero.index_add(at, ones), zero.scatter_add(at, ones, 0)):
        assert made.dtype is zero.dtype
        assert made.to_vec() == [4096.0, 0.0]


def test_indices_outside_are_errors() -> None:
    x, s = Tensor.zeros((2, 3)), Tensor.ones((2, 1))
    for bad in (-1, 3):
        with pytest.raises(RangeError):
            x.scatter_add(Tensor([[0], [bad]]), s, 1)
        with pytest.raises(RangeError):
            x.index_add(Tensor([bad]), s, 1)
    with pytest.raises(ShapeError, match="index_add"):
        x.index_add(Tensor([0]), Tensor.ones(3))
    with pytest.raises(DTypeError, match="index_add"):
        x.index_add(Tensor([0.0]), s, 1)
    with pytest.raises(DTypeError, match="tensors"):
        x.index_add([0], s)  # type: ignore[arg-type]


def test_softmax_of_nothing_but_minus_infinity_is_nan() -> None:
    """pytorch#41508 (T30): plain softmax says NaN; logsumexp is -inf, attention is 0."""
    x = Tensor.full((1, 3), -np.inf)
    assert np.isnan(x.softmax().numpy()).all()
    assert F.logsumexp(x).to_vec() == [-np.inf]
    assert F.logsumexp(Tensor([np.inf, 1.0])).to_scalar() == np.inf
    q = Tensor.ones((1, 1, 1, 4))
    seen = F.attention(q, q, q, Tensor([0], "i32"))
    assert seen.to_vec() == [[[[0.0] * 4]]]


def test_floats_to_integers_by_one_table() -> None:
    """mlx#2015, numpy#23481 (T36): saturate, NaN to 0, towards zero, on every machine."""
    x = Tensor([-3.0, -1.5, 1e20, np.nan, np.inf, -np.inf, 255.9])
    assert x.to_dtype("u8").to_vec() == [0, 0, 255, 0, 255, 0, 255]
    top = 2**31 - 1
    assert x.to_dtype("i32").to_vec() == [-3, -1, top, 0, top, -(2**31), 255]


# -- pad -------------------------------------------------------------------------------------------


def test_pad_refuses_what_does_not_fit() -> None:
    x = Tensor.zeros((2, 3))
    with pytest.raises(OptionError, match="pairs of 0 or more"):
        F.pad(x, [(1, -1)])
    with pytest.raises(OptionError, match="at most 2 axes"):
        F.pad(x, [(1, 1)] * 3)
    with pytest.raises(OptionError, match="pairs"):
        F.pad(x, [(1,)])
    with pytest.raises(OptionError, match="mode"):
        F.pad(x, [(1, 1)], "circular")
    with pytest.raises(ShapeError, match="longer than its margins"):
        F.pad(x, [(3, 0)], "reflect")
    with pytest.raises(ShapeError, match="longer than its margins"):
        F.pad(Tensor.zeros((2, 0)), [(1, 0)], "replicate")
    with pytest.raises(OptionError, match="fit u8"):
        F.pad(x.to_dtype("u8"), [(1, 1)], value=300)
    with pytest.raises(ShapeError):
        F.pad(x, [(2**62, 2**62)])


def test_margins_of_nothing_are_margins() -> None:
    assert F.pad(Tensor.zeros((0, 2)), [(1, 1), (0, 0)], value=7).to_vec() == [[7, 7], [7, 7]]
    assert F.pad(Tensor(2.0), []).to_vec() == 2.0
    assert F.pad(Tensor.zeros((0, 3)), [(2, 1)], "reflect").shape == (0, 6)


# -- upsample --------------------------------------------------------------------------------------


def test_upsample_by_size_or_scale() -> None:
    x = Tensor.arange(6).to_dtype("f32").reshape((1, 1, 2, 3))
    for scaled, sized in (
        (F.upsample_nearest2d(x, scale=2), F.upsample_nearest2d(x, (4, 6))),
        (F.upsample_bilinear2d(x, scale=(1, 3)), F.upsample_bilinear2d(x, [2, 9])),
    ):
        assert_close(scaled, sized, 0.0, 0.0)
    assert F.upsample_nearest2d(x, (1, 2)).to_vec() == [[[[0.0, 1.0]]]]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_upsample_of_half_precision(dtype: str) -> None:
    x = Var(Tensor.ones((1, 1, 2, 2), dtype))
    y = F.upsample_bilinear2d(x, (4, 4))
    assert y.dtype is x.dtype
    y.sum().backward()
    grad = x.grad()
    assert grad is not None
    assert grad.dtype is x.dtype
    assert grad.to_vec() == [[[[4.0, 4.0], [4.0, 4.0]]]]


def test_upsample_refuses_what_does_not_fit() -> None:
    x = Tensor.zeros((1, 1, 2, 2))
    for given in ({}, {"size": 2, "scale": 2}):
        with pytest.raises(OptionError, match="either"):
            F.upsample_nearest2d(x, **given)
    with pytest.raises(ShapeError, match=r"\[b,c,h,w\]"):
        F.upsample_bilinear2d(x[0], 2)
    with pytest.raises(OptionError, match="0 or more"):
        F.upsample_nearest2d(x, -1)
    with pytest.raises(ShapeError, match="with elements"):
        F.upsample_nearest2d(x[:, :, :0], 2)
    with pytest.raises(DTypeError):
        F.upsample_nearest2d(x.to_dtype("i32"), 2)
    assert F.upsample_nearest2d(x, 0).shape == (1, 1, 0, 0)
    assert F.upsample_nearest2d(x[:0], 3).shape == (0, 1, 3, 3)


def test_gradients_of_what_is_composed() -> None:
    """First and second order by differences."""
    x = Tensor([[0.3, -1.2, 0.9], [2.0, 0.4, -0.7]], DType.F64)
    t = Tensor([2, 0])
    for function in (
        lambda x: F.nll_loss(F.log_softmax(x), t),
        lambda x: F.nll_loss(x, t, reduction="none"),
        F.logsumexp,
        lambda x: F.pad(x, [(1, 0), (2, 2)], "reflect"),
        lambda x: Tensor.cat([*x.chunk(2, 1), x.flip((0, 1))], 1),
    ):
        gradcheck(function, x)
        gradcheck(function, x, order=2, tolerance=1e-5)
