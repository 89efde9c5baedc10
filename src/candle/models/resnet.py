"""ResNet for images (He et al. 2015), with the names and the strides of torchvision's.

In the three-layer block the 3x3 convolution strides, not the first (the v1.5 of the same).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import OptionError
from ..nn import BatchNorm2d, Conv2d, Linear, MaxPool2d, Module, Sequential, VarBuilder
from ..tensor import Tensor

DEPTHS: dict[int, tuple[str, Sequence[int]]] = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
}


class _Block(Module):
    """Convolutions with batch norms, a shortcut around them, and a relu at the end."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, vb: VarBuilder) -> None:
        self.stack(channels, width, stride, vb)
        out = width * self.expansion
        self.downsample: Sequential | None = None
        if stride != 1 or channels != out:
            below = vb.pp("downsample")
            conv = Conv2d.new(channels, out, 1, below.pp(0), stride=stride, bias=False)
            self.downsample = Sequential(conv, BatchNorm2d.new(out, below.pp(1)))

    def stack(self, channels: int, width: int, stride: int, vb: VarBuilder) -> None:
        """Makes the convolutions."""
        raise NotImplementedError

    def inner(self, x: Tensor) -> Tensor:
        """What is added to the shortcut."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """x [n, c, h, w]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        return self.inner(x).add(shortcut).relu()


class Basic(_Block):
    """Two 3x3 convolutions."""

    def stack(self, channels: int, width: int, stride: int, vb: VarBuilder) -> None:
        """Makes the convolutions."""
        self.conv1 = Conv2d.new(
            channels, width, 3, vb.pp("conv1"), stride=stride, padding=1, bias=False
        )
        self.bn1 = BatchNorm2d.new(width, vb.pp("bn1"))
        self.conv2 = Conv2d.new(width, width, 3, vb.pp("conv2"), padding=1, bias=False)
        self.bn2 = BatchNorm2d.new(width, vb.pp("bn2"))

    def inner(self, x: Tensor) -> Tensor:
        """x [n, c, h, w]."""
        return self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))


class Bottleneck(_Block):
    """1x1 to a quarter of the channels, 3x3, 1x1 back."""

    expansion = 4

    def stack(self, channels: int, width: int, stride: int, vb: VarBuilder) -> None:
        """Makes the convolutions."""
        out = width * self.expansion
        self.conv1 = Conv2d.new(channels, width, 1, vb.pp("conv1"), bias=False)
        self.bn1 = BatchNorm2d.new(width, vb.pp("bn1"))
        self.conv2 = Conv2d.new(
            width, width, 3, vb.pp("conv2"), stride=stride, padding=1, bias=False
        )
        self.bn2 = BatchNorm2d.new(width, vb.pp("bn2"))
        self.conv3 = Conv2d.new(width, out, 1, vb.pp("conv3"), bias=False)
        self.bn3 = BatchNorm2d.new(out, vb.pp("bn3"))

    def inner(self, x: Tensor) -> Tensor:
        """x [n, c, h, w]."""
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self.bn3(self.conv3(x))


_KINDS: dict[str, type[_Block]] = {"basic": Basic, "bottleneck": Bottleneck}


class ResNet(Module):
    """Images f32 [n, 3, h, w] to scores [n, classes]: `ResNet.new(50)`."""

    def __init__(self, kind: type[_Block], counts: Sequence[int], classes: int, vb: VarBuilder):
        self.conv1 = Conv2d.new(3, 64, 7, vb.pp("conv1"), stride=2, padding=3, bias=False)
        self.bn1 = BatchNorm2d.new(64, vb.pp("bn1"))
        self.pool = MaxPool2d(3, stride=2, padding=1)
        channels, stages = 64, []
        for stage, count in enumerate(counts):
            width, blocks = 64 << stage, []
            for k in range(count):
                below = vb.pp(f"layer{stage + 1}", k)
                blocks.append(kind(channels, width, 2 if stage and not k else 1, below))
                channels = width * kind.expansion
            stages.append(Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.fc = Linear.new(channels, classes, vb.pp("fc"))

    @staticmethod
    def new(depth: int, vb: VarBuilder | None = None, classes: int = 1000) -> ResNet:
        """ResNet-18, 34, 50 or 101, new or from a builder's file. Raises OptionError."""
        if depth not in DEPTHS:
            raise OptionError("ResNet", f"one of {list(DEPTHS)} layers", depth)
        kind, counts = DEPTHS[depth]
        return ResNet(_KINDS[kind], counts, classes, VarBuilder() if vb is None else vb)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, 3, h, w], h and w at least 32 to be of use."""
        x = self.pool(self.bn1(self.conv1(x)).relu())
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))
