"""Convolution and pooling as users call them: sizes, refusals, and the known surprises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from candle import Tensor, Var
from candle import functional as F
from candle.errors import DTypeError, OptionError, ShapeError
from candle.testing import assert_close


def test_weights_with_gaps() -> None:
    """pytorch#1246, #16018, #55781 (T15)."""
    base = Tensor.from_numpy(np.arange(144, dtype=np.float32).reshape(3, 3, 4, 4))
    w = base[:, :, ::2, ::2]
    x = Tensor.ones((3, 3, 2, 2))
    assert_close(F.conv2d(x, w), F.conv2d(x, w.copy()), 0.0, 0.0)


def test_slices_of_one_column() -> None:
    """pytorch#18948 (T16)."""
    x = Tensor([[0.0, 2.0, 2.0], [0.0, 0.0, 1.0], [2.0, 0.0, 0.0]])[:, 2:]
    w = Tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 3.0], [0.0, 3.0, 1.0]])[:, 2:]
    made = F.conv2d(x.unsqueeze(0).unsqueeze(0), w.unsqueeze(0).unsqueeze(0))
    assert made.to_vec() == [[[[3.0]]]]


def test_strides_of_axes_of_one_are_ignored(rng: np.random.Generator) -> None:
    """pytorch#195394 (T18): (2,64,1,1) with strides (64,1,64,64)."""
    memory = rng.standard_normal((2, 64), np.float32)
    odd = np.lib.stride_tricks.as_strided(memory, (2, 64, 1, 1), (256, 4, 256, 256))
    w = Tensor.from_numpy(rng.standard_normal((4, 64, 125, 1), np.float32))
    given: dict[str, Any] = {"stride": (2, 1), "padding": (63, 0)}
    made = F.conv2d(Tensor.from_numpy(odd), w, **given)
    plain = F.conv2d(Tensor.from_numpy(memory.reshape(2, 64, 1, 1)), w, **given)
    assert made.shape == plain.shape == (2, 4, 2, 1)
    assert_close(made, plain, 0.0, 0.0)


def test_ceil_adds_no_window_outside() -> None:
    """pytorch#45357 (T19)."""
    made = F.max_pool2d(Tensor.zeros((1, 1, 6, 7)), 1, 2, ceil_mode=True)
    assert made.shape == (1, 1, 3, 4)
    assert made.min().to_scalar() == 0.0


def test_padding_is_measured_by_the_dilated_window() -> None:
    """pytorch PR 154395 (T21): kernel 3, dilation 2 reaches over 5, so that 2 is legal."""
    x = Tensor.ones((1, 1, 8, 8))
    assert F.max_pool2d(x, 3, 1, padding=2, dilation=2).shape == (1, 1, 8, 8)
    with pytest.raises(OptionError, match="half the window"):
        F.max_pool2d(x, 3, 1, padding=3, dilation=2)


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d])
def test_a_window_that_does_not_fit_names_the_sizes(pool: Any) -> None:
    """pytorch#88464 (T22)."""
    with pytest.raises(ShapeError, match=r"kernel of 4.*got 1"):
        pool(Tensor.ones((1, 1, 1, 8)), 4, 1)


def test_max_takes_the_first_of_equals_and_nan_before_all() -> None:
    x = Var(Tensor([[[[1.0, 1.0, 2.0, float("nan")], [1.0, 1.0, float("inf"), 5.0]]]]))
    made = F.max_pool2d(x, 2)
    made.sum().backward()
    grad = x.grad()
    assert grad is not None
    assert made.to_vec()[0][0][0][0] == 1.0
    assert np.isnan(made.to_vec()[0][0][0][1])
    assert grad.to_vec() == [[[[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]]]


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_precision_is_summed_in_single(name: str, rng: np.random.Generator) -> None:
    x = Tensor.from_numpy(rng.standard_normal((2, 64, 5, 5), np.float32)).to_dtype(name)
    w = Tensor.from_numpy(rng.standard_normal((3, 64, 3, 3), np.float32)).to_dtype(name)
    made = F.conv2d(x, w)
    assert str(made.dtype) == name
    wide = F.conv2d(x.to_dtype("f32"), w.to_dtype("f32"))
    assert_close(made, wide.to_dtype(name), 0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x, w: F.conv2d(x, w[:, :1]), ShapeError, "conv2d"),
        (lambda x, w: F.conv2d(x, w, groups=2), ShapeError, "groups|multiple"),
        (lambda x, w: F.conv2d(x, w, groups=0), OptionError, "groups"),
        (lambda x, w: F.conv2d(x, w, stride=0), OptionError, "stride"),
        (lambda x, w: F.conv2d(x, w, padding=-1), OptionError, "padding"),
        (lambda x, w: F.conv2d(x, w, dilation=(1, 2, 3)), OptionError, "pair"),
        (lambda x, w: F.conv2d(x, w, dilation=4), ShapeError, "kernel of 3, dilation 4"),
        (lambda x, w: F.conv2d(x, w, Tensor.ones(3)), ShapeError, "bias"),
        (lambda x, w: F.conv2d(x[0], w), ShapeError, "4 axes"),
        (lambda x, w: F.conv2d(x, w.to_dtype("f64")), DTypeError, "one dtype"),
        (lambda x, w: F.conv2d(x.to_dtype("i32"), w), DTypeError, "f32"),
        (lambda x, w: F.conv2d(x, w, padding=2**40), OptionError, "padding"),
        (lambda x, w: F.conv_transpose2d(x, w), ShapeError, "weights"),
        (lambda x, w: F.conv_transpose2d(x, w, output_padding=1), OptionError, "output_padding"),
        (lambda x, w: F.conv1d(x, w), ShapeError, "3 axes"),
        (lambda x, w: F.max_pool2d(x, 0), OptionError, "kernel"),
        (lambda x, w: F.avg_pool2d(x, 2, 0), OptionError, "stride"),
        (lambda x, w: F.avg_pool2d(x, 2, padding=2), OptionError, "half"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], text: str) -> None:
    x, w = Tensor.ones((2, 2, 6, 6)), Tensor.ones((4, 2, 3, 3))
    with pytest.raises(error, match=text):
        call(x, w)
