"""Who owns bytes: `Storage`, and `View`, a window on one.

Owned memory comes from a caching pool, since page faults are dear on virtual machines: a freed
block is kept by its size and handed out again, up to `CLASS_BYTES` of a size and, looked at
whenever `CHECK_BYTES` more came from the system, `POOL_BYTES` in all.

Release runs no Python: a Ctrl-C that falls into a `__del__` would be swallowed. The weak reference
that each storage holds to itself is put in the pool by the interpreter; one that falls out of the
pool, or is collected with its storage in a cycle, takes its memory with it.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import Any

from . import _native, tracing
from ._native import Layout
from .dtype import DType
from .errors import DTypeError, ShapeError
from .shape import Shape

POOL_BYTES = 512 << 20
CLASS_BYTES = 256 << 20
CHECK_BYTES = 32 << 20

_block_sizes: dict[int, int] = {}  # as found before
_pool: dict[int, deque[_Block]] = {}  # block size -> free blocks, the longest free one first
_asked = [0]  # bytes from the system since the pool was last looked at
_new: Any = object.__new__
_changes = [0]  # in-place changes so far, of all storages


def _block_size(nbytes: int) -> int:
    """Eight steps between powers of two: at most 1/8 of a block is waste."""
    step = 1 << max((nbytes - 1).bit_length() - 4, 6)
    size = -(-max(nbytes, 1) // step) * step
    if len(_block_sizes) < 4096:
        _block_sizes[nbytes] = size
    return size


class _Block(weakref.ref["Storage"]):
    """Owned memory, and the weak reference to the storage that has it: its pool calls when it goes.

    `memory`: the address, and what frees it when it goes.
    """

    __slots__ = ("memory",)
    memory: tuple[int, Any]


class Storage:
    """Memory and its `owner`: a block of the pool, or the buffer (map, array) that it lies in.

    `changed` numbers the last change in place (0: never); backward compares it with the number at
    which a record was made.
    """

    __slots__ = ("__weakref__", "address", "changed", "owner", "writable")

    def __init__(self, nbytes: int) -> None:
        self.changed = 0
        self.writable = True
        size = _block_sizes.get(nbytes) or _block_size(nbytes)
        try:
            free = _pool[size]
            memory = free.pop().memory
        except (KeyError, IndexError):
            memory = _allocate(size)
            free = _pool.setdefault(size, deque(maxlen=CLASS_BYTES // size))
        self.address = memory[0]
        block = _Block(self, free.append)
        block.memory = memory
        self.owner: Any = block

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
        self.changed = 0
        self.address, self.owner, self.writable = address, owner, writable
        if tracing.current:
            tracing.current[0].owned(self)
        return self

    def mark_changed(self) -> None:
        """Notes a change in place."""
        _changes[0] += 1
        self.changed = _changes[0]
        if tracing.current:
            tracing.current[0].owned(self)


def changes() -> int:
    """In-place changes so far, of all storages: what a record made now has seen."""
    return _changes[0]


def _allocate(size: int) -> tuple[int, Any]:
    """New memory; the pool is given up before there is none. Raises MemoryError."""
    _asked[0] += size
    if _asked[0] >= CHECK_BYTES:
        _asked[0] = 0
        if pooled() > POOL_BYTES:
            empty_pool(POOL_BYTES // 2)
    memory = _native.alloc(size)
    if not memory and empty_pool():
        memory = _native.alloc(size)
    if not memory:
        raise MemoryError(f"no memory for {size:,} bytes")
    if tracing.current:
        tracing.current[0].allocated(memory[0], size)
    return memory


def pooled() -> int:
    """Bytes in the pool."""
    return sum(size * len(blocks) for size, blocks in list(_pool.items()))


class _Hoard(dict[int, Any]):
    """A pool that hands nothing out: freed blocks stay until it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[_Block] = []

    def setdefault(self, size: int, default: Any = None) -> Any:
        return self.kept


class distinct_memory:
    """Context in which no address is used twice, as a tracer needs to tell storages apart.

    `hoard.kept` are the blocks that were freed.
    """

    def __enter__(self) -> None:
        global _pool
        self.hoard = _Hoard()
        self.before, _pool = _pool, self.hoard

    def __exit__(self, *_: object) -> None:
        global _pool
        _pool = self.before


def empty_pool(most: int = 0) -> int:
    """Gives all but `most` of the pool's memory back, greatest blocks first; answers how much."""
    before = left = pooled()
    for size in sorted(_pool, reverse=True):
        blocks = _pool[size]
        while left > most and blocks:
            blocks.popleft()
            left -= size
    return before - left


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
        if tracing.current:
            tracing.current[0].looked_at(self)
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
