"""Image nets written once over a few operations, so that peers run the very nets of candle.models.

`Onnx` writes them as ONNX files, `Torch` runs them in PyTorch; both take the weights that our
models saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Weights = dict[str, Any]
STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
LITE0 = (  # repeats, kernel, stride of the first, expansion
    (1, 3, 1, 1),
    (2, 3, 2, 6),
    (2, 5, 2, 6),
    (3, 3, 2, 6),
    (3, 5, 1, 6),
    (4, 5, 2, 6),
    (1, 3, 1, 6),
)


class Onnx:
    """Operations as nodes of an ONNX graph; values are names."""

    def __init__(self, weights: Weights, shape: tuple[int, ...]) -> None:
        from onnx import helper, numpy_helper

        self.helper, self.numpy, self.weights = helper, numpy_helper, weights
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.shape = shape

    def node(self, op: str, *ins: str, **attributes: Any) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, ins, [out], **attributes))
        return out

    def constant(self, name: str) -> str:
        self.constants[name] = self.numpy.from_array(np.ascontiguousarray(self.weights[name]), name)
        return name

    def conv(self, x: str, name: str, stride: int, pads: tuple[int, ...], groups: int = 1) -> str:
        ins = [x, self.constant(f"{name}.weight")]
        ins += [self.constant(f"{name}.bias")] if f"{name}.bias" in self.weights else []
        return self.node("Conv", *ins, strides=[stride] * 2, pads=pads, group=groups)

    def norm(self, x: str, name: str, epsilon: float) -> str:
        keys = ("weight", "bias", "running_mean", "running_var")
        ins = [self.constant(f"{name}.{k}") for k in keys]
        return self.node("BatchNormalization", x, *ins, epsilon=epsilon)

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def relu6(self, x: str) -> str:
        for name, value in (("zero", 0.0), ("six", 6.0)):
            self.constants[name] = self.numpy.from_array(np.array(value, np.float32), name)
        return self.node("Clip", x, "zero", "six")

    def add(self, x: str, y: str) -> str:
        return self.node("Add", x, y)

    def max_pool(self, x: str, size: int, stride: int, padding: int) -> str:
        sides = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        return self.node("MaxPool", x, **sides)

    def mean(self, x: str) -> str:
        return self.node("Flatten", self.node("GlobalAveragePool", x))

    def flat(self, x: str) -> str:
        return self.node("Flatten", x)

    def linear(self, x: str, name: str) -> str:
        ins = self.constant(f"{name}.weight"), self.constant(f"{name}.bias")
        return self.node("Gemm", x, *ins, transB=1)

    def save(self, net: Callable[[Any, Any], Any], path: str) -> None:
        """Writes the net as a file whose input is `x` of the given shape."""
        out = net(self, "x")
        f32 = 1
        given = self.helper.make_tensor_value_info("x", f32, self.shape)
        asked = self.helper.make_tensor_value_info(out, f32, None)
        graph = self.helper.make_graph(
            self.nodes, "net", [given], [asked], list(self.constants.values())
        )
        opset = [self.helper.make_opsetid("", 17)]
        model = self.helper.make_model(graph, opset_imports=opset, ir_version=8)
        with open(path, "wb") as file:
            file.write(model.SerializeToString())


class Torch:
    """Operations run at once by PyTorch; values are tensors."""

    def __init__(self, weights: Weights) -> None:
        import torch

        self.torch, self.f = torch, torch.nn.functional
        self.weights = {k: torch.from_numpy(v) for k, v in weights.items()}

    def conv(self, x: Any, name: str, stride: int, pads: tuple[int, ...], groups: int = 1) -> Any:
        top, left, bottom, right = pads
        if (top, left) != (bottom, right):
            x, top, left = self.f.pad(x, (left, right, top, bottom)), 0, 0
        weight, bias = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        return self.f.conv2d(x, weight, bias, stride, (top, left), 1, groups)

    def norm(self, x: Any, name: str, epsilon: float) -> Any:
        keys = ("running_mean", "running_var", "weight", "bias")
        return self.f.batch_norm(x, *(self.weights[f"{name}.{k}"] for k in keys), eps=epsilon)

    def relu(self, x: Any) -> Any:
        return self.f.relu_(x)

    def relu6(self, x: Any) -> Any:
        return self.f.hardtanh_(x, 0.0, 6.0)

    def add(self, x: Any, y: Any) -> Any:
        return x.add_(y)

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self.f.max_pool2d(x, size, stride, padding)

    def mean(self, x: Any) -> Any:
        return x.mean((2, 3))

    def flat(self, x: Any) -> Any:
        return x.flatten(1)

    def linear(self, x: Any, name: str) -> Any:
        return self.f.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])


def resnet(depth: int) -> Callable[[Any, Any], Any]:
    """ResNet-18 or 50, with torchvision's names."""
    deep = depth == 50

    def block(b: Any, x: Any, name: str, stride: int, first: bool) -> Any:
        def step(y: Any, k: int, stride: int, side: int) -> Any:
            return b.norm(b.conv(y, f"{name}.conv{k}", stride, (side,) * 4), f"{name}.bn{k}", 1e-5)

        if deep:
            y = b.relu(step(x, 1, 1, 0))
            y = step(b.relu(step(y, 2, stride, 1)), 3, 1, 0)
        else:
            y = step(b.relu(step(x, 1, stride, 1)), 2, 1, 1)
        if first and (deep or stride > 1):
            x = b.conv(x, f"{name}.downsample.0", stride, (0,) * 4)
            x = b.norm(x, f"{name}.downsample.1", 1e-5)
        return b.relu(b.add(y, x))

    def net(b: Any, x: Any) -> Any:
        x = b.relu(b.norm(b.conv(x, "conv1", 2, (3,) * 4), "bn1", 1e-5))
        x = b.max_pool(x, 3, 2, 1)
        for stage, count in enumerate(STAGES[depth]):
            for k in range(count):
                stride = 2 if stage and not k else 1
                x = block(b, x, f"layer{stage + 1}.{k}", stride, not k)
        return b.linear(b.mean(x), "fc")

    return net


