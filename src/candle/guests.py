"""NumPy as a guest: views of its arrays, and how it sees ours. Nothing here imports it."""

from __future__ import annotations

import struct
from typing import Any

from . import tracing
from ._native import Layout
from .dtype import DType
from .errors import DTypeError, OptionError, ShapeError
from .shape import as_shape
from .storage import Storage, View

_NAMES: dict[DType, str] = {
    DType.F32: "float32",
    DType.F64: "float64",
    DType.F16: "float16",
    DType.I64: "int64",
    DType.I32: "int32",
    DType.U32: "uint32",
    DType.U8: "uint8",
    DType.BOOL: "bool",
}
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}
_ORDER = "<" if struct.pack("=h", 1) == struct.pack("<h", 1) else ">"


def view_of_array(array: Any) -> View:
    """A view of a NumPy array, without a copy; any strides that are whole elements.

    Raises DTypeError for dtypes without a counterpart, ShapeError for strides of broken elements,
    OptionError for memory that is not aligned to its elements.
    """
    face = getattr(array, "__array_interface__", None)
    if face is None:
        raise DTypeError("from_numpy", "a NumPy array", type(array).__name__)
    kind: Any = getattr(array, "dtype", None)
    dtype = _BY_NAME.get(str(kind))
    if dtype is None or not kind.isnative:
        wanted = f"one of {', '.join(_BY_NAME)} in native byte order"
        raise DTypeError("from_numpy", wanted, kind, "astype() converts")
    address, read_only = face["data"]
    if address % dtype.size:
        raise OptionError("from_numpy", f"memory aligned to {dtype.size}", hex(address), "copy()")
    shape, strides = as_shape("from_numpy", array.shape), None
    if face["strides"]:
        pairs = zip(shape, face["strides"], strict=True)
        if any(s % dtype.size for n, s in pairs if n > 1):
            wanted = f"strides of whole {dtype.size}-byte elements"
            raise ShapeError("from_numpy", wanted, face["strides"], "copy() makes them so")
        strides = tuple(s // dtype.size for s in face["strides"])
    storage = Storage.of_address(address, array, not read_only)
    return View(storage, 0, Layout.of(dtype, shape, strides))


class ArrayFace:
    """What NumPy needs to see a view's memory; keeps it alive.

    Read-only where the memory is, or where elements are repeated: to change one would change all.
    """

    def __init__(self, view: View) -> None:
        layout = view.layout
        if layout.dtype not in _NAMES:
            wanted = f"one of {', '.join(_BY_NAME)}"
            raise DTypeError("numpy", wanted, layout.dtype, "to_dtype('f32') first")
        name, size = _NAMES[layout.dtype], layout.dtype.size
        repeated = any(s == 0 and n > 1 for n, s in zip(layout.shape, layout.strides, strict=True))
        if tracing.current:
            tracing.current[0].looked_at(view)
        self.view = view
        self.__array_interface__ = {
            "version": 3,
            "shape": layout.shape,
            "typestr": f"{'|' if size == 1 else _ORDER}{name[0]}{size}",
            "strides": tuple(s * size for s in layout.strides),
            "data": (view.address, repeated or not view.storage.writable),
        }
