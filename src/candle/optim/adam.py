"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..tensor import Tensor, Var
from .base import Optimizer, require
from .schedule import Schedule


class Adam(Optimizer):
    """value -= lr * m / (sqrt(v) + epsilon), m and v the bias-corrected moving means of the
    gradient and of its square (Kingma and Ba 2015).

    `weight_decay` is added to the gradient. The correction goes by the steps of the optimiser, so
    parameters that get gradients only later want one of their own. Raises OptionError.
    """

    decoupled = False

    def __init__(
        self,
        variables: Iterable[Var],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(variables, lr)
        for beta in betas:
            require("beta", beta, 0.0, 1.0)
        require("epsilon", epsilon, 0.0)
        require("weight_decay", weight_decay, 0.0)
        self.betas = betas
        self.epsilon = epsilon
        self.weight_decay = weight_decay

    def update(self, k: int, value: Tensor, grad: Tensor, rate: float) -> Tensor:
        """The new value of variable k."""
        if self.weight_decay and self.decoupled:
            value = value.mul(1.0 - rate * self.weight_decay)
        elif self.weight_decay:
            grad = grad.add(value.mul(self.weight_decay))
        age = self.steps
        first, second = self.betas
        mean = self._moving(f"mean.{k}", grad, first)
        square = self._moving(f"square.{k}", grad.sqr(), second)
        below = square.sqrt().mul(1.0 / math.sqrt(1.0 - second**age)).add(self.epsilon)
        return value.sub(mean.div(below).mul(rate / (1.0 - first**age)))

    def _moving(self, name: str, now: Tensor, beta: float) -> Tensor:
        before = self.state.get(name)
        moved = now.mul(1.0 - beta) if before is None else before.mul(beta).add(now.mul(1.0 - beta))
        self.state[name] = moved
        return moved


class AdamW(Adam):
    """Adam with weight decay apart from the gradient: value *= 1 - lr * weight_decay first
    (Loshchilov and Hutter 2019)."""

    decoupled = True

    def __init__(
        self,
        variables: Iterable[Var],
        lr: float | Schedule = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(variables, lr, betas, epsilon, weight_decay)
