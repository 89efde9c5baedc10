"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import OptionError
from ..tensor import Tensor, Var
from .base import Optimizer, require
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
        require("momentum", momentum, 0.0)
        require("weight_decay", weight_decay, 0.0)
        if nesterov and (momentum == 0.0 or dampening != 0.0):
            raise OptionError("optimizer nesterov", "momentum > 0 and dampening 0", "others")
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov

    def update(self, k: int, value: Tensor, grad: Tensor, rate: float) -> Tensor:
        """The new value of variable k."""
        if self.weight_decay:
            grad = grad.add(value.mul(self.weight_decay))
        if self.momentum:
            grad = self._with_momentum(f"momentum.{k}", grad)
        return value.sub(grad.mul(rate))

    def _with_momentum(self, name: str, grad: Tensor) -> Tensor:
        before = self.state.get(name)
        if before is None:
            moving = grad.copy()
        else:
            moving = before.mul(self.momentum).add(grad.mul(1.0 - self.dampening))
        self.state[name] = moving
        return grad.add(moving.mul(self.momentum)) if self.nesterov else moving
