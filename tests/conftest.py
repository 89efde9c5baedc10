"""Fixtures of all rooms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings

# no clock in a test: a busy machine is slow, not wrong; and the same draws in every run
settings.register_profile("candle", deadline=None, derandomize=True)
settings.load_profile("candle")


@pytest.fixture
def rng() -> np.random.Generator:
    """The same draws in every run."""
    return np.random.default_rng(1234)
