"""Linear: x @ weight.T + bias, with an activation fused where asked."""

from __future__ import annotations

from .. import functional
from ..arguments import as_flag, require
from ..op import Activation
from ..tensor import Tensor, require_tensors
from ..weights import Weights
from . import init
from .module import Module, require_rank
from .varbuilder import VarBuilder, builder


class Linear(Module):
    """weight [out, in] of a float or block dtype, bias [out] or None.

    `exact`: never quantise x, even where the weight is of a block type.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None = None,
        activation: Activation = Activation.NONE,
        exact: bool = False,
    ) -> None:
        require_rank("Linear", 2, weight)
        require_tensors("Linear", *([] if bias is None else [bias]))
        functional.require_activation("Linear", activation)
        self.weight = weight
        self.bias = bias
        self.activation = activation
        self.exact = as_flag("Linear", exact)

    @staticmethod
    def new(
        size_in: int,
        size_out: int,
        vb: VarBuilder | None = None,
        *,
        bias: bool = True,
        activation: Activation = Activation.NONE,
    ) -> Linear:
        """Uniform within 1 / sqrt(size_in), or `weight` and `bias` of the builder's file."""
        below, first = builder(vb), init.by_fan_in(size_in)
        weight = below.get((size_out, size_in), "weight", first)
        beside = below.get((size_out,), "bias", first) if as_flag("Linear", bias) else None
        return Linear(weight, beside, activation)

    @staticmethod
    def load(
        weights: Weights, size_in: int, size_out: int, activation: Activation = Activation.NONE
    ) -> Linear:
        """From `weight` and, where there is one, `bias`. Raises ShapeError for other sizes."""
        require("Linear.load", "Weights", Weights, weights)
        weight = weights.get("weight", (size_out, size_in))
        return Linear(weight, weights.find("bias", (size_out,)), activation)

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] to [.., out]."""
        return functional.linear(x, self.weight, self.bias, self.activation, self.exact)

    def freeze(self) -> None:
        """Packs a float weight into panels; block weights stay as they are."""
        if self.weight.dtype.is_float:
            self.weight = functional.pack(self.weight)

    def describe(self) -> str:
        """Sizes, and what is fused."""
        fused = "" if self.activation is Activation.NONE else f", {self.activation.name.lower()}"
        bias = "" if self.bias is not None else ", no bias"
        return f"{self.weight.shape[1]} -> {self.weight.shape[0]}{bias}{fused}"
