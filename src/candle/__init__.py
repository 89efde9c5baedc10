"""Candle: a minimalist machine-learning runtime. The flat public list.

The engine loads at once; rooms that not every program needs load when they are first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import functional
from ._native import set_threads, threads
from ._version import __version__
from .anomaly import detect_anomaly
from .autograd import no_grad
from .device import Device
from .dtype import DType
from .errors import (
    AnomalyError,
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
    TraceError,
)
from .generator import Generator
from .op import Activation
from .random import manual_seed, rand, randn
from .recompute import checkpoint
from .tensor import Tensor, Var

if TYPE_CHECKING:
    from . import nn
    from .compiler import compile, load_plan, static
    from .weights import Weights, load_safetensors, save_safetensors

__all__ = [
    "Activation",
    "AnomalyError",
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
    "TraceError",
    "Var",
    "Weights",
    "__version__",
    "checkpoint",
    "compile",
    "detect_anomaly",
    "functional",
    "load_plan",
    "load_safetensors",
    "manual_seed",
    "nn",
    "no_grad",
    "rand",
    "randn",
    "save_safetensors",
    "set_threads",
    "static",
    "threads",
]

# name -> the room it comes from, or itself where it is one
_LATER = {
    "Weights": "weights",
    "compile": "compiler",
    "load_plan": "compiler",
    "load_safetensors": "weights",
    "nn": "nn",
    "save_safetensors": "weights",
    "static": "compiler",
}


def __getattr__(name: str) -> Any:
    room = _LATER.get(name)
    if room is None:
        raise AttributeError(f"module 'candle' has no attribute {name!r}")
    module = importlib.import_module(f".{room}", __name__)
    value = globals()[name] = module if room == name else getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
