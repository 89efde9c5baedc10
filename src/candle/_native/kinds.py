"""Operation names and numbers, as the library itself reports them."""

from __future__ import annotations

from ..errors import NativeError
from .load import ffi, lib

OPS: dict[str, int] = {
    ffi.string(lib.cdl_op_name(i)).decode(): i for i in range(lib.cdl_op_count())
}


def op_id(name: str) -> int:
    """The number of an operation. Raises NativeError for a name the library does not have."""
    found = OPS.get(name)
    if found is None:
        raise NativeError("op_id", "an operation of this library", name)
    return found
