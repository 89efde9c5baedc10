"""Initialisers: each call answers a function of (shape, generator) that makes the first values.

Weights are [out, in, *kernel]; `fan_in` counts in x kernel, `fan_out` out x kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..arguments import as_float, as_int, one_of
from ..errors import OptionError, ShapeError
from ..generator import Generator
from ..shape import Shape, as_shape, count_of
from ..tensor import Tensor

Init = Callable[[Shape, Generator | None], Tensor]


def constant(value: float) -> Init:
    """Every element `value`."""
    number = as_float("init.constant", value)
    return lambda shape, _: Tensor.full(shape, number)


zeros: Init = constant(0.0)
ones: Init = constant(1.0)


def uniform(low: float, high: float) -> Init:
    """Uniform in [low, high). Raises OptionError unless low <= high."""
    low, high = as_float("init.uniform", low), as_float("init.uniform", high)
    if not low <= high:
        raise OptionError("init.uniform", "low <= high", (low, high))
    return lambda shape, source: Tensor.rand(shape, source).mul(high - low).add(low)


def normal(mean: float = 0.0, std: float = 1.0) -> Init:
    """Normal with this mean and standard deviation. Raises OptionError for a negative one."""
    mean, std = as_float("init.normal", mean), as_float("init.normal", std)
    if not std >= 0:
        raise OptionError("init.normal", "std >= 0", std)
    return lambda shape, source: Tensor.randn(shape, source).mul(std).add(mean)


def fans(shape: Shape) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight. Raises ShapeError below two axes."""
    shape = as_shape("init", shape)
    if len(shape) < 2:
        raise ShapeError(
            "init", "a weight of at least 2 axes", list(shape), "uniform() or normal()"
        )
    kernel = count_of(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def kaiming_uniform(gain: float = math.sqrt(2.0), fan: str = "in") -> Init:
    """Uniform with standard deviation gain / sqrt(fan); sqrt(2) is for ReLU (He et al. 2015)."""
    of, which = as_float("init gain", gain), _which(fan)
    return lambda shape, source: _spread(shape, source, of / math.sqrt(_fan(shape, which)), True)


def kaiming_normal(gain: float = math.sqrt(2.0), fan: str = "in") -> Init:
    """Normal with standard deviation gain / sqrt(fan); sqrt(2) is for ReLU (He et al. 2015)."""
    of, which = as_float("init gain", gain), _which(fan)
    return lambda shape, source: _spread(shape, source, of / math.sqrt(_fan(shape, which)), False)


def xavier_uniform(gain: float = 1.0) -> Init:
    """Uniform with standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot, Bengio 2010)."""
    of = as_float("init gain", gain)
    return lambda shape, source: _spread(shape, source, of * _xavier(shape), True)


def xavier_normal(gain: float = 1.0) -> Init:
    """Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot, Bengio 2010)."""
    of = as_float("init gain", gain)
    return lambda shape, source: _spread(shape, source, of * _xavier(shape), False)


def by_fan_in(fan_in: int) -> Init:
    """Uniform within 1 / sqrt(fan_in): PyTorch's default for Linear and convolutions, bias too."""
    bound = 1.0 / math.sqrt(as_float("init.by_fan_in", max(as_int("init.by_fan_in", fan_in), 1)))
    return uniform(-bound, bound)


def _spread(shape: Shape, source: Generator | None, std: float, flat: bool) -> Tensor:
    bound = math.sqrt(3.0) * std
    return (uniform(-bound, bound) if flat else normal(0.0, std))(shape, source)


def _which(fan: str) -> int:
    return one_of("init", "fan", fan, {"in": 0, "out": 1})


def _fan(shape: Shape, which: int) -> int:
    return max(fans(shape)[which], 1)


def _xavier(shape: Shape) -> float:
    return math.sqrt(2.0 / max(sum(fans(shape)), 1))
