"""Candle: a minimalist machine-learning runtime. The flat public list; no logic."""

from __future__ import annotations

from . import functional, nn
from ._native import set_threads, threads
from ._version import __version__
from .autograd import no_grad
from .device import Device
from .dtype import DType
from .errors import (
    CandleError,
    ContextLengthError,
    DeviceError,
    DTypeError,
    FormatError,
    GradientError,
    NameNotFoundError,
    NativeError,
    OptionError,
    RangeError,
    ShapeError,
    StoreError,
)
from .generator import Generator
from .op import Activation
from .random import manual_seed, rand, randn
from .tensor import Tensor, Var
from .weights import Weights, load_safetensors, save_safetensors

__all__ = [
    "Activation",
    "CandleError",
    "ContextLengthError",
    "DType",
    "DTypeError",
    "Device",
    "DeviceError",
    "FormatError",
    "Generator",
    "GradientError",
    "NameNotFoundError",
    "NativeError",
    "OptionError",
    "RangeError",
    "ShapeError",
    "StoreError",
    "Tensor",
    "Var",
    "Weights",
    "__version__",
    "functional",
    "load_safetensors",
    "manual_seed",
    "nn",
    "no_grad",
    "rand",
    "randn",
    "save_safetensors",
    "set_threads",
    "threads",
]
