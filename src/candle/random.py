"""Seeded random tensors: Philox4x32-10 (Salmon et al. 2011), the same on every machine.

The generator is a counter: draws depend on the seed and on how many came before, never on threads.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence

from . import eager
from .errors import OptionError
from .shape import as_shape, count_of
from .tensor import Tensor


class Generator:
    """A stream of draws: `seed` in [0, 2**63), `offset` counts draws so far."""

    def __init__(self, seed: int | None = None) -> None:
        self._lock = threading.Lock()
        self.manual_seed(secrets.randbits(63) if seed is None else seed)

    def manual_seed(self, seed: int) -> None:
        """Starts anew from a seed. Raises OptionError."""
        if not 0 <= seed < 2**63:
            raise OptionError("manual_seed", "0 <= seed < 2**63", seed)
        self.seed, self.offset = seed, 0

    def _draw(self, name: str, shape: int | Sequence[int]) -> Tensor:
        sizes = as_shape(name, shape)
        with self._lock:
            offset, self.offset = self.offset, self.offset + count_of(sizes)
        return Tensor.of_view(eager.random(name, sizes, self.seed, offset))

    def rand(self, shape: int | Sequence[int]) -> Tensor:
        """Uniform in [0, 1), f32."""
        return self._draw("uniform", shape)

    def randn(self, shape: int | Sequence[int]) -> Tensor:
        """Normal with mean 0 and variance 1, f32."""
        return self._draw("normal", shape)


default = Generator(0)


def manual_seed(seed: int) -> None:
    """Seeds the default generator."""
    default.manual_seed(seed)


def rand(shape: int | Sequence[int], generator: Generator | None = None) -> Tensor:
    """Uniform in [0, 1), f32, from a generator (the default one)."""
    return (generator or default).rand(shape)


def randn(shape: int | Sequence[int], generator: Generator | None = None) -> Tensor:
    """Normal with mean 0 and variance 1, f32."""
    return (generator or default).randn(shape)
