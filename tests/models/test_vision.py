"""Image models: what they see, and that compiled they see the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import candle
from candle import Tensor
from candle.models.mobilenet import efficientnet_lite0, mobilenet_v2
from candle.models.resnet import ResNet
from candle.nn import Module, VarBuilder

ROOT = Path(__file__).resolve().parents[2]
LITE0 = ROOT / ".models/efficientnet-lite0.pth"
CATS, ESPRESSO, ROCKETS = {281, 282, 285}, {967}, {657, 744}  # ImageNet's numbers


def photos() -> Tensor:
    pixels = np.load(ROOT / "tests/golden/photos.npz")["photos"].astype(np.float32)
    return Tensor.from_numpy(
        np.ascontiguousarray((pixels - 127) / 128).transpose(0, 3, 1, 2).copy()
    )


@pytest.mark.model
def test_efficientnet_knows_a_cat_a_coffee_and_a_rocket() -> None:
    if not LITE0.exists():
        pytest.skip("EfficientNet-lite0 is absent (python tools/models.py test)")
    model = efficientnet_lite0(VarBuilder.open(LITE0))
    model.eval()
    x = photos()
    with candle.no_grad():
        eager = model(x)
    compiled = candle.compile(model, x)(x)
    for scores in (eager, compiled):
        best = scores.argmax(1).to_vec()
        assert all(k in right for k, right in zip(best, (CATS, ESPRESSO, ROCKETS), strict=True))
    assert np.abs(eager.numpy() - compiled.numpy()).max() < 1e-4


NETS: dict[str, Callable[[], Module]] = {
    "ResNet-18": lambda: ResNet.new(18, classes=10),
    "ResNet-50": lambda: ResNet.new(50, classes=10),
    "MobileNetV2": lambda: mobilenet_v2(classes=10),
    "EfficientNet-lite0": lambda: efficientnet_lite0(classes=10),
}


@pytest.mark.parametrize("name", NETS)
def test_compiled_nets_answer_as_eager_ones(name: str) -> None:
    candle.manual_seed(0)
    model = NETS[name]()
    x = candle.randn((2, 3, 64, 64))
    model.train()
    with candle.no_grad():  # statistics that are not those of new layers
        for _ in range(3):
            model(candle.randn((8, 3, 64, 64)))
    model.eval()
    with candle.no_grad():
        eager = model(x).numpy()
    compiled = candle.compile(model, x)
    assert not any(n.op == "conv2d" for n in compiled.graph.nodes)
    assert np.abs(compiled(x).numpy() - eager).max() < 2e-5 * np.abs(eager).max()
    assert compiled.arena.nbytes <= 1.05 * compiled.arena.bound
