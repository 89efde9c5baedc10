"""Embedding: rows of a table by index."""

from __future__ import annotations

from .. import functional
from ..tensor import Tensor
from ..weights import Weights
from .module import Module


class Embedding(Module):
    """weight [n, d] of a float or block dtype."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    @staticmethod
    def load(weights: Weights, count: int, size: int) -> Embedding:
        """From `weight`. Raises ShapeError for other sizes."""
        return Embedding(weights.get("weight", (count, size)))

    def forward(self, indices: Tensor) -> Tensor:
        """Integer indices of any shape to [.., d]. Raises RangeError outside the table."""
        return functional.embedding(self.weight, indices)
