"""Optimisers, learning rates as functions of the step, clipping, scaled losses."""

from __future__ import annotations

from .adam import Adam, AdamW
from .base import Optimizer
from .clip import clip_grad_norm, clip_grad_value
from .scaler import GradScaler
from .schedule import Schedule, cosine, exponential, linear, step_decay
from .sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "GradScaler",
    "Optimizer",
    "Schedule",
    "clip_grad_norm",
    "clip_grad_value",
    "cosine",
    "exponential",
    "linear",
    "step_decay",
]
