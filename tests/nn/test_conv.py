"""Convolutions and pools as layers: shapes, parameters, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import candle
from candle import OptionError, ShapeError, Tensor, nn
from candle import functional as F


def test_a_convolution_is_its_function() -> None:
    layer = nn.Conv2d.new(4, 6, (3, 2), stride=2, padding=1, groups=2)
    x = candle.randn((2, 4, 7, 6))
    wanted = F.conv2d(x, layer.weight, layer.bias, stride=2, padding=1, groups=2)
    assert layer(x).to_vec() == wanted.to_vec() and layer(x).shape == (2, 6, 4, 4)
    assert layer.weight.shape == (6, 2, 3, 2)


def test_one_axis_is_convolved() -> None:
    layer = nn.Conv1d.new(3, 5, 4, bias=False, dilation=2)
    assert layer(candle.randn((2, 3, 10))).shape == (2, 5, 4) and layer.bias is None


def test_a_transposed_convolution_gives_the_size_back() -> None:
    down = nn.Conv2d.new(3, 8, 3, stride=2, padding=1)
    up = nn.ConvTranspose2d.new(8, 3, 3, stride=2, padding=1, output_padding=1)
    x = candle.randn((1, 3, 8, 8))
    assert up(down(x)).shape == x.shape and up.weight.shape == (8, 3, 3, 3)


def test_gradients_reach_every_parameter() -> None:
    model = nn.Sequential(
        nn.Conv2d.new(1, 2, 3), Tensor.relu, nn.MaxPool2d(2), nn.AvgPool2d(2, stride=1)
    )
    model(candle.randn((2, 1, 8, 8))).sqr().sum().backward()
    assert all(v.grad() is not None for v in model.parameters())


def test_pools_are_their_functions() -> None:
    x = candle.randn((1, 2, 5, 5))
    assert (
        nn.MaxPool2d(2, ceil_mode=True)(x).to_vec() == F.max_pool2d(x, 2, ceil_mode=True).to_vec()
    )
    assert nn.AvgPool2d(3, padding=1)(x).to_vec() == F.avg_pool2d(x, 3, padding=1).to_vec()


def test_weights_start_within_the_fan() -> None:
    """PyTorch's bound: of in/groups x kernel; transposed, of out/groups x kernel."""
    for layer, fan in ((nn.Conv2d.new(8, 64, 5), 200), (nn.ConvTranspose2d.new(64, 8, 5), 200)):
        peak = np.abs(layer.weight.numpy()).max()
        assert 0.98 / fan**0.5 < peak <= 1 / fan**0.5


def test_convolutions_print_what_they_are() -> None:
    layer = nn.Conv2d.new(2, 4, 3, padding=1, bias=False)
    assert repr(layer).splitlines()[0] == "Conv2d([4, 2], 3x3, padding 1, no bias)  72"
    assert "MaxPool2d(2, stride 1)" in repr(nn.MaxPool2d(2, stride=1))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OptionError, match="divisor of 3 and 4"):
        nn.Conv2d.new(3, 4, 3, groups=2)
    with pytest.raises(OptionError, match="kernel"):
        nn.Conv2d.new(3, 4, 0)
    with pytest.raises(ShapeError):
        nn.Conv2d.new(3, 4, 3)(Tensor.zeros((1, 2, 8, 8)))
