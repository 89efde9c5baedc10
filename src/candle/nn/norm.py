"""Normalisation: over the last axis, over groups of channels, over the batch."""

from __future__ import annotations

from .. import functional
from ..arguments import as_float, as_int, require
from ..autograd import no_grad
from ..dtype import DType
from ..errors import OptionError, ShapeError
from ..shape import count_of
from ..tensor import Tensor, require_tensors
from ..weights import Weights
from . import init
from .module import Module, require_rank
from .varbuilder import VarBuilder, builder


class LayerNorm(Module):
    """(x - mean) / sqrt(var + epsilon) * weight + bias; weight and bias [d]."""

    def __init__(self, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> None:
        require_rank("LayerNorm", 1, weight, bias)
        self.weight = weight
        self.bias = bias
        self.epsilon = as_float("LayerNorm", epsilon, "an epsilon")

    @staticmethod
    def new(size: int, vb: VarBuilder | None = None, epsilon: float = 1e-5) -> LayerNorm:
        """Weight of ones and bias of zeros, or those of the builder's file."""
        weight, bias = _affine(size, vb)
        return LayerNorm(weight, bias, epsilon)

    @staticmethod
    def load(weights: Weights, size: int, epsilon: float) -> LayerNorm:
        """From `weight` and `bias`. Raises ShapeError for other sizes."""
        require("LayerNorm.load", "Weights", Weights, weights)
        return LayerNorm(weights.get("weight", (size,)), weights.get("bias", (size,)), epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., d], same shape out."""
        return functional.layer_norm(x, self.weight, self.bias, self.epsilon)

    def describe(self) -> str:
        """The size."""
        return f"{self.weight.shape[0]}"


class RmsNorm(Module):
    """x / sqrt(mean(x^2) + epsilon) * weight; weight [d]."""

    def __init__(self, weight: Tensor, epsilon: float = 1e-6) -> None:
        require_rank("RmsNorm", 1, weight)
        self.weight = weight
        self.epsilon = as_float("RmsNorm", epsilon, "an epsilon")

    @staticmethod
    def new(size: int, vb: VarBuilder | None = None, epsilon: float = 1e-6) -> RmsNorm:
        """Weight of ones, or that of the builder's file."""
        return RmsNorm(builder(vb).get((size,), "weight", init.ones), epsilon)

    @staticmethod
    def load(weights: Weights, size: int, epsilon: float) -> RmsNorm:
        """From `weight`. Raises ShapeError for another size."""
        require("RmsNorm.load", "Weights", Weights, weights)
        return RmsNorm(weights.get("weight", (size,)), epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., d], same shape out."""
        return functional.rms_norm(x, self.weight, self.epsilon)

    def describe(self) -> str:
        """The size."""
        return f"{self.weight.shape[0]}"


class GroupNorm(Module):
    """Each group of channels normalised as one row, then scaled by channel (Wu and He 2018)."""

    def __init__(self, groups: int, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> None:
        require_rank("GroupNorm", 1, weight, bias)
        channels, groups = weight.shape[0], as_int("GroupNorm", groups, "an integer of groups")
        if groups < 1 or channels % groups:
            raise OptionError("GroupNorm", f"groups that divide {channels} channels", groups)
        self.groups = groups
        self.weight = weight
        self.bias = bias
        self.epsilon = as_float("GroupNorm", epsilon, "an epsilon")

    @staticmethod
    def new(
        groups: int, channels: int, vb: VarBuilder | None = None, epsilon: float = 1e-5
    ) -> GroupNorm:
        """Weight of ones and bias of zeros [channels], or those of the builder's file."""
        weight, bias = _affine(channels, vb)
        return GroupNorm(groups, weight, bias, epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, channels, ..], same shape out. Raises ShapeError for other channels."""
        require_tensors("GroupNorm", x)
        channels = self.weight.shape[0]
        if x.rank < 2 or x.shape[1] != channels:
            raise ShapeError("GroupNorm", f"[n, {channels}, ..]", list(x.shape))
        width = channels // self.groups * count_of(x.shape[2:])
        unit = _unit_rows(x.reshape((x.shape[0] * self.groups, width)), self.epsilon)
        return _scale_channels(unit.reshape(x.shape), self.weight, self.bias)

    def describe(self) -> str:
        """Groups and channels."""
        return f"{self.groups} groups of {self.weight.shape[0]} channels"


class BatchNorm2d(Module):
    """Each channel normalised over the batch; at inference by running statistics.

    They move while training: running = (1 - momentum) running + momentum batch, the variance
    unbiased (Ioffe and Szegedy 2015); they are f32 beside half-precision weights. Names are
    PyTorch's.
    """

    buffers = ("running_mean", "running_var", "num_batches_tracked")

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        epsilon: float = 1e-5,
        momentum: float = 0.1,
    ) -> None:
        require_rank("BatchNorm2d", 1, weight, bias, running_mean, running_var)
        self.weight = weight
        self.bias = bias
        self.running_mean = running_mean.detach()
        self.running_var = running_var.detach()
        self.num_batches_tracked = Tensor(0)
        self.epsilon = as_float("BatchNorm2d", epsilon, "an epsilon")
        self.momentum = as_float("BatchNorm2d", momentum, "a momentum")

    @staticmethod
    def new(
        channels: int, vb: VarBuilder | None = None, epsilon: float = 1e-5, momentum: float = 0.1
    ) -> BatchNorm2d:
        """Weight ones, bias zeros, mean 0 and variance 1, or those of the builder's file."""
        below = builder(vb)
        weight, bias = _affine(channels, below)
        state = below.frozen()
        if state.dtype is not DType.F64:
            state.dtype = DType.F32
        mean = state.get((channels,), "running_mean", init.zeros)
        var = state.get((channels,), "running_var", init.ones)
        return BatchNorm2d(weight, bias, mean, var, epsilon, momentum)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, channels, h, w], same shape out. Raises ShapeError for other channels.

        While training, also for a single value a channel: its variance says nothing.
        """
        require_tensors("BatchNorm2d", x)
        channels = self.weight.shape[0]
        if x.rank != 4 or x.shape[1] != channels:
            raise ShapeError("BatchNorm2d", f"[n, {channels}, h, w]", list(x.shape))
        if not self.training:
            return self._by_running(x)
        count = x.shape[0] * x.shape[2] * x.shape[3]
        if count < 2:
            hint = "eval() uses the running statistics"
            raise ShapeError("BatchNorm2d", "2 values a channel or more", list(x.shape), hint)
        rows = x.transpose(0, 1)
        unit = _unit_rows(rows.reshape((channels, count)), self.epsilon)
        self._move(rows.detach().reshape((channels, count)))
        back = unit.reshape(rows.shape).transpose(0, 1)
        return _scale_channels(back, self.weight, self.bias)

    def _by_running(self, x: Tensor) -> Tensor:
        dtype = self.running_var.dtype
        unit = self.running_var.add(self.epsilon).rsqrt()
        scale = self.weight.to_dtype(dtype).mul(unit)
        shift = self.bias.to_dtype(dtype).sub(self.running_mean.mul(scale))
        return _scale_channels(x.to_dtype(dtype), scale, shift).to_dtype(x.dtype)

    def _move(self, rows: Tensor) -> None:
        """Running statistics follow those of the batch."""
        keep, dtype = 1.0 - self.momentum, self.running_mean.dtype
        with no_grad():
            wide = rows.to_dtype(DType.F32) if rows.dtype is not DType.F64 else rows
            mean, var = (s.to_dtype(dtype).mul(self.momentum) for s in (wide.mean(1), wide.var(1)))
            self.running_mean = self.running_mean.mul(keep).add(mean)
            self.running_var = self.running_var.mul(keep).add(var)
            self.num_batches_tracked = self.num_batches_tracked.add(1)

    def describe(self) -> str:
        """The number of channels."""
        return f"{self.weight.shape[0]}"


def _affine(size: int, vb: VarBuilder | None) -> tuple[Tensor, Tensor]:
    below = builder(vb)
    return below.get((size,), "weight", init.ones), below.get((size,), "bias", init.zeros)


def _unit_rows(rows: Tensor, epsilon: float) -> Tensor:
    """Rows of mean 0 and variance 1, by the kernel that sums safely whatever the size."""
    width = (rows.shape[1],)
    ones, zeros = Tensor.ones(width, rows.dtype), Tensor.zeros(width, rows.dtype)
    return functional.layer_norm(rows, ones, zeros, epsilon)


def _scale_channels(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x [n, c, ..] times scale [c] plus shift [c]."""
    shape = (scale.shape[0], *(1,) * (x.rank - 2))
    return x.mul(scale.reshape(shape)).add(shift.reshape(shape))
