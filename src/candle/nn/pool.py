"""Pooling as layers; `functional.max_pool2d` and `avg_pool2d` are the functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import functional
from ..tensor import Tensor
from .module import Module


class _Pool(Module):
    """The window, and the options of the function."""

    def __init__(self, kernel: int | Sequence[int], **options: Any) -> None:
        self.kernel = kernel
        self.options = options

    def describe(self) -> str:
        """The window and the options."""
        return ", ".join([str(self.kernel), *(f"{k} {v}" for k, v in self.options.items())])


class MaxPool2d(_Pool):
    """The greatest of each window; the options are those of `functional.max_pool2d`."""

    def forward(self, x: Tensor) -> Tensor:
        """x [b, c, h, w] to [b, c, p, q]."""
        return functional.max_pool2d(x, self.kernel, **self.options)


class AvgPool2d(_Pool):
    """The mean of each window; the options are those of `functional.avg_pool2d`."""

    def forward(self, x: Tensor) -> Tensor:
        """x [b, c, h, w] to [b, c, p, q]."""
        return functional.avg_pool2d(x, self.kernel, **self.options)
