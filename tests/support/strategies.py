"""Hypothesis strategies: shapes, axes, slices and awkward numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-45, -1e-38, 3.4e38, -3.4e38, math.inf, -math.inf, math.nan]

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
floats32 = st.one_of(st.sampled_from(SPECIAL), st.floats(width=32))


def arrays(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """f32 arrays of a shape, special values among them."""
    count = math.prod(shape)
    made = st.lists(floats32, min_size=count, max_size=count)
    return made.map(lambda v: np.array(v, np.float32).reshape(shape))


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """A shape, and an index of integers, slices, None and at most one Ellipsis that fits it."""
    shape = draw(full_shapes)
    used = draw(st.integers(0, len(shape)))
    parts: list[Any] = []
    for n in shape[:used]:
        whole = st.integers(-n, n - 1)
        parts.append(draw(st.one_of(whole, slices(n))))
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if draw(st.booleans()):
        parts.append(Ellipsis)
    return shape, tuple(parts)


def slices(n: int) -> st.SearchStrategy[slice]:
    """Any slice, with ends out of range and negative steps."""
    ends = st.one_of(st.none(), st.integers(-n - 2, n + 2))
    steps = st.one_of(st.none(), st.integers(-3, 3).filter(bool))
    return st.builds(slice, ends, ends, steps)
