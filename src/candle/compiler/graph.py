"""The graph: nodes are native steps, in order; their views lie on buffers.

Steps are those that eager calls make (`cdl_step`), so a plan computes what eager computes, and no
shape rule is written twice. A view (`Ref`) is a window on a buffer, as `storage.View` is on a
storage; movement of data that moves nothing has no node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from .._native import OPS, Layout, plans
from ..dtype import DType
from ..shape import Shape, count_of, row_major, stored_bytes
from ..storage import Storage, View
from .size import Size


class Kind(Enum):
    """What a buffer is; the value is the plan format's, `TEMP` being one of the arena."""

    TEMP = 0
    CONSTANT = 1
    INPUT = 2
    OUTPUT = 3
    STATE = 4


@dataclass(eq=False)
class Buffer:
    """Bytes that live through a run, or outside of it.

    `address`: where they lie in this process now, of a constant, a state, or a trace's memory;
    `owner` keeps that alive.
    """

    kind: Kind
    nbytes: int
    name: str = ""
    address: int = 0
    owner: Any = None


@dataclass(frozen=True)
class Ref:
    """A window on a buffer: `offset` in bytes, `strides` in elements; each may be a `Size`."""

    buffer: Buffer
    offset: int
    dtype: DType
    shape: Shape
    strides: Shape

    @classmethod
    def whole(cls, buffer: Buffer, dtype: DType, shape: Shape) -> Ref:
        """All of a buffer, row-major."""
        return cls(buffer, 0, dtype, shape, row_major(shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, row-major."""
        return stored_bytes(self.dtype, self.shape)

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie row-major, without gaps."""
        if not count_of(self.shape):
            return True
        plain = zip(self.shape, self.strides, row_major(self.shape), strict=True)
        return all(n == 1 or s == w for n, s, w in plain)

    def extent(self) -> tuple[int, int]:
        """First and end byte within the buffer."""
        return extent(self.dtype, self.shape, self.strides, self.offset)

    def covers(self) -> bool:
        """Whether it is all of its buffer, each byte once."""
        return self.offset == 0 and self.contiguous and self.nbytes >= self.buffer.nbytes

    def meets(self, other: Ref) -> bool:
        """Whether both may share bytes."""
        if self.buffer is not other.buffer:
            return False
        ends = (a, b), (c, d) = self.extent(), other.extent()
        varies = any(isinstance(end, Size) for both in ends for end in both)
        return varies or (a < d and c < b)


def extent(dtype: DType, shape: Shape, strides: Shape, offset: int) -> tuple[int, int]:
    """First and end byte of elements that lie so."""
    if not count_of(shape):
        return offset, offset
    if dtype.is_block:
        return offset, offset + stored_bytes(dtype, shape)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return offset + low * dtype.size, offset + (high + 1) * dtype.size


@dataclass(eq=False)
class Node:
    """One step: `outs` are the views it writes, `ins` those it only reads; None where absent.

    `label` names the record that asked for it, `place` the user's line.
    """

    op: str
    outs: tuple[Ref | None, ...]
    ins: tuple[Ref | None, ...]
    ints: tuple[int, ...] = (0,) * 8
    floats: tuple[float, ...] = (0.0, 0.0)
    label: str = ""
    place: str = ""

    @property
    def keeps(self) -> int:
        """How many outputs are read as well; `plans.MAY` where the output may be an input."""
        return plans.KEEPS[OPS[self.op]]

    @property
    def varies(self) -> bool:
        """Whether it depends on dynamic sizes."""
        numbers = [n for r in self.refs() for n in (r.offset, *r.shape, *r.strides)]
        return any(isinstance(n, Size) for n in (*numbers, *self.ints))

    def writes(self) -> list[Ref]:
        """Views it writes."""
        return [r for r in self.outs if r is not None]

    def reads(self) -> list[Ref]:
        """Views it reads, those that it changes in place among them."""
        kept = self.outs[: max(self.keeps, 0)]
        return [r for r in (*kept, *self.ins) if r is not None]

    def refs(self) -> list[Ref]:
        """All views."""
        return [r for r in (*self.outs, *self.ins) if r is not None]


@dataclass(eq=False)
class Renewal:
    """An input that Python makes before each run; `first` is the view for the first one."""

    make: Callable[[], View]
    first: View | None
    ref: Ref


@dataclass(eq=False)
class Graph:
    """Nodes in order; what comes in and goes out, each on a buffer of its own."""

    nodes: list[Node]
    inputs: list[Ref]
    outputs: list[Ref]
    renewals: list[Renewal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what passes did, for people

    def buffers(self) -> list[Buffer]:
        """Every buffer once: inputs, outputs, then as nodes meet them."""
        ends = (*self.inputs, *(r.ref for r in self.renewals), *self.outputs)
        found: dict[Buffer, None] = {r.buffer: None for r in ends}
        for node in self.nodes:
            found.update((r.buffer, None) for r in node.refs())
        return list(found)

    def writers(self) -> dict[Buffer, list[Node]]:
        """Nodes that write each buffer, in order."""
        return _by_buffer((node, node.writes()) for node in self.nodes)

    def readers(self) -> dict[Buffer, list[Node]]:
        """Nodes that read each buffer, in order."""
        return _by_buffer((node, node.reads()) for node in self.nodes)

    def kept(self) -> set[Buffer]:
        """Buffers whose contents are seen after a run."""
        return {r.buffer for r in self.outputs} | {
            b for b in self.buffers() if b.kind in (Kind.STATE, Kind.OUTPUT)
        }


def view_of(ref: Ref) -> View:
    """A view of memory that exists in this process."""
    storage = Storage.of_address(ref.buffer.address, ref.buffer.owner, True)
    return View(storage, ref.offset, Layout.of(ref.dtype, ref.shape, ref.strides))


def _by_buffer(found: Iterable[tuple[Node, list[Ref]]]) -> dict[Buffer, list[Node]]:
    nodes: dict[Buffer, list[Node]] = {}
    for node, refs in found:
        for buffer in {r.buffer: None for r in refs}:
            nodes.setdefault(buffer, []).append(node)
    return nodes


def moved(ref: Ref, buffers: dict[Buffer, Buffer]) -> Ref:
    """The same window on the buffer that stands for its own."""
    there = buffers.get(ref.buffer)
    return ref if there is None else Ref(there, ref.offset, ref.dtype, ref.shape, ref.strides)


def replaced(graph: Graph, buffers: dict[Buffer, Buffer]) -> Iterator[Node]:
    """The nodes with some buffers replaced by others."""
    for node in graph.nodes:
        node.outs = tuple(None if r is None else moved(r, buffers) for r in node.outs)
        node.ins = tuple(None if r is None else moved(r, buffers) for r in node.ins)
        yield node
