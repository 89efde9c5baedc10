"""Calls the kernel library straight from NumPy arrays, for the tests of native/.

`step("add", out, a, b)` answers the status; `run(...)` insists on success. Arrays keep their
strides. A bf16 array is uint16 wrapped in `bf16(...)`; block rows are uint8 in `blocks(...)`.
CANDLE_TEST_LIBRARY names another build of the library (a sanitised one, say),
CANDLE_TEST_RUNNER the command of a stepper (remote.py), CANDLE_TEST_ISAS the only ISAs to test.
"""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from remote import Remote

ROOT = Path(__file__).resolve().parents[2]
OK, EOP, EARGS, EDTYPE, ESHAPE, EPARAM, ERANGE, ENOMEM, EDIVZERO = range(9)
DTYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 3, "i64": 4, "i32": 5, "u32": 6, "u8": 7, "bool": 8}
BLOCKS = {"q8_0": 16, "q4_0": 17, "q4_1": 18, "q5_0": 19, "q5_1": 20, "q4_k": 21, "q5_k": 22}
BLOCKS |= {"q6_k": 23, "f32x16": 32}
_NUMPY = {"f4": "f32", "f8": "f64", "f2": "f16", "i8": "i64", "i4": "i32", "u4": "u32", "u1": "u8"}
_LAYOUT = struct.Struct("=ii8q8q")


@dataclass(frozen=True)
class View:
    """A window with an explicit dtype name and shape, on an array's memory."""

    array: Any  # ndarray or None (absent)
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def bf16(array: Any) -> View:
    """uint16 bit patterns as bf16."""
    return View(array, "bf16", array.shape, tuple(s // 2 for s in array.strides))


def blocks(array: Any, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> View:
    """Bytes as rows of blocks (or panels) of the named dtype; shape and strides count elements."""
    return View(array, dtype, shape, strides)


def view(x: Any) -> View:
    """A View of an ndarray, of None (absent) or of a View."""
    if isinstance(x, View):
        return x
    if x is None:
        return View(None, "f32", (0,), (1,))
    name = "bool" if x.dtype == np.bool_ else _NUMPY[x.dtype.str[1:]]
    return View(x, name, x.shape, tuple(s // x.itemsize for s in x.strides))


def library_path() -> Path:
    """The shared library under test."""
    chosen = os.environ.get("CANDLE_TEST_LIBRARY")
    return Path(chosen) if chosen else ROOT / "src/candle/_native/libcandle.so"


def _open() -> Any:
    runner = os.environ.get("CANDLE_TEST_RUNNER")
    if runner:
        return Remote(runner)
    lib = ctypes.CDLL(str(library_path()))
    lib.cdl_isa_list.restype = lib.cdl_op_name.restype = ctypes.c_char_p
    lib.cdl_step.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
    return lib


lib = _open()
OPS = {lib.cdl_op_name(i).decode(): i for i in range(lib.cdl_op_count())}
_only = os.environ.get("CANDLE_TEST_ISAS", "").split()
ISAS: list[str] = [x for x in lib.cdl_isa_list().decode().split() if not _only or x in _only]


def set_isa(name: str) -> None:
    """Every following step runs on this ISA."""
    assert lib.cdl_isa_set(name.encode()) == OK


def set_threads(n: int) -> None:
    """Size of the thread pool."""
    assert lib.cdl_threads_set(n) == OK


def step(op: str, *views: Any, i: tuple[int, ...] = (), f: tuple[float, ...] = ()) -> int:
    """One cdl_step on arrays or Views, outputs first; its status."""
    given = [view(x) for x in views]
    layouts = []
    for x in given:
        pad = (0,) * (8 - len(x.shape))
        shape, strides = (*x.shape, *pad), (*x.strides, *pad)
        layouts.append(_LAYOUT.pack((DTYPES | BLOCKS)[x.dtype], len(x.shape), *shape, *strides))
    params = struct.pack("=8q2d", *i, *(0,) * (8 - len(i)), *f, *(0.0,) * (2 - len(f)))
    if isinstance(lib, Remote):
        return lib.step(OPS[op], [x.array for x in given], layouts, params)
    memory = ctypes.create_string_buffer(b"".join(layouts))
    packed = b""
    for k, x in enumerate(given):
        data = 0 if x.array is None else x.array.ctypes.data
        packed += struct.pack("=QQ", data, ctypes.addressof(memory) + k * _LAYOUT.size)
    return int(lib.cdl_step(OPS[op], packed, len(given), params))


def run(op: str, *views: Any, i: tuple[int, ...] = (), f: tuple[float, ...] = ()) -> Any:
    """One step that must succeed; answers its first view's array."""
    status = step(op, *views, i=i, f=f)
    assert status == OK, f"{op}: status {status}"
    return views[0].array if isinstance(views[0], View) else views[0]


def to_bf16(x: Any) -> Any:
    """float array to bf16 bits, nearest even (NaN stays NaN)."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(u: Any) -> Any:
    """bf16 bits to float32, exact."""
    return (u.astype(np.uint32) << 16).view(np.float32)


def ulps(got: Any, exact: Any) -> Any:
    """|got - exact| in units of the last place of the f32 nearest to exact; 0 where both are the
    same special value, inf where only one is."""
    exact = np.asarray(exact, np.float64)
    with np.errstate(all="ignore"):
        nearest = exact.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(nearest), np.float32(2**-126))).astype(np.float64)
        error = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
    special = ~np.isfinite(got) | ~np.isfinite(nearest)
    return np.where(special, np.where(same, 0.0, np.inf), error)
