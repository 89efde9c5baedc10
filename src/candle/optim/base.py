"""Optimizer: what all share. One learning rate, a number or a function of the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..autograd import no_grad
from ..dtype import DType
from ..errors import DTypeError, FormatError, OptionError
from ..tensor import Tensor, Var
from .schedule import Schedule


class Optimizer:
    """Changes Vars in place by their gradients, each `step()`.

    A Var without a gradient is left alone. Half-precision parameters have f32 state and sums. Two
    optimisers serve two groups of parameters that want other options.
    """

    def __init__(self, variables: Iterable[Var], lr: float | Schedule) -> None:
        self.variables = list(variables)
        for k, v in enumerate(self.variables):
            if not isinstance(v, Var):
                raise DTypeError("optimizer", "Vars", f"{type(v).__name__} at {k}")
        if len({id(v) for v in self.variables}) != len(self.variables):
            raise OptionError("optimizer", "each Var once", "one twice")
        if not callable(lr):
            require("lr", lr, 0.0)
        self.lr = lr
        self.steps = 0  # taken so far
        self.state: dict[str, Tensor] = {}  # "momentum.3": that of variable 3

    def rate(self) -> float:
        """The learning rate of the next step."""
        return float(self.lr(self.steps)) if callable(self.lr) else float(self.lr)

    def step(self) -> None:
        """One change of each Var that has a gradient."""
        rate = self.rate()
        self.steps += 1
        with no_grad():
            for k, v in enumerate(self.variables):
                grad = v.grad()
                if grad is not None:
                    moved = self.update(k, _wide(v.detach()), _wide(grad.detach()), rate)
                    v.set(moved.to_dtype(v.dtype))

    def update(self, k: int, value: Tensor, grad: Tensor, rate: float) -> Tensor:
        """The new value of variable k, of its value and gradient; each optimiser has its own."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Forgets the gradients of all its Vars."""
        for v in self.variables:
            v.zero_grad()

    def backward_step(self, loss: Tensor) -> None:
        """Fresh gradients of a scalar loss, and a step."""
        self.zero_grad()
        loss.backward()
        self.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Steps and state by name, as `save_safetensors` takes them."""
        return {"steps": Tensor(self.steps), **self.state}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on where another of the same Vars stopped. Raises FormatError, changing nothing."""
        found = {name: value.detach().copy() for name, value in state.items()}
        steps = found.pop("steps", None)
        if steps is None or steps.count != 1 or steps.dtype.is_float:
            raise FormatError("load_state_dict of an optimizer", 'an integer "steps"', list(state))
        for name, value in found.items():
            self._check_state(name, value)
        self.steps, self.state = int(steps), found

    def _check_state(self, name: str, value: Tensor) -> None:
        _, _, place = name.rpartition(".")
        known = place.isascii() and place.isdigit() and int(place) < len(self.variables)
        if not known or value.shape != self.variables[int(place)].shape:
            wanted = f"state of {len(self.variables)} variables of their shapes"
            got = f"{name} {list(value.shape)}"
            raise FormatError("load_state_dict of an optimizer", wanted, got)

    def __repr__(self) -> str:
        count = sum(v.count for v in self.variables)
        return f"{type(self).__name__}({count:,} parameters, lr={self.rate():g}, step {self.steps})"


def require(name: str, value: float, low: float, below: float = float("inf")) -> None:
    """Raises OptionError unless low <= value < below."""
    if not low <= value < below:
        raise OptionError(f"optimizer {name}", f"{low:g} <= {name} < {below:g}", value)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype in (DType.F32, DType.F64) else x.to_dtype(DType.F32)
