"""Seeded streams of draws: Philox4x32-10 (Salmon et al. 2011), the same on every machine.

A generator is a counter: draws depend on the seed and on how many came before, never on threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from . import creation
from .arguments import as_int, shown
from .errors import DTypeError, OptionError
from .shape import as_ints, as_shape, count_of
from .storage import View


class _Guard:
    """The lock of all generators; a forked child gets a new one: nobody would free the old."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()


_guard = _Guard()


class Generator:
    """A stream of draws: `seed` in [0, 2**63), fresh where none is given; `offset` counts draws."""

    def __init__(self, seed: int | None = None) -> None:
        self.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1 if seed is None else seed)

    def manual_seed(self, seed: int) -> None:
        """Starts anew from a seed. Raises OptionError."""
        try:
            wanted = as_int("manual_seed", seed)
        except DTypeError as error:
            raise OptionError("manual_seed", "an integer", shown(seed)) from error
        if not 0 <= wanted < 2**63:
            raise OptionError("manual_seed", "0 <= seed < 2**63", seed)
        with _guard.lock:
            self.seed, self.offset = wanted, 0

    def state(self) -> tuple[int, int]:
        """Seed and offset: what the next draws depend on."""
        with _guard.lock:
            return self.seed, self.offset

    def restore(self, state: tuple[int, int]) -> None:
        """Goes on from a state. Raises ShapeError, OptionError."""
        found = as_ints("restore", state)
        if len(found) != 2 or not all(0 <= n < 2**63 for n in found):
            raise OptionError("restore", "a seed and an offset below 2**63", state)
        with _guard.lock:
            self.seed, self.offset = found

    def draw(self, name: str, shape: int | Sequence[int]) -> View:
        """The next f32 draws of this shape; `name` is "uniform" or "normal"."""
        sizes = as_shape(name, shape)
        with _guard.lock:
            seed, offset = self.seed, self.offset
            self.offset += count_of(sizes)
        return creation.random(name, sizes, seed, offset)


default = Generator(0)