def lite0(b: Any, x: Any) -> Any:
    """EfficientNet-lite0, with the names of `efficientnet_lite_pytorch`; 224 x 224."""

    def step(y: Any, conv: str, norm: str, kernel: int, stride: int, groups: int = 1) -> Any:
        side = (kernel - 1) // 2
        pads = (side,) * 4 if stride == 1 else ((kernel - 2) // 2,) * 2 + ((kernel - 1) // 2,) * 2
        return b.norm(b.conv(y, conv, stride, pads, groups), norm, 1e-3)

    x = b.relu6(step(x, "_conv_stem", "_bn0", 3, 2))
    at = 0
    for repeats, kernel, stride, widen in LITE0:
        for k in range(repeats):
            name, y = f"_blocks.{at}", x
            if widen != 1:
                y = b.relu6(step(y, f"{name}._expand_conv", f"{name}._bn0", 1, 1))
            deep = f"{name}._depthwise_conv"
            groups = b.weights[f"{deep}.weight"].shape[0]
            by = stride if k == 0 else 1
            y = b.relu6(step(y, deep, f"{name}._bn1", kernel, by, groups))
            y = step(y, f"{name}._project_conv", f"{name}._bn2", 1, 1)
            x = b.add(y, x) if k else y
            at += 1
    x = b.relu6(step(x, "_conv_head", "_bn1", 1, 1))
    return b.linear(b.mean(x), "_fc")


def lenet(b: Any, x: Any) -> Any:
    """LeNet-5 on 28 x 28."""
    for name in ("conv1", "conv2"):
        x = b.max_pool(b.relu(b.conv(x, name, 1, (0,) * 4)), 2, 2, 0)
    x = b.relu(b.linear(b.flat(x), "fc1"))
    return b.linear(b.relu(b.linear(x, "fc2")), "fc3")


NETS: dict[str, Callable[[Any, Any], Any]] = {
    "ResNet-18": resnet(18),
    "ResNet-50": resnet(50),
    "EfficientNet-lite0": lite0,
    "LeNet-5": lenet,
}
