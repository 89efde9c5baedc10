"""static: what a trace may look at, and fixes."""

from __future__ import annotations

import functools
from typing import Any

from .. import tracing
from ..tensor import Tensor


def static(value: Any) -> Any:
    """Marks a value or a function as fixed at trace time: `if candle.static(x.sum() > 0): ...`.

    A tensor gives its values (a number, or nested lists), which the steps so far compute from the
    examples; a function (`@candle.static`) may look at its tensors' values, and what it returns is
    a constant of the compiled function; anything else is given back. Outside of a trace, values and
    functions are what they are.
    """
    if isinstance(value, Tensor):
        with known():
            return value.to_vec()
    if not callable(value):
        return value

    @functools.wraps(value)
    def fixed(*args: Any, **options: Any) -> Any:
        with known():
            return value(*args, **options)

    return fixed


class known(tracing.outside):
    """Context in which the tensors of a trace have the values that the examples give them."""

    def __enter__(self) -> None:
        tracer = tracing.mine()
        if tracer is not None:
            tracer.evaluate()
        super().__enter__()
