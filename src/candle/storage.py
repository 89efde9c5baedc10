"""Who owns bytes: `Storage`, and `View`, a window on one.

Owned memory comes from a caching pool, since page faults are dear on virtual machines: a freed
block is kept by its size and handed out again, up to `POOL_BYTES` in all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from . import _native
from ._native import Layout
from .dtype import DType
from .errors import DTypeError, ShapeError
from .shape import Shape

POOL_BYTES = 512 << 20

_block_sizes: dict[int, int] = {}  # as found before
_pool: dict[int, list[int]] = {}  # block size -> addresses of free blocks
_pooled = [0]  # bytes in the pool
_new: Any = object.__new__
_changes = [0]  # in-place changes so far, of all storages


def _block_size(nbytes: int) -> int:
    """Eight steps between powers of two: at most 1/8 of a block is waste."""
    step = 1 << max((nbytes - 1).bit_length() - 4, 6)
    size = -(-max(nbytes, 1) // step) * step
    if len(_block_sizes) < 4096:
        _block_sizes[nbytes] = size
    return size


class Storage:
    """A block of memory: owned, from the pool; or a buffer (map, array) kept alive by `owner`.

    `changed` numbers the last change in place (0: never); backward compares it with the number at
    which a record was made. `block` is the size of an owned block, 0 where another owns the memory.
    """

    __slots__ = ("address", "block", "changed", "owner", "writable")

    def __init__(self, nbytes: int) -> None:
        self.block = 0  # nothing to give back until there is an address
        self.owner: Any = None
        self.changed = 0
        self.writable = True
        size = _block_sizes.get(nbytes) or _block_size(nbytes)
        try:
            self.address = _pool[size].pop()
            _pooled[0] -= size
        except (KeyError, IndexError):
            self.address = _allocate(size)
        self.block = size

    @classmethod
    def of_buffer(cls, buffer: Any) -> tuple[Storage, int]:
        """Memory of another owner, used in place, writable where the buffer is; and its bytes."""
        try:
            view = memoryview(buffer)
            address, nbytes = _native.address_of(view)
        except (TypeError, ValueError, BufferError) as error:
            got = f"{type(buffer).__name__}: {error}"
            raise DTypeError("from_buffer", "a contiguous buffer of bytes", got) from error
        return cls.of_address(address, view, not view.readonly), nbytes

    @classmethod
    def of_address(cls, address: int, owner: Any, writable: bool) -> Storage:
        """Memory at an address that `owner` keeps alive."""
        self = cls.__new__(cls)
        self.block = self.changed = 0
        self.address, self.owner, self.writable = address, owner, writable
        return self

    # the defaults are looked up once, and are still there when the interpreter ends
    def __del__(
        self,
        pool: dict[int, list[int]] = _pool,
        pooled: list[int] = _pooled,
        most: int = POOL_BYTES,
        free: Callable[[int], None] = _native.free,
    ) -> None:
        size = self.block
        if not size:
            return
        if pooled[0] + size > most:
            free(self.address)
            return
        pooled[0] += size
        try:
            pool[size].append(self.address)
        except KeyError:
            pool.setdefault(size, []).append(self.address)

    def mark_changed(self) -> None:
        """Notes a change in place."""
        _changes[0] += 1
        self.changed = _changes[0]


def changes() -> int:
    """In-place changes so far, of all storages: what a record made now has seen."""
    return _changes[0]


def _allocate(size: int) -> int:
    """A new block; the pool is given up before there is no memory. Raises MemoryError."""
    address = _native.alloc(size)
    if not address and empty_pool():
        address = _native.alloc(size)
    if not address:
        raise MemoryError(f"no memory for {size:,} bytes")
    return address


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

    __slots__ = ("address", "layout", "offset", "storage")

    def __init__(self, storage: Storage, offset: int, layout: Layout) -> None:
        self.storage = storage
        self.offset = offset
        self.layout = layout
        self.address = storage.address + offset

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.layout.dtype

    def with_layout(self, shape: Shape, strides: Shape | None, elements: int = 0) -> View:
        """The same storage under another shape, `elements` further on."""
        dtype = self.layout.dtype
        view: View = _new(View)  # a view's __init__, written out: half of what a view costs
        view.layout = Layout.of(dtype, shape, strides)
        view.storage = storage = self.storage
        view.offset = offset = self.offset + elements * dtype.size
        view.address = storage.address + offset
        return view

    def bytes(self) -> memoryview:
        """The bytes of a contiguous view, in place. Raises ShapeError for others."""
        if not self.layout.contiguous:
            raise ShapeError("bytes", "a contiguous tensor", self.layout, "contiguous() copies")
        bytes_ = _bytes_at(self.storage, self.address, self.layout.nbytes)
        return bytes_ if self.storage.writable else bytes_.toreadonly()

    def __repr__(self) -> str:
        return f"View(offset={self.offset}, {self.layout})"


def _bytes_at(storage: Storage, address: int, size: int) -> memoryview:
    """Bytes at an address within a storage; the result keeps the storage alive."""
    array = (ctypes.c_ubyte * size).from_address(address)
    array.keeper = storage  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def new_view(dtype: DType, shape: Shape) -> View:
    """Owned, uninitialised, row-major memory for an output."""
    return new_like(Layout.of(dtype, shape))


def new_like(layout: Layout) -> View:
    """The same for an output of this dtype and shape, which costs less where it is row-major."""
    if not layout.contiguous:
        layout = Layout.of(layout.dtype, layout.shape)
    view: View = _new(View)
    view.layout = layout
    view.storage = storage = Storage(layout.nbytes)
    view.offset = 0
    view.address = storage.address
    return view
