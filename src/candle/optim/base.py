"""Optimizer: what all share. One learning rate, a number or a function of the step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from .. import eager, tracing
from ..arguments import as_float, as_list, require
from ..autograd import no_grad
from ..dtype import DType
from ..errors import DTypeError, FormatError, OptionError
from ..storage import View
from ..tensor import Tensor, Var, require_tensors
from .schedule import Schedule


class Optimizer:
    """Changes Vars in place by their gradients, each `step()`.

    A Var without a gradient is left alone. Half-precision parameters have f32 state and sums. Two
    optimisers serve two groups of parameters that want other options.
    """

    def __init__(self, variables: Iterable[Var], lr: float | Schedule) -> None:
        self.variables = as_list("optimizer", variables, "Vars")
        for k, v in enumerate(self.variables):
            if not isinstance(v, Var):
                raise DTypeError("optimizer", "Vars", f"{type(v).__name__} at {k}")
        if len({id(v) for v in self.variables}) != len(self.variables):
            raise OptionError("optimizer", "each Var once", "one twice")
        self.lr = lr if callable(lr) else within("lr", lr, 0.0)
        self.steps = 0  # taken so far
        self.state: dict[str, Tensor] = {}  # "momentum.3": that of variable 3

    def rate(self) -> float:
        """The learning rate of the next step."""
        rate = self.lr(self.steps) if callable(self.lr) else self.lr
        return as_float("optimizer lr", rate, "a learning rate")

    def step(self) -> None:
        """One change of each Var that has a gradient."""
        given = tracing.renewed(self._next_numbers)
        with no_grad():
            for k, v in enumerate(self.variables):
                grad = v.grad()
                if grad is None:
                    continue
                value = _plain(v)
                self.update(k, value, _plain(grad), given)
                if value is not v:
                    v.set(value.to_dtype(v.dtype))

    def _next_numbers(self) -> View:
        rate = self.rate()
        self.steps += 1
        return self.numbers(rate)

    def numbers(self, rate: float) -> View:
        """What `update` needs to know of this step, the same for every variable."""
        raise NotImplementedError

    def update(self, k: int, value: Tensor, grad: Tensor, given: View) -> None:
        """Changes the value of variable k in place by its gradient; each optimiser has its own.

        Both are contiguous, f32 or f64; for other variables, `value` is such a copy.
        """
        raise NotImplementedError

    def moving(self, name: str, value: Tensor) -> Tensor:
        """State of a variable by its name, at first zeros like its value; changed in place."""
        found = self.state.get(name)
        if found is None:
            with tracing.outside():  # it is there before the first run of a compiled step
                found = self.state[name] = value.zeros_like()
        return found

    def zero_grad(self) -> None:
        """Forgets the gradients of all its Vars."""
        for v in self.variables:
            v.zero_grad()

    def backward_step(self, loss: Tensor) -> None:
        """Fresh gradients of a scalar loss, and a step."""
        require_tensors("backward_step", loss)
        self.zero_grad()
        loss.backward()
        self.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Steps and a copy of the state by name, as `save_safetensors` takes them."""
        return {"steps": Tensor(self.steps)} | {k: x.copy() for k, x in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Goes on where another of the same Vars stopped. Raises FormatError, changing nothing."""
        require("load_state_dict", "tensors by name", Mapping, state)
        require_tensors("load_state_dict", *state.values())
        found = {name: value.detach().copy() for name, value in state.items()}
        steps = found.pop("steps", None)
        if steps is None or steps.count != 1 or steps.dtype.is_float:
            raise FormatError("load_state_dict of an optimizer", 'an integer "steps"', list(state))
        for name, value in found.items():
            self._check_state(name, value)
        for name, value in self.state.items():
            if name in found:  # in place: a compiled step goes on with it
                eager.copy_into(value.data, found[name].data)
                found[name] = value
        self.steps, self.state = int(steps), found

    def _check_state(self, name: str, value: Tensor) -> None:
        _, _, place = name.rpartition(".")
        known = place.isascii() and place.isdigit() and int(place) < len(self.variables)
        of = self.variables[int(place)] if known else None
        if of is None or value.shape != of.shape or value.dtype is not _wide(of.dtype):
            wanted = f"state of {len(self.variables)} variables of their shapes, f32 or f64"
            got = f"{name} {value.dtype}{list(value.shape)}"
            raise FormatError("load_state_dict of an optimizer", wanted, got)

    def __repr__(self) -> str:
        count = sum(v.count for v in self.variables)
        return f"{type(self).__name__}({count:,} parameters, lr={self.rate():g}, step {self.steps})"


def within(name: str, value: float, low: float, below: float = math.inf) -> float:
    """The number as a float. Raises DTypeError, and OptionError unless low <= value < below."""
    number = as_float(f"optimizer {name}", value)
    if not low <= number < below:
        raise OptionError(f"optimizer {name}", f"{low:g} <= {name} < {below:g}", value)
    return number


def _wide(dtype: DType) -> DType:
    """In which a variable is stepped, and its state kept."""
    return DType.F64 if dtype is DType.F64 else DType.F32


def _plain(x: Tensor) -> Tensor:
    """x itself where a step can read or change it in place, else a copy."""
    layout, wide = x.data.layout, _wide(x.dtype)
    if layout.contiguous and layout.dtype is wide:
        return x
    return x.detach().to_dtype(wide).contiguous()
