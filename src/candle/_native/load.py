"""Finds and opens the shared library: `lib` and `ffi`.

Built wheels carry a cffi API-mode shim (0.2 us a call); without Python's headers at build time the
ABI-mode declarations open the same library (0.5 us). `CANDLE_BINDING=abi` forces the latter;
`BINDING` says which is in use, and `candle doctor` prints it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import NativeError

ABI = 1
_FOLDER = Path(__file__).resolve().parent
_NAMES = {"win32": "candle.dll", "darwin": "libcandle.dylib"}


def _open_abi() -> tuple[Any, Any]:
    path = _FOLDER / _NAMES.get(sys.platform, "libcandle.so")
    try:
        declared = import_module("._abi", __package__).ffi
        library = declared.dlopen(str(path))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # never closed: memory outlives it
        return library, declared
    except (ImportError, OSError) as error:
        hint = "reinstall candle, or `make build`"
        raise NativeError("load", f"the kernel library {path.name}", str(error), hint) from error


def _open() -> tuple[str, Any, Any]:
    if os.environ.get("CANDLE_BINDING") != "abi":
        try:
            shim = import_module("._shim", __package__)
            return "api", shim.lib, shim.ffi
        except ImportError:
            pass  # built without headers: the other binding opens the same library
    return ("abi", *_open_abi())


BINDING, lib, ffi = _open()
if lib.cdl_abi() != ABI:
    raise NativeError("load", f"a library of ABI {ABI}", lib.cdl_abi(), "rebuild candle")
_asked, _used = os.environ.get("CANDLE_ISA"), ffi.string(lib.cdl_isa()).decode()
if _asked and _asked != _used:
    _here = ", ".join(ffi.string(lib.cdl_isa_list()).decode().split())
    _said = f"candle: CANDLE_ISA={_asked} cannot run here: {_used} is used, of {_here}"
    print(_said, file=sys.stderr)  # a warning would show a path and a line of this file
VERSION: str = ffi.string(lib.cdl_version()).decode()
