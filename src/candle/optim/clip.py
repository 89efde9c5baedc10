"""Clipping of gradients, between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..autograd import no_grad
from ..dtype import DType
from ..errors import GradientError, OptionError
from ..tensor import Tensor, Var


def clip_grad_norm(variables: Iterable[Var], most: float) -> float:
    """Scales all gradients together so that their joint length is at most `most`; answers what it
    was. Raises GradientError, changing nothing, where it is NaN or infinite.
    """
    _require("clip_grad_norm", most)
    with no_grad():
        owners = [(v, g) for v in variables if (g := v.grad()) is not None]
        lengths = [_length(g) for _, g in owners]
        for k, length in enumerate(lengths):
            if not math.isfinite(length):
                raise GradientError("clip_grad_norm", "finite gradients", f"{length} at {k}")
        total = math.hypot(*lengths)
        if total > most:
            for v, g in owners:
                v._grad = g.mul(most / total)
    return total


def clip_grad_value(variables: Iterable[Var], most: float) -> None:
    """Each element of the gradients brought into [-most, most]; NaN stays."""
    _require("clip_grad_value", most)
    with no_grad():
        for v in variables:
            g = v.grad()
            if g is not None:
                v._grad = g.maximum(-most).minimum(most)


def _length(grad: Tensor) -> float:
    """Euclidean length, also where the squares overflow f32."""
    wide = grad if grad.dtype is DType.F64 else grad.to_dtype(DType.F32)
    square = float(wide.sqr().sum())
    if math.isfinite(square) or not wide.count:
        return math.sqrt(square)
    peak = float(wide.abs().max())
    return peak * math.sqrt(float(wide.div(peak).sqr().sum())) if math.isfinite(peak) else peak


def _require(name: str, most: float) -> None:
    if not most > 0:
        raise OptionError(name, "a limit above 0", most)
