"""Recording of steps, and plans: bytes that the library opens, binds and runs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..dtype import DType
from ..errors import FormatError, NativeError
from .calls import _address
from .kinds import OPS
from .layout import Layout
from .load import ffi, lib

NAMES = list(OPS)
WRITES: list[int] = [lib.cdl_op_writes(i) for i in range(len(NAMES))]
KEEPS: list[int] = [lib.cdl_op_keeps(i) for i in range(len(NAMES))]
MAY = lib.CDL_MAY

TAPE_BYTES = 1 << 28  # of address space: pages that nobody writes cost nothing
_DTYPES = {d.number: d for d in DType}
_HEAD = struct.Struct("=ii")
_VIEW = struct.Struct("=Qii8q8q")
_PARAMS = struct.Struct("=8q2d")


class RawView(NamedTuple):
    """A view as a step gave it: an address, 0 where absent."""

    address: int
    dtype: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class RawStep(NamedTuple):
    """One recorded call of `cdl_step`."""

    op: int
    views: list[RawView]
    ints: tuple[int, ...]
    floats: tuple[float, ...]


class Tape:
    """Context in which this thread's steps are written down and not run."""

    def __enter__(self) -> Tape:
        self._memory = lib.cdl_alloc(TAPE_BYTES)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        lib.cdl_free(self._memory)

    def start(self) -> None:
        """Records, from an empty tape on. Raises NativeError while another thread does."""
        self.read_to = 0
        if not self._memory or lib.cdl_record(self._memory, TAPE_BYTES) != lib.CDL_OK:
            raise NativeError("record", "memory, and one recording at a time", "another, or none")

    def stop(self) -> None:
        """Steps are run again; what was not read is lost."""
        lib.cdl_record(ffi.NULL, 0)

    def new(self) -> Iterator[RawStep]:
        """Steps recorded since this was last asked."""
        used = lib.cdl_recorded()
        data = ffi.buffer(self._memory, used)
        while self.read_to < used:
            step, self.read_to = _parse(data, self.read_to)
            yield step


def memory(address: int, nbytes: int) -> memoryview:
    """Bytes at an address that the caller keeps alive."""
    return memoryview(ffi.buffer(ffi.cast("char *", address), nbytes))


def run(step: RawStep) -> int:
    """Runs a recorded step; its status."""
    layouts = [Layout.of(_DTYPES[v.dtype], v.shape, v.strides) for v in step.views]
    pairs = [(v.address, x.address) for v, x in zip(step.views, layouts, strict=True)]
    flat = [number for pair in pairs for number in pair]
    views = struct.pack(f"={len(flat)}Q", *flat)
    return int(lib.cdl_step(step.op, views, len(pairs), _PARAMS.pack(*step.ints, *step.floats)))


def _parse(data: Any, at: int) -> tuple[RawStep, int]:
    op, n = _HEAD.unpack_from(data, at)
    at += _HEAD.size
    views = []
    for _ in range(n):
        address, dtype, rank, *numbers = _VIEW.unpack_from(data, at)
        views.append(RawView(address, dtype, tuple(numbers[:rank]), tuple(numbers[8 : 8 + rank])))
        at += _VIEW.size
    given = _PARAMS.unpack_from(data, at)
    return RawStep(op, views, given[:8], given[8:]), at + _PARAMS.size


class Bound:
    """A plan ready to run: its bytes, its tables for present sizes, and an address a buffer.

    Raises FormatError where the bytes break a rule of the format.
    """

    def __init__(self, plan: bytes | memoryview) -> None:
        self.plan = plan
        self._seen = ffi.from_buffer(plan)
        self._info = ffi.new("cdl_plan_info *")
        self._check(lib.cdl_plan_open(self._seen, len(self._seen), self._info))
        self.arena_bytes = int(self._info.arena)
        self.steps, self.buffers = self._info.steps, self._info.buffers
        self._tables = ffi.new("char[]", self._info.tables + 64)
        start = _address(self._tables)
        self._aligned = self._tables + (-start % 64)
        self._memory = ffi.new("void *[]", max(self.buffers, 1))
        self._failed = ffi.new("int32_t *")

    def bind(self, symbols: Sequence[int] = ()) -> None:
        """Fills the tables for values of the symbols. Raises FormatError where they do not fit."""
        values = ffi.new("int64_t[]", [*symbols] or [0])
        self._check(lib.cdl_plan_bind(self._seen, self._aligned, values, self._info))

    def place(self, buffer: int, address: int) -> None:
        """Says where a buffer lies."""
        self._memory[buffer] = ffi.cast("void *", address)

    def run(self) -> tuple[int, int]:
        """(status, the step that failed) of a run of all steps."""
        status = lib.cdl_plan_run(self._seen, self._aligned, self._memory, self._failed)
        return status, self._failed[0]

    def _check(self, status: int) -> None:
        if status:
            rule = ffi.string(self._info.rule).decode() if self._info.rule else "a plan"
            raise FormatError("plan", rule, f"not so at {self._info.place}")
