"""Inverted residuals on depthwise convolutions: MobileNetV2 (Sandler et al. 2018), and
EfficientNet-lite0 (Tan and Le 2019, without squeeze and excitation).

MobileNetV2 has torchvision's names; EfficientNet-lite0 those of `efficientnet_lite_pytorch`, and
its padding: of a stride of 2, more goes to the right and the bottom.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import functional
from ..nn import BatchNorm2d, Conv2d, Dropout, Linear, Module, Sequential, VarBuilder
from ..tensor import Tensor

# repeats, kernel, stride of the first, expansion, channels
Stage = tuple[int, int, int, int, int]
MOBILENET_V2: Sequence[Stage] = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (3, 3, 2, 6, 32),
    (4, 3, 2, 6, 64),
    (3, 3, 1, 6, 96),
    (3, 3, 2, 6, 160),
    (1, 3, 1, 6, 320),
)
LITE0: Sequence[Stage] = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


def relu6(x: Tensor) -> Tensor:
    """x between 0 and 6."""
    return x.relu().minimum(6.0)


class ConvNorm(Module):
    """A convolution that keeps the size (but for its stride), a batch norm, and relu6 on request.

    `same` pads as TensorFlow does: (k - 1) in all, the odd one to the right and the bottom, where
    the stride is 2 and the size is even.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        kernel: int,
        names: tuple[VarBuilder, VarBuilder],
        *,
        stride: int = 1,
        groups: int = 1,
        epsilon: float = 1e-5,
        active: bool = True,
        same: bool = False,
    ) -> None:
        conv, norm = names
        self.kernel, self.stride, self.active = kernel, stride, active
        self.same = same and stride > 1
        padding = 0 if self.same else kernel // 2
        self.conv = Conv2d.new(
            *sizes, kernel, conv, stride=stride, padding=padding, groups=groups, bias=False
        )
        self.norm = BatchNorm2d.new(sizes[1], norm, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, c, h, w]."""
        if self.same:
            x = functional.pad(x, [self._margin(n) for n in x.shape[2:]])
        x = self.norm(self.conv(x))
        return relu6(x) if self.active else x

    def _margin(self, size: int) -> tuple[int, int]:
        steps = -(-size // self.stride)
        whole = max((steps - 1) * self.stride + self.kernel - size, 0)
        return whole // 2, whole - whole // 2


class InvertedResidual(Module):
    """Widened by 1x1, filtered by channel, narrowed by 1x1; added to its input where it can be."""

    def __init__(self, parts: Sequence[ConvNorm], adds: bool) -> None:
        self.parts = Sequential(*parts)
        self.adds = adds

    def forward(self, x: Tensor) -> Tensor:
        """x [n, c, h, w]."""
        out: Tensor = self.parts(x)
        return out.add(x) if self.adds else out


def _v2_block(vb: VarBuilder, sizes: tuple[int, int], kernel: int, stride: int, by: int) -> Module:
    channels, out = sizes
    wide, below, parts = channels * by, vb.pp("conv"), []
    if by != 1:
        names = below.pp(0, 0), below.pp(0, 1)
        parts.append(ConvNorm((channels, wide), 1, names))
    at = len(parts)
    names = below.pp(at, 0), below.pp(at, 1)
    parts.append(ConvNorm((wide, wide), kernel, names, stride=stride, groups=wide))
    names = below.pp(at + 1), below.pp(at + 2)
    parts.append(ConvNorm((wide, out), 1, names, active=False))
    return InvertedResidual(parts, stride == 1 and channels == out)


def _lite_block(
    vb: VarBuilder, sizes: tuple[int, int], kernel: int, stride: int, by: int
) -> Module:
    channels, out = sizes
    wide, parts = channels * by, []
    if by != 1:
        names = vb.pp("_expand_conv"), vb.pp("_bn0")
        parts.append(ConvNorm((channels, wide), 1, names, epsilon=1e-3))
    names = vb.pp("_depthwise_conv"), vb.pp("_bn1")
    depth = ConvNorm(
        (wide, wide), kernel, names, stride=stride, groups=wide, epsilon=1e-3, same=True
    )
    names = vb.pp("_project_conv"), vb.pp("_bn2")
    parts += [depth, ConvNorm((wide, out), 1, names, epsilon=1e-3, active=False)]
    return InvertedResidual(parts, stride == 1 and channels == out)


class MobileNet(Module):
    """Images f32 [n, 3, h, w] to scores [n, classes]."""

    def __init__(self, parts: Sequence[Module], head: Linear) -> None:
        self.parts = Sequential(*parts)
        self.drop = Dropout(0.2)
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """x [n, 3, h, w], by default 224 x 224."""
        pooled: Tensor = self.parts(x).mean((2, 3))
        return self.head(self.drop(pooled))


def mobilenet_v2(vb: VarBuilder | None = None, classes: int = 1000) -> MobileNet:
    """MobileNetV2 of width 1, new or from torchvision's weights."""
    vb = VarBuilder() if vb is None else vb
    below, channels = vb.pp("features"), 32
    parts: list[Module] = [
        ConvNorm((3, 32), 3, (below.pp(0, 0), below.pp(0, 1)), stride=2),
    ]
    for repeats, kernel, stride, by, out in MOBILENET_V2:
        for k in range(repeats):
            at = below.pp(len(parts))
            parts.append(_v2_block(at, (channels, out), kernel, 1 if k else stride, by))
            channels = out
    at = below.pp(len(parts))
    parts.append(ConvNorm((channels, 1280), 1, (at.pp(0), at.pp(1))))
    return MobileNet(parts, Linear.new(1280, classes, vb.pp("classifier", 1)))


def efficientnet_lite0(vb: VarBuilder | None = None, classes: int = 1000) -> MobileNet:
    """EfficientNet-lite0 for 224 x 224, of pixels (value - 127) / 128."""
    vb = VarBuilder() if vb is None else vb
    names, channels, count = (vb.pp("_conv_stem"), vb.pp("_bn0")), 32, 0
    parts: list[Module] = [ConvNorm((3, 32), 3, names, stride=2, epsilon=1e-3, same=True)]
    for repeats, kernel, stride, by, out in LITE0:
        for k in range(repeats):
            at = vb.pp("_blocks", count)
            parts.append(_lite_block(at, (channels, out), kernel, 1 if k else stride, by))
            channels, count = out, count + 1
    names = vb.pp("_conv_head"), vb.pp("_bn1")
    parts.append(ConvNorm((channels, 1280), 1, names, epsilon=1e-3))
    return MobileNet(parts, Linear.new(1280, classes, vb.pp("_fc")))
