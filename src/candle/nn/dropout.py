"""Dropout: noise for training, nothing at inference."""

from __future__ import annotations

from ..arguments import as_float, require
from ..errors import OptionError
from ..generator import Generator
from ..tensor import Tensor, require_tensors
from .module import Module


class Dropout(Module):
    """Zeroes elements with probability p and scales the others by 1 / (1 - p), while training.

    Draws come from `generator` (the default one). Raises OptionError unless 0 <= p <= 1.
    """

    def __init__(self, p: float = 0.5, generator: Generator | None = None) -> None:
        self.p = as_float("Dropout", p, "a probability")
        if not 0.0 <= self.p <= 1.0:
            raise OptionError("Dropout", "0 <= p <= 1", p)
        require("Dropout", "a Generator", (Generator, type(None)), generator)
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape and float dtype, same shape out."""
        require_tensors("Dropout", x)
        if not self.training or self.p == 0.0:
            return x
        kept = Tensor.rand(x.shape, self.generator).ge(self.p).to_dtype(x.dtype)
        return x.mul(kept.mul(1.0 / (1.0 - self.p))) if self.p < 1.0 else x.mul(0.0)

    def describe(self) -> str:
        """The probability."""
        return f"p={self.p:g}"
