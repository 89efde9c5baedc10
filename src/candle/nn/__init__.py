"""Layers. Each is a `Module` whose tensors are plain attributes."""

from __future__ import annotations

from .embedding import Embedding
from .linear import Linear
from .module import Module
from .norm import LayerNorm, RmsNorm

__all__ = ["Embedding", "LayerNorm", "Linear", "Module", "RmsNorm"]
