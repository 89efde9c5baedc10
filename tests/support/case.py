"""A case: how an operation is built, on what, and what it means; and how inputs are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from candle import DType, Tensor

Array = Any
Rng = np.random.Generator
Make = Callable[[Rng], tuple[Array, ...]]

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "u32", "u8")
NUMBERS = (*FLOATS, *INTS)
EPSILON = {"f64": 2.3e-16, "f32": 1.2e-7, "f16": 9.8e-4, "bf16": 7.9e-3}


@dataclass(frozen=True)
class Case:
    """One operation on one kind of input."""

    name: str
    covers: Any  # the kind, or the record type
    run: Callable[..., Any]  # on Tensors
    means: Callable[..., Any]  # on arrays: the oracle
    make: Make
    dtypes: tuple[str, ...] = FLOATS  # of the inputs that `fixed` does not name
    fixed: Mapping[int, str] = field(default_factory=dict)  # input -> its dtype
    factor: float = 4.0  # tolerance, in units of the dtype's epsilon
    order: int = 2  # gradients that exist: 0, 1 or 2
    layouts: bool = True  # whether inputs may have any strides

    def tolerance(self, dtype: str) -> float:
        """Allowed |error| / (1 + |value|)."""
        return self.factor * EPSILON.get(dtype, 0.0)


def uniform(*shapes: tuple[int, ...], low: float = -2.0, high: float = 2.0) -> Make:
    """Inputs drawn from [low, high), one a shape."""
    return lambda rng: tuple(rng.uniform(low, high, s) for s in shapes)


def whole(*shapes: tuple[int, ...], low: int = 1, high: int = 9) -> Make:
    """Small whole numbers, which every dtype holds."""
    return lambda rng: tuple(rng.integers(low, high, s) for s in shapes)


def distinct(*shapes: tuple[int, ...]) -> Make:
    """The first all different, so that one is the greatest; the others drawn."""

    def make(rng: Rng) -> tuple[Array, ...]:
        first, *rest = shapes
        order = rng.permutation(math.prod(first)).reshape(first)
        return (order / 16 - 2, *(rng.uniform(-2, 2, s) for s in rest))

    return make


# -- building inputs -----------------------------------------------------------------------------

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row-major": lambda x: x,
    "strided": lambda x: Tensor.stack([x, x.ones_like()], x.rank)[..., 0],
    "backwards": lambda x: x.flip(-1).copy().flip(-1) if x.rank else x,
    "transposed": lambda x: x.transpose(0, -1).copy().transpose(0, -1) if x.rank > 1 else x,
    "offset": lambda x: Tensor.stack([x.ones_like(), x])[1],
}


def build(case: Case, dtype: str, layout: str, rng: Rng) -> tuple[list[Tensor], list[Array]]:
    """The inputs of a case as tensors, and as the arrays of what the tensors really hold."""
    tensors = []
    for n, array in enumerate(case.make(rng)):
        wanted = DType.of(case.fixed.get(n, dtype))
        source = np.asarray(array, np.float64 if array.dtype.kind == "f" else np.int64)
        tensor = Tensor.from_numpy(source).to_dtype(wanted)
        tensors.append(LAYOUTS[layout](tensor) if case.layouts else tensor)
    return tensors, [values_of(t) for t in tensors]


def values_of(tensor: Tensor) -> Array:
    """float64 or int64 values of a tensor."""
    wide = DType.F64 if tensor.dtype.is_float else DType.I64
    return tensor.to_dtype(wide).numpy().copy()
