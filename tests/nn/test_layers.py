"""Layers against PyTorch's recorded results, initial values, and their corners."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import candle
from candle import DType, Generator, OptionError, ShapeError, Tensor, Var, nn
from candle.testing import assert_close, gradcheck

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "training.npz")


def golden(name: str) -> Tensor:
    return Tensor.from_numpy(np.array(GOLDEN[name], order="C"))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "layer_norm": lambda: nn.LayerNorm.new(7),
    "rms_norm": lambda: nn.RmsNorm.new(7),
    "group_norm": lambda: nn.GroupNorm.new(2, 6),
    "batch_norm": lambda: nn.BatchNorm2d.new(3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_norm_agrees_with_pytorch(name: str) -> None:
    """Output, gradients of the input and of each parameter, running statistics, inference."""
    layer = LAYERS[name]()
    for key, value in layer.named_parameters():
        value.set(golden(f"{name}.{key}"))  # type: ignore[attr-defined]
    x = Var(golden(f"{name}.x"))
    layer(x.detach().mul(2.0).add(1.0))
    y = layer(x)
    assert_close(y, golden(f"{name}.y"), 1e-5, 1e-5)
    y.backward(golden(f"{name}.slope"))
    assert_close(x.grad(), golden(f"{name}.gx"), 1e-4, 1e-5)
    for key, value in layer.named_parameters():
        assert_close(value.grad(), golden(f"{name}.g{key}"), 1e-4, 1e-5)
    for key, value in layer.named_buffers():
        assert_close(value, golden(f"{name}.{key}"), 1e-5, 1e-6)
    assert_close(layer.eval()(x), golden(f"{name}.eval"), 1e-5, 1e-5)


def test_norms_have_gradients_by_differences() -> None:
    vb = nn.VarBuilder(dtype="f64")
    group, batch = nn.GroupNorm.new(2, 4, vb.pp("g")), nn.BatchNorm2d.new(2, vb.pp("b"))
    gradcheck(group, Tensor(np.random.default_rng(0).normal(size=(2, 4, 3)).tolist(), DType.F64))
    image = np.random.default_rng(1).normal(size=(2, 2, 2, 2)).tolist()
    gradcheck(batch, Tensor(image, DType.F64))


@pytest.mark.parametrize("name", ["group_norm", "batch_norm"])
def test_a_norm_of_huge_values_is_finite(name: str) -> None:
    """pytorch PR 178123 (#162489): the variance of 1e30 overflows f32."""
    layer = nn.GroupNorm.new(1, 2) if name == "group_norm" else nn.BatchNorm2d.new(2)
    x = Tensor([1e30, -1e30] * 4).reshape((2, 2, 2, 1))
    assert_close(layer(x).abs(), np.ones((2, 2, 2, 1)).tolist())


def test_a_norm_of_a_constant_row_is_its_bias() -> None:
    """onnxruntime#21935: not NaN."""
    layer = nn.LayerNorm.new(256)
    layer.bias.set(Tensor.full((256,), 0.5))  # type: ignore[attr-defined]
    assert layer(Tensor.full((1, 256), 1234.0)).to_vec() == [[0.5] * 256]


def test_batch_norm_refuses_a_variance_of_one_value() -> None:
    layer = nn.BatchNorm2d.new(3)
    with pytest.raises(ShapeError, match="eval"):
        layer(Tensor.zeros((1, 3, 1, 1)))
    assert layer.eval()(Tensor.zeros((1, 3, 1, 1))).shape == (1, 3, 1, 1)


def test_statistics_stand_still_at_inference() -> None:
    layer = nn.BatchNorm2d.new(1).eval()
    layer(candle.randn((4, 1, 2, 2)))
    assert layer.running_mean.to_vec() == [0.0] and layer.num_batches_tracked.to_scalar() == 0


def test_statistics_of_half_precision_are_f32() -> None:
    """A variance above 65,504 would be infinite in f16, and small moves would be lost."""
    layer = nn.BatchNorm2d.new(1, nn.VarBuilder(dtype="f16"))
    x = Tensor([[1000.0, -1000.0]], "f16").reshape((1, 1, 1, 2))
    for _ in range(3):
        assert layer(x).dtype is DType.F16
    assert layer.running_var.dtype is DType.F32
    assert layer.running_var.to_vec() == [pytest.approx(2e6 * (1 - 0.9**3) + 0.9**3)]
    assert layer.eval()(x).dtype is DType.F16


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.GroupNorm.new(2, 4), (2, 3, 2)),
        (nn.GroupNorm.new(2, 4), (4,)),
        (nn.BatchNorm2d.new(3), (2, 4, 2, 2)),
        (nn.BatchNorm2d.new(3), (2, 3, 2)),
    ],
)
def test_other_channels_are_named(layer: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="Norm"):
        layer(Tensor.zeros(shape))


