"""Optimisers, learning rates as functions of the step, clipping."""

from __future__ import annotations

from .adam import Adam, AdamW
from .base import Optimizer
from .clip import clip_grad_norm, clip_grad_value
from .schedule import Schedule, cosine, exponential, linear, step_decay
from .sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "Schedule",
    "clip_grad_norm",
    "clip_grad_value",
    "cosine",
    "exponential",
    "linear",
    "step_decay",
]
