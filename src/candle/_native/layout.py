"""Layout: dtype, shape and strides of a view, and where the library reads them (`cdl_layout`)."""

from __future__ import annotations

import struct

from ..dtype import DType
from ..errors import ShapeError
from ..shape import MAX_COUNT, MAX_RANK, Shape, count_of, is_contiguous, row_major, stored_bytes
from .load import ffi

_pack = struct.Struct(f"=ii{MAX_RANK}q{MAX_RANK}q").pack
_PAD = (0,) * MAX_RANK


class Layout:
    """Dtype, shape and strides (in elements) of a view. Immutable and shared: use `Layout.of`.

    `count` is the number of elements, `nbytes` what they take in row-major order, `contiguous`
    tells whether they lie so, without gaps. The library reads it at `address`.
    """

    __slots__ = (
        "address",
        "contiguous",
        "count",
        "dtype",
        "keeper",
        "nbytes",
        "rank",
        "shape",
        "strides",
    )

    def __init__(self, dtype: DType, shape: Shape, strides: Shape) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.rank = len(shape)
        if self.rank > MAX_RANK:
            raise ShapeError("shape", f"at most {MAX_RANK} axes", list(shape))
        self.count = count_of(shape)
        if self.count > MAX_COUNT:
            raise ShapeError("shape", "at most 2**62 elements", list(shape))
        self.nbytes = stored_bytes(dtype, shape)
        self.contiguous = is_contiguous(shape, strides)
        pad = _PAD[self.rank :]
        try:
            packed = _pack(dtype.number, self.rank, *shape, *pad, *strides, *pad)
        except struct.error as error:
            raise ShapeError("strides", "whole numbers of 64 bits", list(strides)) from error
        self.keeper = packed
        with ffi.from_buffer(packed) as seen:  # bytes never move
            self.address = int(ffi.cast("uintptr_t", seen))

    @staticmethod
    def of(dtype: DType, shape: Shape, strides: Shape | None = None) -> Layout:
        """The shared layout of these; row-major strides where none are given."""
        key = (dtype, shape, strides)
        found = _shared.get(key)
        if found is not None:
            return found
        layout = Layout(dtype, shape, row_major(shape) if strides is None else strides)
        if len(_shared) >= _SHARED_MOST:
            _shared.clear()  # live views hold their layouts themselves
        return _shared.setdefault(key, layout)

    def __repr__(self) -> str:
        return f"Layout({self.dtype}, {list(self.shape)}, strides={list(self.strides)})"


_SHARED_MOST = 16384
_shared: dict[tuple[DType, Shape, Shape | None], Layout] = {}
