"""Embedding: rows of a table by index."""

from __future__ import annotations

from .. import functional
from ..arguments import require
from ..tensor import Tensor
from ..weights import Weights
from . import init
from .module import Module, require_rank
from .varbuilder import VarBuilder, builder


class Embedding(Module):
    """weight [n, d] of a float or block dtype."""

    def __init__(self, weight: Tensor) -> None:
        require_rank("Embedding", 2, weight)
        self.weight = weight

    @staticmethod
    def new(count: int, size: int, vb: VarBuilder | None = None) -> Embedding:
        """Rows drawn from a normal distribution, or `weight` of the builder's file."""
        return Embedding(builder(vb).get((count, size), "weight", init.normal()))

    @staticmethod
    def load(weights: Weights, count: int, size: int) -> Embedding:
        """From `weight`. Raises ShapeError for other sizes."""
        require("Embedding.load", "Weights", Weights, weights)
        return Embedding(weights.get("weight", (count, size)))

    def forward(self, indices: Tensor) -> Tensor:
        """Integer indices of any shape to [.., d]. Raises RangeError outside the table."""
        return functional.embedding(self.weight, indices)

    def describe(self) -> str:
        """Rows and their size."""
        return f"{self.weight.shape[0]} x {self.weight.shape[1]}"
