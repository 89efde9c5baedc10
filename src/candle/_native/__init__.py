"""The C library as the engine sees it: `step`, `layout_address`, `alloc`, `free`, and its facts.

This room alone knows cffi and the shared library.
"""

from __future__ import annotations

from .calls import (
    address_of,
    alloc,
    cpu_features,
    free,
    isa,
    isa_list,
    layout_address,
    set_isa,
    set_threads,
    status_error,
    step,
    threads,
)
from .kinds import OPS, op_id
from .load import BINDING, VERSION

__all__ = [
    "BINDING",
    "OPS",
    "VERSION",
    "address_of",
    "alloc",
    "cpu_features",
    "free",
    "isa",
    "isa_list",
    "layout_address",
    "op_id",
    "set_isa",
    "set_threads",
    "status_error",
    "step",
    "threads",
]
