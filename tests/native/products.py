"""What the tests of linear, matmul, attention and nearest share, on top of harness.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from harness import ISAS, View, blocks, lib, run, set_isa, set_threads, view

Array = np.ndarray[Any, Any]
FUSED = [name for name in ISAS if name != "scalar"]


@contextmanager
def on_isa(name: str) -> Iterator[None]:
    """Runs the block on one instruction set, then on the strongest again."""
    set_isa(name)
    try:
        yield
    finally:
        set_isa(ISAS[-1])


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs the block with a pool of `count` threads."""
    before = lib.cdl_threads()
    set_threads(count)
    try:
        yield
    finally:
        set_threads(before)


def pack(weight: Array | View) -> View:
    """A float matrix [n, k] packed by the library into panels of 16 rows."""
    rows, cols = view(weight).shape
    panels = np.full((-(-rows // 16), cols, 16), np.nan, np.float32)
    packed = blocks(panels, "f32x16", (rows, cols), (cols, 1))
    run("pack", packed, weight)
    return packed


def same_bits(a: Array, b: Array) -> bool:
    """Equal to the bit, signs of zero and NaN patterns included."""
    return a.shape == b.shape and a.tobytes() == b.tobytes()
