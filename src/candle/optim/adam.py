"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable

from .. import steps
from ..arguments import as_list
from ..errors import OptionError
from ..storage import View
from ..tensor import Tensor, Var
from .base import Optimizer, within
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
        given = as_list("optimizer betas", betas, "two numbers")
        if len(given) != 2:
            raise OptionError("optimizer betas", "two numbers", betas)
        first, second = (within("beta", beta, 0.0, 1.0) for beta in given)
        self.betas = (first, second)
        self.epsilon = within("epsilon", epsilon, 0.0)
        self.weight_decay = within("weight_decay", weight_decay, 0.0)

    def numbers(self, rate: float) -> View:
        """As `steps.adam` takes them; the corrections by the age are among them."""
        first, second = self.betas
        decay, keep = self.weight_decay, 1.0
        if self.decoupled:
            decay, keep = 0.0, 1.0 - rate * decay
        root = 1.0 / math.sqrt(1.0 - second**self.steps)
        rate /= 1.0 - first**self.steps
        moving = [first, 1.0 - first, second, 1.0 - second]
        return steps.numbers([rate, *moving, root, self.epsilon, decay, keep])

    def update(self, k: int, value: Tensor, grad: Tensor, given: View) -> None:
        """Changes the value of variable k in place."""
        mean, square = (self.moving(f"{name}.{k}", value).data for name in ("mean", "square"))
        steps.adam(value.data, mean, square, grad.data, given)


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
