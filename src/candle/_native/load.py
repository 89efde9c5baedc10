"""Finds and opens the shared library: `lib` and `ffi`.

Built wheels carry a cffi API-mode shim (0.2 us a call); without Python's headers at build time the
ABI-mode declarations open the same library (0.5 us). `CANDLE_BINDING=abi` forces the latter;
`BINDING` says which is in use, and `candle doctor` prints it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ..errors import NativeError

ABI = 1
_FOLDER = Path(__file__).resolve().parent
_NAMES = {"win32": "candle.dll", "darwin": "libcandle.dylib"}


def _open_abi() -> tuple[Any, Any]:
    path = _FOLDER / _NAMES.get(sys.platform, "libcandle.so")
    try:
        from ._abi import ffi

        return ffi.dlopen(str(path)), ffi
    except (ImportError, OSError) as error:
        hint = "reinstall candle, or `make build`"
        raise NativeError("load", f"the kernel library {path.name}", str(error), hint) from error


def _open() -> tuple[str, Any, Any]:
    if os.environ.get("CANDLE_BINDING") != "abi":
        try:
            from ._shim import ffi, lib

            return "api", lib, ffi
        except ImportError:
            pass  # built without headers: the other binding opens the same library
    return ("abi", *_open_abi())


BINDING, lib, ffi = _open()
if lib.cdl_abi() != ABI:
    raise NativeError("load", f"a library of ABI {ABI}", lib.cdl_abi(), "rebuild candle")
VERSION: str = ffi.string(lib.cdl_version()).decode()
