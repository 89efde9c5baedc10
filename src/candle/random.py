"""Random tensors from seeded generators."""

from __future__ import annotations

from collections.abc import Sequence

from .generator import Generator, default
from .tensor import Tensor


def manual_seed(seed: int) -> None:
    """Seeds the default generator. Raises OptionError."""
    default.manual_seed(seed)


def rand(shape: int | Sequence[int], generator: Generator | None = None) -> Tensor:
    """Uniform in [0, 1), f32, from a generator (the default one)."""
    return Tensor.rand(shape, generator)


def randn(shape: int | Sequence[int], generator: Generator | None = None) -> Tensor:
    """Normal with mean 0 and variance 1, f32."""
    return Tensor.randn(shape, generator)
