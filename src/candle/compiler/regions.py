"""Regions: which buffer each address of a trace belongs to."""

from __future__ import annotations

import bisect

from .._native import plans
from ..dtype import DType
from ..errors import TraceError
from ..storage import Storage, View
from .graph import Buffer, Graph, Kind, Ref, extent

Owner = tuple[Storage, int, int]  # with the first and the end address that are known to be its
_DTYPES = {d.number: d for d in DType}


def block_at(made: list[tuple[int, int]], address: int) -> int | None:
    """The place of the block that an address lies in."""
    at = bisect.bisect_right(made, (address, 1 << 62)) - 1
    inside = at >= 0 and address < made[at][0] + made[at][1]
    return at if inside else None


class Regions:
    """Buffers by address: a block of the pool is one; so is other memory where views of it meet.

    `made`: the blocks, (address, bytes), sorted; `owners`: who may have the other memory.
    """

    def __init__(
        self,
        steps: list[tuple[plans.RawStep, str, str]],
        made: list[tuple[int, int]],
        owners: list[Owner],
    ) -> None:
        self.made, self.owners = made, owners
        self.blocks: dict[int, Buffer] = {}  # by place in `made`
        found = [_span(v) for step, *_ in steps for v in step.views if v.address]
        found += [(first, end) for _, first, end in owners]  # whole, whichever part steps see
        foreign = sorted(span for span in found if block_at(made, span[0]) is None)
        self.starts: list[int] = []
        self.foreign: list[Buffer] = []
        for start, end in foreign:
            if self.foreign and start < self.starts[-1] + self.foreign[-1].nbytes:
                last = self.foreign[-1]
                last.nbytes = max(last.nbytes, end - self.starts[-1])
            else:
                self.starts.append(start)
                self.foreign.append(Buffer(Kind.CONSTANT, end - start, "", start))

    def at(self, address: int) -> tuple[Buffer, int]:
        """The buffer at an address, and where that buffer begins."""
        at = block_at(self.made, address)
        if at is not None:
            start, nbytes = self.made[at]
            buffer = self.blocks.setdefault(at, Buffer(Kind.TEMP, nbytes, "", start))
            return buffer, start
        place = bisect.bisect_right(self.starts, address) - 1
        if place >= 0 and address < self.starts[place] + max(self.foreign[place].nbytes, 1):
            return self.foreign[place], self.starts[place]
        made = Buffer(Kind.CONSTANT, 0, "", address)  # an output that no step made, or no elements
        self.starts.insert(place + 1, address)
        self.foreign.insert(place + 1, made)
        return made, address

    def ref(self, view: plans.RawView) -> Ref | None:
        """A view of a step; None for an absent one."""
        if not view.address:
            return None
        buffer, start = self.at(view.address)
        return Ref(buffer, view.address - start, _DTYPES[view.dtype], view.shape, view.strides)

    def of_view(self, view: View) -> Ref:
        """A view of the engine."""
        buffer, start = self.at(view.address)
        layout = view.layout
        return Ref(buffer, view.address - start, layout.dtype, layout.shape, layout.strides)

    def settle(self, graph: Graph) -> None:
        """Says what each buffer is, and who keeps its memory alive."""
        written: set[Buffer] = set()
        for node in graph.nodes:
            for ref in node.reads():
                if ref.buffer.kind is Kind.TEMP and ref.buffer not in written:
                    ref.buffer.kind = Kind.CONSTANT  # as Python wrote it
            for ref in node.writes():
                written.add(ref.buffer)
                if ref.buffer.kind is Kind.CONSTANT:
                    ref.buffer.kind = Kind.STATE
        for ref in graph.outputs:
            if ref.buffer.kind is Kind.TEMP and ref.buffer not in written:
                ref.buffer.kind = Kind.CONSTANT
            ref.buffer.nbytes = max(ref.buffer.nbytes, ref.extent()[1])
        _fit(graph)
        for buffer in graph.buffers():
            if buffer.kind in (Kind.CONSTANT, Kind.STATE):
                self._own(buffer)

    def _own(self, buffer: Buffer) -> None:
        """Keeps alive whoever has the buffer's memory."""
        first, end = buffer.address, buffer.address + max(buffer.nbytes, 1)
        found = {id(s): s for s, a, b in self.owners if a < end and first < b}
        if not found:
            raise TraceError(
                "compile", "memory with a tensor that holds it", f"{buffer.kind} of none"
            )
        buffer.owner = list(found.values())


def owner_of(view: View) -> Owner:
    """A view's storage, as the owner of the bytes that the view sees."""
    layout = view.layout
    return view.storage, *extent(layout.dtype, layout.shape, layout.strides, view.address)


def _fit(graph: Graph) -> None:
    """A block of the pool is larger than what was asked for: the bytes that views see."""
    ends: dict[Buffer, int] = {}
    refs = [r for node in graph.nodes for r in node.refs()]
    for ref in (*refs, *graph.inputs, *(r.ref for r in graph.renewals), *graph.outputs):
        ends[ref.buffer] = max(ends.get(ref.buffer, 0), ref.extent()[1])
    for buffer, end in ends.items():
        buffer.nbytes = end


def _span(view: plans.RawView) -> tuple[int, int]:
    return extent(_DTYPES[view.dtype], view.shape, view.strides, view.address)
