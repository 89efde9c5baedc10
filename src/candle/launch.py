"""The one way to a kernel: views as `cdl_view`, parameters as `cdl_params`, status as error.

Runners (`eager`, `images`) call it; the hottest of them pack for themselves with the same parts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from . import _native
from ._native import Layout
from .dtype import DType
from .errors import OptionError
from .storage import View

step = _native.step
packs = [struct.Struct(f"={2 * n}Q").pack for n in range(9)]
NO_PARAMS = bytes(80)
_params = struct.Struct("=8q2d").pack
_NOTHING = Layout.of(DType.F32, (0,))  # of an absent view; held here, so that its address stays
_ABSENT = (0, _NOTHING.address)


def params(*ints: int, f: Sequence[float] = ()) -> bytes:
    """`cdl_params`: up to 8 integers and 2 doubles, the rest zero. Raises OptionError."""
    padded = (*f, *(0.0,) * (2 - len(f)))
    try:
        return _params(*ints, *(0,) * (8 - len(ints)), *padded)
    except (struct.error, OverflowError, TypeError) as error:
        wanted = "whole numbers below 2**63, and floats"
        raise OptionError("parameters", wanted, [*ints, *f], str(error)) from error


def call(op_id: int, views: Sequence[View | None], given: bytes = NO_PARAMS) -> None:
    """One native step; None stands for an absent view. Raises by the status."""
    flat: list[int] = []
    for v in views:
        flat += _ABSENT if v is None else (v.address, v.layout.address)
    status = step(op_id, packs[len(views)](*flat), len(views), given)
    if status:
        raise refusal(op_id, status, *views)


def refusal(op_id: int, status: int, *views: View | None) -> Exception:
    """The exception for a status other than zero."""
    return _native.status_error(op_id, status, [v.layout for v in views if v is not None])
