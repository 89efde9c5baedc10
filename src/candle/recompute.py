"""Checkpointing: intermediate results are given up, and computed again when backward needs them.

Chen et al. 2016, "Training deep nets with sublinear memory cost".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import autograd, op
from .arguments import as_list, require, require_function
from .errors import DTypeError
from .generator import Generator, default
from .storage import changes
from .tensor import Tensor, require_tensors


class _Again:
    """A function that draws, each time it is called, what it drew the first time."""

    def __init__(self, function: Callable[..., Tensor], generators: Sequence[Generator]) -> None:
        self.function = function
        self.states = [(g, g.state()) for g in generators]

    def __call__(self, *inputs: Tensor) -> Tensor:
        now = [(g, g.state()) for g, _ in self.states]
        self._restore(self.states)
        try:
            return self.function(*inputs)
        finally:
            self._restore(now)

    @staticmethod
    def _restore(states: list[tuple[Generator, tuple[int, int]]]) -> None:
        for generator, state in states:
            generator.restore(state)


def checkpoint(
    function: Callable[..., Tensor], *inputs: Tensor, generators: Sequence[Generator] = ()
) -> Tensor:
    """function(*inputs), of which no intermediate result is kept: backward computes it again.

    The function takes tensors and gives one of a float dtype. It may use Vars besides its inputs;
    they get their gradients. Random draws repeat: those of the default generator and of
    `generators`. All else that it does is done twice (running statistics move twice).
    Raises DTypeError, OptionError; GradientError in backward where a Var was changed in between.
    """
    require_tensors("checkpoint", *inputs)
    require_function("checkpoint", function)
    sources = as_list("checkpoint", generators, "generators")
    require("checkpoint", "generators that are Generators", Generator, *sources)
    again = _Again(function, (default, *sources))
    with autograd.no_grad():
        made = function(*inputs)
    if not isinstance(made, Tensor) or not made.dtype.is_float:
        got = made.dtype if isinstance(made, Tensor) else type(made).__name__
        raise DTypeError("checkpoint", "a function that gives one float tensor", got)
    record = op.Checkpoint(inputs, again, made.data)
    out = made.apply(record)
    if autograd.recording():  # what it leads to is known when it has run again
        out.op, out.tracked, out.seen = record, True, changes()
    return out
