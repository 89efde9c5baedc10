"""Sequential: layers one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..arguments import as_int, require_function
from ..errors import RangeError
from .module import Module


class Sequential(Module):
    """Modules and plain functions of a tensor, in order: `Sequential(a, Tensor.relu, b)`.

    Parameters are named by place, functions counted: "0.weight", "2.weight".
    """

    def __init__(self, *layers: Callable[..., Any]) -> None:
        for layer in layers:
            require_function("Sequential", layer, "modules and functions")
        self.layers = list(layers)

    def forward(self, x: Any) -> Any:
        """Each layer applied to what the one before it gave."""
        for layer in self.layers:
            x = layer(x)
        return x

    def children(self) -> Iterator[tuple[str, Module]]:
        """(place, module) of each layer that is a module."""
        return ((str(k), m) for k, m in enumerate(self.layers) if isinstance(m, Module))

    def append(self, layer: Callable[..., Any]) -> None:
        """One more layer at the end."""
        require_function("Sequential", layer, "a module or a function")
        self.layers.append(layer)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self.layers[place]
        at = as_int("Sequential", place)
        if not -len(self) <= at < len(self):
            raise RangeError("Sequential", f"one of {len(self)} layers", at)
        return self.layers[at]

    def describe(self) -> str:
        """Nothing: the layers have lines of their own."""
        return ""

    def lines(self, name: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
        """As any module's, with a line for each function too."""
        yield next(super().lines(name, depth))
        for k, layer in enumerate(self.layers):
            if isinstance(layer, Module):
                yield from layer.lines(str(k), depth + 1)
            else:
                label = getattr(layer, "__name__", type(layer).__name__)
                yield f"{'  ' * (depth + 1)}{k}: {label}", 0
