"""Learning rates as functions of the step, counted from 0: `SGD(vars, lr=cosine(0.1, 1000))`."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..arguments import as_float, as_int
from ..errors import OptionError

Schedule = Callable[[int], float]


def cosine(peak: float, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Up in a line over `warmup` steps, then down half a cosine to `end` at `steps`, and stays."""
    steps, warmup = _counts("cosine", steps, warmup)
    peak, end = _rates("cosine", peak, end)

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return end + (peak - end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return rate


def linear(peak: float, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Up in a line over `warmup` steps, then down in a line to `end` at `steps`, and stays."""
    steps, warmup = _counts("linear", steps, warmup)
    peak, end = _rates("linear", peak, end)

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return peak + (end - peak) * done

    return rate


def step_decay(start: float, every: int, factor: float = 0.1) -> Schedule:
    """Times `factor` after every so many steps."""
    start, factor = _rates("step_decay", start, factor)
    every = as_int("step_decay", every, "an integer of steps")
    if every < 1:
        raise OptionError("step_decay", "every >= 1", every)
    return lambda step: start * factor ** (step // every)


def exponential(start: float, factor: float) -> Schedule:
    """Times `factor` after each step."""
    start, factor = _rates("exponential", start, factor)
    return lambda step: start * factor**step


def _rates(name: str, first: float, second: float) -> tuple[float, float]:
    return as_float(name, first, "a rate"), as_float(name, second, "a rate")


def _counts(name: str, steps: int, warmup: int) -> tuple[int, int]:
    steps, warmup = (as_int(name, n, "an integer of steps") for n in (steps, warmup))
    if not 0 <= warmup <= steps:
        raise OptionError(name, "0 <= warmup <= steps", f"warmup {warmup}, steps {steps}")
    return steps, warmup
