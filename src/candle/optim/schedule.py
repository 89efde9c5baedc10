"""Learning rates as functions of the step, counted from 0: `SGD(vars, lr=cosine(0.1, 1000))`."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import OptionError

Schedule = Callable[[int], float]


def cosine(peak: float, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Up in a line over `warmup` steps, then down half a cosine to `end` at `steps`, and stays."""
    _require("cosine", steps, warmup)

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return end + (peak - end) * 0.5 * (1.0 + math.cos(math.pi * done))

    return rate


def linear(peak: float, steps: int, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Up in a line over `warmup` steps, then down in a line to `end` at `steps`, and stays."""
    _require("linear", steps, warmup)

    def rate(step: int) -> float:
        if step < warmup:
            return peak * (step + 1) / warmup
        done = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return peak + (end - peak) * done

    return rate


def step_decay(start: float, every: int, factor: float = 0.1) -> Schedule:
    """Times `factor` after every so many steps."""
    if every < 1:
        raise OptionError("step_decay", "every >= 1", every)
    return lambda step: start * factor ** (step // every)


def exponential(start: float, factor: float) -> Schedule:
    """Times `factor` after each step."""
    return lambda step: start * factor**step


def _require(name: str, steps: int, warmup: int) -> None:
    if not 0 <= warmup <= steps:
        raise OptionError(name, "0 <= warmup <= steps", f"warmup {warmup}, steps {steps}")
