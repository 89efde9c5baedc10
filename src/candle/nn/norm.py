"""Normalisation over the last axis."""

from __future__ import annotations

from .. import functional
from ..tensor import Tensor
from ..weights import Weights
from .module import Module


class LayerNorm(Module):
    """(x - mean) / sqrt(var + epsilon) * weight + bias; weight and bias [d]."""

    def __init__(self, weight: Tensor, bias: Tensor, epsilon: float = 1e-5) -> None:
        self.weight = weight
        self.bias = bias
        self.epsilon = epsilon

    @staticmethod
    def load(weights: Weights, size: int, epsilon: float) -> LayerNorm:
        """From `weight` and `bias`. Raises ShapeError for other sizes."""
        return LayerNorm(weights.get("weight", (size,)), weights.get("bias", (size,)), epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., d], same shape out."""
        return functional.layer_norm(x, self.weight, self.bias, self.epsilon)


class RmsNorm(Module):
    """x / sqrt(mean(x^2) + epsilon) * weight; weight [d]."""

    def __init__(self, weight: Tensor, epsilon: float = 1e-6) -> None:
        self.weight = weight
        self.epsilon = epsilon

    @staticmethod
    def load(weights: Weights, size: int, epsilon: float) -> RmsNorm:
        """From `weight`. Raises ShapeError for another size."""
        return RmsNorm(weights.get("weight", (size,)), epsilon)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., d], same shape out."""
        return functional.rms_norm(x, self.weight, self.epsilon)
