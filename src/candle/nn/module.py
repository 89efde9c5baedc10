"""Module: what all layers share. Parameters are found by looking, there is no registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..tensor import Tensor


class Module:
    """A layer: tensors and other modules as attributes, and `forward`."""

    forward: Callable[..., Any]  # each layer says its shapes

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of each direct child; a list's items are named by their place."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, list | tuple):
                for k, item in enumerate(value):
                    if isinstance(item, Module):
                        yield f"{name}.{k}", item

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of this module and all below it."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                yield prefix + name, value
        for name, child in self.children():
            yield from child.named_parameters(f"{prefix}{name}.")

    def freeze(self) -> None:
        """Readies weights for inference: each layer packs what it multiplies by, once."""
        for _, child in self.children():
            child.freeze()
