"""Lower: a graph and its arena as the bytes of a plan (docs/reference/plan-format.md)."""

from __future__ import annotations

import struct
from collections.abc import Hashable
from typing import Any

from ..shape import MAX_RANK
from .graph import Buffer, Graph, Kind, Node, Ref
from .memory import ALIGN, Arena

VERSION = 1
ABSENT = 0xFFFFFFFF
_HEADER = struct.Struct("<8sIIQQ10I")
_OP = struct.Struct("<32s")
_BUFFER = struct.Struct("<IIQQ")
_LAYOUT = struct.Struct(f"<ii{MAX_RANK}q{MAX_RANK}q")
_VIEW = struct.Struct("<IIq")
_PARAMS = struct.Struct("<8q2d")
_STEP = struct.Struct("<4I")


class Table:
    """Entries of one section: equal ones once where `share` is given."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.places: dict[Hashable, int] = {}

    def add(self, entry: bytes) -> int:
        """The number of a new entry."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def share(self, entry: bytes) -> int:
        """The number of an entry, which may be there already."""
        found = self.places.get(entry)
        if found is None:
            found = self.places[entry] = self.add(entry)
        return found

    def section(self) -> bytes:
        """All entries, padded to a multiple of 8."""
        whole = b"".join(self.entries)
        return whole + bytes(-len(whole) % 8)


class Text:
    """Names, each ended by a zero."""

    def __init__(self) -> None:
        self.whole = bytearray()
        self.places: dict[str, int] = {}

    def add(self, name: str) -> int:
        """Where a name begins."""
        if name not in self.places:
            self.places[name] = len(self.whole)
            self.whole += name.encode() + b"\0"
        return self.places[name]


class Lowering:
    """One graph on its way to bytes; `buffers` are numbered as the plan has them."""

    def __init__(self, graph: Graph, arena: Arena) -> None:
        self.graph, self.arena = graph, arena
        self.buffers = graph.buffers()
        self.text, self.constants = Text(), 0
        self.ops, self.layouts, self.views, self.params, self.steps = (Table() for _ in range(5))

    def whole(self) -> bytes:
        """The plan."""
        buffers = [self._buffer(b) for b in self.buffers]
        numbers = {b: k for k, b in enumerate(self.buffers)}
        for node in self.graph.nodes:
            self._step(node, numbers)
        tables = [self.ops, Table(), _table(buffers), self.layouts, self.views, self.params]
        tables += [self.steps, Table(), Table()]
        body = b"".join(t.section() for t in tables)
        body += bytes(self.text.whole) + bytes(-len(self.text.whole) % 8)
        counts = [*(len(t.entries) for t in tables), len(self.text.whole)]
        size = _HEADER.size + len(body)
        head = (b"CDLPLAN\0", VERSION, _HEADER.size, size, self.arena.nbytes)
        return _HEADER.pack(*head, *counts) + body

    def _buffer(self, buffer: Buffer) -> bytes:
        offset = self.arena.offsets.get(buffer, 0)
        if buffer.kind in (Kind.CONSTANT, Kind.STATE):
            offset = self.constants
            self.constants += -(-buffer.nbytes // ALIGN) * ALIGN
        return _BUFFER.pack(buffer.kind.value, self.text.add(buffer.name), buffer.nbytes, offset)

    def _step(self, node: Node, numbers: dict[Buffer, int]) -> None:
        views = [self._view(ref, numbers) for ref in (*node.outs, *node.ins)]
        first = self.views.add(views[0])
        for view in views[1:]:
            self.views.add(view)
        op = self.ops.share(_OP.pack(node.op.encode()))
        params = self.params.share(_PARAMS.pack(*node.ints, *node.floats))
        self.steps.add(_STEP.pack(op, first, len(views), params))

    def _view(self, ref: Ref | None, numbers: dict[Buffer, int]) -> bytes:
        if ref is None:
            return _VIEW.pack(ABSENT, self.layouts.share(_LAYOUT.pack(0, 1, *(0,) * 16)), 0)
        pad = (0,) * (MAX_RANK - len(ref.shape))
        layout = (ref.dtype.number, len(ref.shape), *ref.shape, *pad, *ref.strides, *pad)
        return _VIEW.pack(
            numbers[ref.buffer], self.layouts.share(_LAYOUT.pack(*layout)), ref.offset
        )


def _table(entries: list[Any]) -> Table:
    table = Table()
    table.entries = entries
    return table
