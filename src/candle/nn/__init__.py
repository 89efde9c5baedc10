"""Layers. Each is a `Module` whose tensors are plain attributes.

`Layer(tensors)` takes what it is given, `Layer.new(sizes, vb)` asks a `VarBuilder` for new
parameters or for those of a file, `Layer.load(weights, sizes)` maps them for inference.
"""

from __future__ import annotations

from . import init
from .conv import Conv1d, Conv2d, ConvTranspose2d
from .dropout import Dropout
from .embedding import Embedding
from .linear import Linear
from .module import Module
from .norm import BatchNorm2d, GroupNorm, LayerNorm, RmsNorm
from .pool import AvgPool2d, MaxPool2d
from .sequential import Sequential
from .varbuilder import VarBuilder

__all__ = [
    "AvgPool2d",
    "BatchNorm2d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose2d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "Module",
    "RmsNorm",
    "Sequential",
    "VarBuilder",
    "init",
]
