"""Who owns bytes: `Storage`, and `View`, a window on one.

Owned memory comes from a caching pool, since page faults are dear on virtual machines: a freed
block is kept by its size and handed out again, up to `POOL_BYTES` in all.
"""

from __future__ import annotations

import ctypes
from typing import Any

from . import _native
from .dtype import DType
from .errors import ShapeError
from .shape import Layout, Shape

POOL_BYTES = 512 << 20

_pool: dict[int, list[int]] = {}
_pooled = [0]  # bytes in the pool


def _size_class(nbytes: int) -> int:
    """Eight steps between powers of two: at most 1/8 of a block is waste."""
    if nbytes <= 64:
        return 64
    step = 1 << max((nbytes - 1).bit_length() - 4, 6)
    return -(-nbytes // step) * step


class Storage:
    """A block of memory: owned, from the pool; or a buffer (map, array) kept alive by `owner`.

    `version` counts in-place changes; backward compares it with what a record saw.
    """

    __slots__ = ("address", "nbytes", "owner", "size", "version", "writable")

    def __init__(self, nbytes: int) -> None:
        self.size = size = _size_class(nbytes)
        self.nbytes = nbytes
        self.owner: Any = None
        self.version = 0
        self.writable = True
        blocks = _pool.get(size)
        if blocks:
            try:
                self.address = blocks.pop()
                _pooled[0] -= size
                return
            except IndexError:  # another thread took the last one
                pass
        self.address = 0
        self.address = _native.alloc(size)

    @classmethod
    def of_buffer(cls, buffer: Any) -> Storage:
        """Memory of another owner, used in place; writable where the buffer is."""
        self = cls.__new__(cls)
        self.size = 0
        self.version = 0
        view = memoryview(buffer)
        self.writable = not view.readonly
        self.address, self.nbytes, self.owner = _native.address_of(view)
        return self

    @classmethod
    def of_address(cls, address: int, nbytes: int, owner: Any, writable: bool) -> Storage:
        """Memory at an address that `owner` keeps alive."""
        self = cls.__new__(cls)
        self.size = 0
        self.version = 0
        self.address, self.nbytes, self.owner, self.writable = address, nbytes, owner, writable
        return self

    def __del__(self, pool: Any = _pool, pooled: Any = _pooled, most: int = POOL_BYTES) -> None:
        size = self.size
        if not size or not self.address:
            return
        if pooled[0] + size <= most:
            pooled[0] += size
            blocks = pool.get(size)
            if blocks is None:
                blocks = pool.setdefault(size, [])
            blocks.append(self.address)
        else:
            _native.free(self.address)


def empty_pool() -> int:
    """Gives the pool's memory back to the system; answers how many bytes."""
    total = 0
    for size, blocks in list(_pool.items()):
        while blocks:
            _native.free(blocks.pop())
            total += size
            _pooled[0] -= size
    return total


class View:
    """A window on a storage: `offset` in bytes, and a layout. It knows its dtype and device."""

    __slots__ = ("address", "layout", "native", "offset", "storage")

    def __init__(self, storage: Storage, offset: int, layout: Layout) -> None:
        self.storage = storage
        self.offset = offset
        self.layout = layout
        self.address = storage.address + offset
        native = layout.native
        self.native = native[0] if native else _native.layout_address(layout)

    @property
    def dtype(self) -> DType:
        return self.layout.dtype

    def with_layout(self, shape: Shape, strides: Shape | None, elements: int = 0) -> View:
        """The same storage under another shape, `elements` further on."""
        layout = Layout.of(self.layout.dtype, shape, strides)
        return View(self.storage, self.offset + elements * layout.dtype.size, layout)

    def bytes(self) -> memoryview:
        """The bytes of a contiguous view, in place. Raises ShapeError for others."""
        if not self.layout.contiguous:
            raise ShapeError("bytes", "a contiguous tensor", self.layout, "contiguous() copies")
        dtype = self.layout.dtype
        size = stored_bytes(dtype, self.layout.shape)
        bytes_ = _bytes_at(self.storage, self.address, size)
        return bytes_ if self.storage.writable else bytes_.toreadonly()

    def __repr__(self) -> str:
        return f"View(offset={self.offset}, {self.layout})"


def _bytes_at(storage: Storage, address: int, size: int) -> memoryview:
    """Bytes at an address within a storage; the result keeps the storage alive."""
    array = (ctypes.c_ubyte * size).from_address(address)
    array.keeper = storage  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def stored_bytes(dtype: DType, shape: Shape) -> int:
    """Bytes that a contiguous tensor takes; `f32x16` pads its rows to a multiple of 16."""
    if dtype is DType.F32X16:
        rows, width = shape
        return -(-rows // 16) * 16 * width * 4
    count = 1
    for n in shape:
        count *= n
    return dtype.nbytes(count)


def new_view(dtype: DType, shape: Shape) -> View:
    """Owned, uninitialised, row-major memory for an output."""
    layout = Layout.of(dtype, shape)
    if dtype.block == 1 and dtype is not DType.F32X16:
        return View(Storage(layout.count * dtype.size), 0, layout)
    return View(Storage(stored_bytes(dtype, shape)), 0, layout)
