"""Thin functions over the C entry points; status codes become exceptions."""

from __future__ import annotations

from typing import Any

from ..errors import CandleError, DTypeError, NativeError, OptionError, RangeError, ShapeError
from .kinds import OPS
from .layout import Layout
from .load import ffi, lib

# step(op, views, n, params) -> status. `views`: packed (data, layout) pairs; `params`: bytes
step = lib.cdl_step

_ERRORS: dict[int, type[CandleError]] = {
    lib.CDL_EDTYPE: DTypeError,
    lib.CDL_ESHAPE: ShapeError,
    lib.CDL_EPARAM: OptionError,
    lib.CDL_ERANGE: RangeError,
}


def status_error(op: int, status: int, layouts: list[Layout]) -> Exception:
    """The exception for a status other than zero, with the operation and what it was given."""
    name = next((n for n, i in OPS.items() if i == op), str(op))
    text = ffi.string(lib.cdl_status_text(status)).decode()
    got = ", ".join(f"{x.dtype}{list(x.shape)}" for x in layouts)
    if status == lib.CDL_ENOMEM:
        return MemoryError(f"{name}: no memory for {got}")
    if status == lib.CDL_EDIVZERO:
        return ZeroDivisionError(f"{name}: integer division by zero ({got})")
    hint = "dequantize() first" if any(x.dtype.is_block for x in layouts) else ""
    return _ERRORS.get(status, NativeError)(name, "arguments it takes", f"{text}: {got}", hint)


def _address(memory: Any) -> int:
    return int(ffi.cast("uintptr_t", memory))


def alloc(nbytes: int) -> tuple[int, Any] | None:
    """(address, owner) of new memory, aligned to 64 bytes; None if there is none.

    The memory goes with its owner, and no Python runs then.
    """
    memory = lib.cdl_alloc(nbytes) if nbytes < 1 << 63 else None
    return (_address(memory), ffi.gc(memory, lib.cdl_free)) if memory else None


def address_of(view: memoryview) -> tuple[int, int]:
    """(address, bytes) of a contiguous memoryview, which must outlive the address.

    Nothing of cffi holds on to the view: the garbage collector cannot clear a memoryview that is
    itself exported, and crashes.
    """
    with ffi.from_buffer(view) as seen:
        return _address(seen), len(seen)


def isa() -> str:
    """Name of the instruction set in use."""
    return ffi.string(lib.cdl_isa()).decode()


def isa_list() -> list[str]:
    """All instruction sets that this machine runs, weakest first."""
    return ffi.string(lib.cdl_isa_list()).decode().split()


def set_isa(name: str) -> None:
    """Chooses one. Raises OptionError if this machine or build does not have it."""
    if lib.cdl_isa_set(name.encode()) != lib.CDL_OK:
        raise OptionError("isa", f"one of {', '.join(isa_list())}", repr(name))


def cpu_features() -> list[str]:
    """CPU features that matter to the kernels."""
    return ffi.string(lib.cdl_cpu_features()).decode().split()


def threads() -> int:
    """Size of the thread pool, the calling thread included."""
    return lib.cdl_threads()


def set_threads(n: int) -> None:
    """Sets the size of the pool, 1 to 256. Raises OptionError."""
    if not isinstance(n, int) or lib.cdl_threads_set(min(max(n, -1), 1000)) != lib.CDL_OK:
        raise OptionError("threads", "1 to 256", n)
