"""Clipping of gradients, between `backward` and `step`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..arguments import as_float, as_list
from ..autograd import no_grad
from ..dtype import DType
from ..errors import GradientError, OptionError
from ..tensor import Tensor, Var, require_tensors


def clip_grad_norm(variables: Iterable[Var], most: float) -> float:
    """Scales all gradients together so that their joint length is at most `most`; answers what it
    was. Raises GradientError, changing nothing, where it is NaN or infinite.
    """
    most = _limit("clip_grad_norm", most)
    given = _vars("clip_grad_norm", variables)
    with no_grad():
        owners = [(v, g) for v in given if (g := v.grad()) is not None]
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
    most = _limit("clip_grad_value", most)
    given = _vars("clip_grad_value", variables)
    with no_grad():
        for v in given:
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


def _limit(name: str, most: float) -> float:
    limit = as_float(name, most, "a limit")
    if not limit > 0:
        raise OptionError(name, "a limit above 0", most)
    return limit


def _vars(name: str, variables: Iterable[Var]) -> list[Var]:
    found = as_list(name, variables, "Vars")
    require_tensors(name, *found)
    return found
