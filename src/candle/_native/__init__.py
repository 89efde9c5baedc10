"""The C library as the engine sees it: `step`, `Layout`, `alloc`, and its facts.

This room alone knows cffi and the shared library.
"""

from __future__ import annotations

from .calls import (
    address_of,
    alloc,
    cpu_features,
    isa,
    isa_list,
    set_isa,
    set_threads,
    status_error,
    step,
    threads,
)
from .kinds import OPS, op_id
from .layout import Layout
from .load import BINDING, VERSION

__all__ = [
    "BINDING",
    "OPS",
    "VERSION",
    "Layout",
    "address_of",
    "alloc",
    "cpu_features",
    "isa",
    "isa_list",
    "op_id",
    "set_isa",
    "set_threads",
    "status_error",
    "step",
    "threads",
]
