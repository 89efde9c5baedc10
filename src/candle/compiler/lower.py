"""Lower: a graph and its arena as the bytes of a plan (docs/reference/plan-format.md)."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..shape import MAX_RANK
from .graph import Buffer, Graph, Kind, Node, Ref
from .memory import ALIGN, Arena
from .size import Size, Symbol

VERSION = 1
ABSENT = 0xFFFFFFFF
_HEADER = struct.Struct("<8sIIQQ10I")
_OP = struct.Struct("<32s")
_BUFFER = struct.Struct("<IIQQ")
_LAYOUT = struct.Struct(f"<ii{MAX_RANK}q{MAX_RANK}q")
_VIEW = struct.Struct("<IIq")
_PARAMS = struct.Struct("<8q2d")
_STEP = struct.Struct("<4I")
_SYMBOL = struct.Struct("<qqII")
_PATCH = struct.Struct("<6I")
_TERM = struct.Struct("<q8s")
_SHAPE, _STRIDE, _OFFSET, _PARAM = range(4)  # what a patch changes
_MOST_SYMBOLS = 8


class Table:
    """Entries of one section: equal ones once where `share` is given."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.places: dict[Hashable, int] = {}

    def add(self, entry: bytes) -> int:
        """The number of a new entry."""
        self.entries.append(entry)
        return len(self.entries) - 1

    def share(self, entry: bytes, besides: Hashable = None) -> int:
        """The number of an entry, which may be there already; `besides` tells equal bytes apart."""
        found = self.places.get((entry, besides))
        if found is None:
            found = self.places[entry, besides] = self.add(entry)
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

    def __init__(self, graph: Graph, arena: Arena, symbols: Sequence[Symbol] = ()) -> None:
        self.graph, self.arena, self.given = graph, arena, symbols
        self.buffers = graph.buffers()
        self.text, self.constants = Text(), 0
        self.ops, self.layouts, self.views, self.params, self.steps = (Table() for _ in range(5))
        self.symbols, self.patches, self.terms = (Table() for _ in range(3))
        self.patched: set[tuple[int, int, int]] = set()

    def whole(self) -> bytes:
        """The plan."""
        for symbol in self.given:
            name = self.text.add(symbol.name)
            self.symbols.add(_SYMBOL.pack(symbol.least, symbol.most, name, 0))
        buffers = [self._buffer(b) for b in self.buffers]
        numbers = {b: k for k, b in enumerate(self.buffers)}
        for node in self.graph.nodes:
            self._step(node, numbers)
        tables = [self.ops, self.symbols, _table(buffers), self.layouts, self.views, self.params]
        tables += [self.steps, self.patches, self.terms]
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
        refs = (*node.outs, *node.ins)
        first = len(self.views.entries)
        for ref in refs:
            self.views.add(self._view(ref, numbers))
        op = self.ops.share(_OP.pack(node.op.encode()))
        packed = _PARAMS.pack(*node.ints, *node.floats)
        params = self._vary(self.params, packed, {_PARAM: node.ints})
        self.steps.add(_STEP.pack(op, first, len(refs), params))

    def _view(self, ref: Ref | None, numbers: dict[Buffer, int]) -> bytes:
        if ref is None:
            return _VIEW.pack(ABSENT, self.layouts.share(_LAYOUT.pack(0, 1, *(0,) * 16)), 0)
        pad = (0,) * (MAX_RANK - len(ref.shape))
        layout = (ref.dtype.number, len(ref.shape), *ref.shape, *pad, *ref.strides, *pad)
        varying = {_SHAPE: ref.shape, _STRIDE: ref.strides}
        number = self._vary(self.layouts, _LAYOUT.pack(*layout), varying)
        self._patch(_OFFSET, len(self.views.entries), 0, ref.offset)
        return _VIEW.pack(numbers[ref.buffer], number, ref.offset)

    def _vary(self, table: Table, entry: bytes, fields: Mapping[int, Sequence[int]]) -> int:
        """The number of an entry some of whose fields may be sizes."""
        sizes = tuple((target, tuple(fields[target])) for target in fields)
        varies = any(isinstance(n, Size) for _, values in sizes for n in values)
        number = table.share(entry, sizes if varies else None)
        for target, values in sizes:
            for field, value in enumerate(values):
                self._patch(target, number, field, value)
        return number

    def _patch(self, target: int, index: int, field: int, value: int) -> None:
        place = (target, index, field)
        if not isinstance(value, Size) or place in self.patched:
            return
        self.patched.add(place)
        first = len(self.terms.entries)
        for powers, factor in value.terms.items():
            self.terms.add(_TERM.pack(factor, bytes(powers).ljust(_MOST_SYMBOLS, b"\0")))
        self.patches.add(_PATCH.pack(*place, first, len(value.terms), 0))


def _table(entries: list[Any]) -> Table:
    table = Table()
    table.entries = entries
    return table


class PlanTables:
    """What a reader needs of a plan that C has checked: its buffers, symbols, and steps' names."""

    def __init__(self, plan: memoryview | bytes) -> None:
        _, _, at, _, _, *counts = _HEADER.unpack_from(plan)
        entries = (_OP, _SYMBOL, _BUFFER, _LAYOUT, _VIEW, _PARAMS, _STEP)
        found: list[list[tuple[Any, ...]]] = []
        for entry, count in zip(entries, counts, strict=False):
            found.append([entry.unpack_from(plan, at + k * entry.size) for k in range(count)])
            at += -(-count * entry.size // 8) * 8
        ops, symbols, buffers, *_, steps = found
        self.symbols = [(least, most) for least, most, _, _ in symbols]
        self.buffers = [(kind, nbytes, offset) for kind, _, nbytes, offset in buffers]
        names = [name.split(b"\0")[0].decode() for (name,) in ops]
        self.names = [names[step[0]] for step in steps]

    def of_kind(self, kind: Kind) -> list[tuple[int, int, int]]:
        """(number, bytes, offset) of the buffers of a kind."""
        found = enumerate(self.buffers)
        return [(k, nbytes, offset) for k, (is_, nbytes, offset) in found if is_ == kind.value]
