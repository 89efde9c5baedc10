"""Convolutions: Conv1d, Conv2d and ConvTranspose2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import functional
from ..arguments import as_flag, as_int
from ..errors import OptionError
from ..shape import Shape, as_ints, count_of
from ..tensor import Tensor, require_tensors
from . import init
from .module import Module, require_rank
from .varbuilder import VarBuilder, builder

Sizes = int | Sequence[int]


class _Conv(Module):
    """What convolutions share: a weight, a bias or None, and how the kernel moves."""

    axes = 2  # that the kernel moves along

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> None:
        require_rank(type(self).__name__, 2 + self.axes, weight)
        require_tensors(type(self).__name__, *([] if bias is None else [bias]))
        self.weight = weight
        self.bias = bias
        self.options: Any = {
            "stride": _sizes("stride", stride),
            "padding": _sizes("padding", padding),
            "dilation": _sizes("dilation", dilation),
            "groups": as_int("groups", groups),
        }

    def describe(self) -> str:
        """Channels, kernel, and options that are not the usual."""
        usual = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
        rest = [f"{k} {v}" for k, v in self.options.items() if v != usual.get(k, 0)]
        kernel = "x".join(map(str, self.weight.shape[2:]))
        bias = [] if self.bias is not None else ["no bias"]
        return ", ".join([f"{list(self.weight.shape[:2])}, {kernel}", *rest, *bias])


class Conv1d(_Conv):
    """weight [out, in/groups, k], bias [out] or None."""

    axes = 1

    @staticmethod
    def new(
        size_in: int,
        size_out: int,
        kernel: int,
        vb: VarBuilder | None = None,
        *,
        bias: bool = True,
        groups: int = 1,
        **options: Any,
    ) -> Conv1d:
        """Uniform within 1 / sqrt(fan_in), or `weight` and `bias` of the builder's file.

        `options` are those of `functional.conv1d`.
        """
        size_in, size_out, groups = _channels(size_in, size_out, groups)
        shape = (size_out, size_in // groups, as_int("kernel", kernel))
        weight, first = _parameters(shape, size_out, vb, bias)
        return Conv1d(weight, first, groups=groups, **options)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, in, n] to [b, out, m]."""
        return functional.conv1d(x, self.weight, self.bias, **self.options)


class Conv2d(_Conv):
    """weight [out, in/groups, kh, kw], bias [out] or None."""

    @staticmethod
    def new(
        size_in: int,
        size_out: int,
        kernel: Sizes,
        vb: VarBuilder | None = None,
        *,
        bias: bool = True,
        groups: int = 1,
        **options: Any,
    ) -> Conv2d:
        """Uniform within 1 / sqrt(fan_in), or `weight` and `bias` of the builder's file.

        `options` are those of `functional.conv2d`.
        """
        size_in, size_out, groups = _channels(size_in, size_out, groups)
        shape = (size_out, size_in // groups, *_square(kernel))
        weight, first = _parameters(shape, size_out, vb, bias)
        return Conv2d(weight, first, groups=groups, **options)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, in, h, w] to [b, out, p, q]."""
        return functional.conv2d(x, self.weight, self.bias, **self.options)


class ConvTranspose2d(_Conv):
    """weight [in, out/groups, kh, kw], bias [out] or None."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        *,
        output_padding: Sizes = 0,
        **options: Any,
    ) -> None:
        super().__init__(weight, bias, **options)
        self.options["output_padding"] = _sizes("output_padding", output_padding)

    @staticmethod
    def new(
        size_in: int,
        size_out: int,
        kernel: Sizes,
        vb: VarBuilder | None = None,
        *,
        bias: bool = True,
        groups: int = 1,
        **options: Any,
    ) -> ConvTranspose2d:
        """Uniform within 1 / sqrt(out/groups kh kw), as PyTorch's, or from the builder's file.

        `options` are those of `functional.conv_transpose2d`.
        """
        size_in, size_out, groups = _channels(size_in, size_out, groups)
        shape = (size_in, size_out // groups, *_square(kernel))
        weight, first = _parameters(shape, size_out, vb, bias)
        return ConvTranspose2d(weight, first, groups=groups, **options)

    def forward(self, x: Tensor) -> Tensor:
        """x [b, in, p, q] to [b, out, h, w]."""
        return functional.conv_transpose2d(x, self.weight, self.bias, **self.options)


def _square(kernel: Sizes) -> Shape:
    found = as_ints("kernel", kernel)
    if len(found) not in (1, 2) or min(found) < 1:
        raise OptionError("kernel", "a size or a pair of them, 1 or more", kernel)
    return found * 2 if len(found) == 1 else found


def _sizes(name: str, value: Sizes) -> Sizes:
    """An integer, or a tuple of them."""
    found = as_ints(name, value)
    return found[0] if len(found) == 1 else found


def _channels(size_in: int, size_out: int, groups: int) -> tuple[int, int, int]:
    """All as integers. Raises OptionError for groups that do not divide the others."""
    size_in, size_out, groups = (as_int("channels", n) for n in (size_in, size_out, groups))
    if groups < 1 or size_in % groups or size_out % groups:
        raise OptionError("groups", f"a divisor of {size_in} and {size_out}", groups)
    return size_in, size_out, groups


def _parameters(
    shape: Shape, size_out: int, vb: VarBuilder | None, bias: bool
) -> tuple[Tensor, Tensor | None]:
    below, first = builder(vb), init.by_fan_in(count_of(shape[1:]))
    weight = below.get(shape, "weight", first)
    return weight, below.get((size_out,), "bias", first) if as_flag("bias", bias) else None