def test_groups_divide_channels() -> None:
    with pytest.raises(OptionError, match="divide 4"):
        nn.GroupNorm.new(3, 4)


def test_empty_batches_pass() -> None:
    assert nn.GroupNorm.new(2, 4)(Tensor.zeros((0, 4, 3))).shape == (0, 4, 3)
    assert nn.BatchNorm2d.new(2).eval()(Tensor.zeros((0, 2, 3, 3))).shape == (0, 2, 3, 3)


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    y = nn.Dropout(0.25, Generator(5))(Tensor.ones((100_000,))).numpy()
    assert set(np.unique(y)) == {0.0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.01 and abs(y.mean() - 1.0) < 0.01


def test_dropout_has_the_gradient_of_its_mask() -> None:
    layer, x = nn.Dropout(0.5, Generator(1)), Var(Tensor.ones((50,)))
    y = layer(x)
    y.sum().backward()
    assert y.to_vec() == x.grad().to_vec()  # type: ignore[union-attr]


def test_dropout_is_nothing_at_inference_and_repeats_by_seed() -> None:
    x = candle.randn((20,))
    assert nn.Dropout(0.9).eval()(x) is x
    a, b = (nn.Dropout(0.5, Generator(7))(x).to_vec() for _ in range(2))
    assert a == b != nn.Dropout(0.5, Generator(8))(x).to_vec()
    assert nn.Dropout(1.0)(x).sqr().sum().to_scalar() == 0.0
    for p in (-0.1, 1.1, math.nan):
        with pytest.raises(OptionError, match="Dropout"):
            nn.Dropout(p)


# -- initial values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["kaiming_uniform", "kaiming_normal", "xavier_uniform", "xavier_normal"]
)
def test_an_initialiser_has_the_spread_of_pytorchs(name: str) -> None:
    drawn = getattr(nn.init, name)()((300, 100, 3, 3), Generator(2)).numpy()
    assert drawn.std() == pytest.approx(float(GOLDEN[f"{name}.std"]), rel=0.01)
    assert abs(drawn.mean()) < 0.01 * drawn.std()
    if name.endswith("uniform"):
        assert np.abs(drawn).max() == pytest.approx(float(GOLDEN[f"{name}.peak"]), rel=1e-3)


def test_linear_starts_as_pytorchs() -> None:
    layer = nn.Linear.new(400, 500, nn.VarBuilder(generator=Generator(0)))
    peak = np.abs(layer.weight.numpy()).max()
    assert peak == pytest.approx(float(GOLDEN["linear.peak"]), rel=1e-3)
    assert layer.bias is not None and np.abs(layer.bias.numpy()).max() <= 0.05


def test_embedding_starts_normal() -> None:
    table = nn.Embedding.new(1000, 50).weight.numpy()
    assert table.std() == pytest.approx(1.0, abs=0.02) and abs(table.mean()) < 0.02


def test_initialisers_say_what_they_take() -> None:
    with pytest.raises(ShapeError, match="2 axes"):
        nn.init.kaiming_normal()((3,), None)
    with pytest.raises(OptionError, match="fan"):
        nn.init.kaiming_normal(fan="up")((3, 3), None)
    with pytest.raises(OptionError, match="low <= high"):
        nn.init.uniform(1.0, -1.0)
    with pytest.raises(OptionError, match="std"):
        nn.init.normal(0.0, -1.0)
    assert nn.init.constant(2.0)((2,), None).to_vec() == [2.0, 2.0]


def test_layers_without_inputs_are_legal() -> None:
    assert nn.Linear.new(0, 2)(Tensor.zeros((3, 0))).shape == (3, 2)
