"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import steps, tracing
from ..arguments import as_flag
from ..errors import OptionError, TraceError
from ..storage import View
from ..tensor import Tensor, Var
from .base import Optimizer, within
from .schedule import Schedule


class SGD(Optimizer):
    """value -= lr * m, where m = momentum * m + (1 - dampening) * (grad + weight_decay * value).

    The first m is the gradient itself; `nesterov` looks ahead by grad + momentum * m (Sutskever et
    al. 2013). As PyTorch's. Raises OptionError.
    """

    def __init__(
        self,
        variables: Iterable[Var],
        lr: float | Schedule = 0.01,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(variables, lr)
        self.momentum = within("momentum", momentum, 0.0)
        self.dampening = within("dampening", dampening, -math.inf)
        self.weight_decay = within("weight_decay", weight_decay, 0.0)
        self.nesterov = as_flag("optimizer nesterov", nesterov)
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            raise OptionError("optimizer nesterov", "momentum > 0 and dampening 0", "others")

    def numbers(self, rate: float) -> View:
        """As `steps.sgd` takes them."""
        return steps.numbers([rate, self.momentum, 1.0 - self.dampening, self.weight_decay])

    def update(self, k: int, value: Tensor, grad: Tensor, given: View) -> None:
        """Changes the value of variable k in place."""
        moving, first = None, False
        if self.momentum:
            name = f"momentum.{k}"
            first = name not in self.state and tracing.mine() is None
            if name not in self.state and not first and self.dampening:
                got = "a first step with dampening"
                raise TraceError("compile", "a step like all others", got, "take one before")
            moving = self.moving(name, value).data
        steps.sgd(value.data, moving, grad.data, given, first=first, nesterov=self.nesterov)
