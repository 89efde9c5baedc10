"""Dynamic: sizes that vary from call to call, as symbols.

The function is traced at several sizes. Its traces have the same steps; each integer in them (a
size, a stride, an offset, a parameter) is fitted as a polynomial of the symbols, and more traces
than factors say whether it is one. Nothing else may depend on a size.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from ..dtype import DType
from ..errors import OptionError, TraceError
from ..tensor import Tensor
from .graph import Buffer, Graph, Kind, Node, Ref, view_of
from .size import MOST_DEGREE, Symbol, fitted

CHECKS = 2  # traces beyond those that a polynomial takes


Place = tuple[int | str, int | None]  # of an argument, and the axis where it is a tensor


class Dynamic:
    """Where symbols stand: in axes of tensor arguments, or for whole numbers.

    `given`: argument (its place, or its name) to a name, `(name, least, most)` or a `Symbol`, or
    for a tensor a mapping of axes to these. A name alone stands for 1 up to the example's size.
    """

    def __init__(self, given: Mapping[Any, Any], args: Sequence[Any], options: Mapping[str, Any]):
        self.places: dict[Place, str] = {}
        self.symbols: dict[str, Symbol] = {}
        for key, value in given.items():
            example = _argument(key, args, options)
            if isinstance(example, Tensor):
                if not isinstance(value, Mapping):
                    raise OptionError("dynamic", "axes of a tensor to names", value)
                for axis, name in value.items():
                    if not isinstance(axis, int) or not 0 <= axis < example.rank:
                        raise OptionError("dynamic", f"an axis of {list(example.shape)}", axis)
                    self._add((key, axis), name, example.shape[axis])
            elif type(example) is int:
                self._add((key, None), value, example)
            else:
                wanted = "a tensor or a whole number, not within a list"
                raise OptionError("dynamic", wanted, type(example).__name__)

    @classmethod
    def of(cls, places: Mapping[Place, str], symbols: Mapping[str, Symbol]) -> Dynamic:
        """What another one had."""
        made = cls({}, (), {})
        made.places, made.symbols = dict(places), dict(symbols)
        return made

    def _add(self, place: Place, given: Any, size: int) -> None:
        if isinstance(given, str):
            given = self.symbols.get(given, Symbol(given, min(1, size), size))
        elif isinstance(given, tuple) and len(given) == 3:
            given = Symbol(*given)
        if not isinstance(given, Symbol):
            raise OptionError("dynamic", "a name, (name, least, most) or a Symbol", given)
        if self.symbols.setdefault(given.name, given) != given:
            raise OptionError("dynamic", f"one meaning of {given.name}", given)
        self.places[place] = given.name

    @property
    def names(self) -> list[str]:
        """The symbols, in order."""
        return list(self.symbols)

    def points(self) -> list[tuple[int, ...]]:
        """Values of the symbols to trace at: the greatest first."""
        symbols = list(self.symbols.values())
        wanted = comb(MOST_DEGREE + len(symbols), len(symbols)) + CHECKS
        ranges = [range(min(max(s.least, 2), s.most), s.most + 1) for s in symbols]
        draw = random.Random(0)
        found = dict.fromkeys([tuple(s.most for s in symbols)])
        for _ in range(100 * wanted):
            found[tuple(draw.choice(r) for r in ranges)] = None
            if len(found) == wanted:
                break
        return list(found)

    def values(self, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[int, ...]:
        """The symbols' values of a call. Raises OptionError for two of one, or out of range."""
        found: dict[str, int] = {}
        for (key, axis), name in self.places.items():
            given = _argument(key, args, options)
            fits = isinstance(given, Tensor) and (axis or 0) < given.rank
            if not (type(given) is int if axis is None else fits):
                raise OptionError("compiled function", f"{name} as in the example", given)
            size = given if axis is None else given.shape[axis]
            symbol = self.symbols[name]
            if found.setdefault(name, size) != size or not symbol.least <= size <= symbol.most:
                wanted = f"one {name} from {symbol.least} to {symbol.most}"
                raise OptionError("compiled function", wanted, size)
        return tuple(found[name] for name in self.symbols)

    def hidden(self, args: Sequence[Any], options: Mapping[str, Any]) -> tuple[Any, Any]:
        """The arguments with numbers that are symbols as their names."""
        return self.at(args, options, {})

    def at(
        self, args: Sequence[Any], options: Mapping[str, Any], values: Mapping[str, int]
    ) -> tuple[Any, Any]:
        """The arguments at other sizes; examples that are too short come around again."""
        given: dict[int | str, Any] = dict(enumerate(args))
        given.update(options)
        for (key, axis), name in self.places.items():
            if axis is None:
                given[key] = values.get(name, name)
            elif name in values:
                given[key] = _resized(given[key], axis, values[name])
        return tuple(given[k] for k in range(len(args))), {k: given[k] for k in options}


def _argument(key: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    if type(key) is int and 0 <= key < len(args):
        return args[key]
    if key in options:
        return options[key]
    raise OptionError("dynamic", f"an argument: 0 to {len(args) - 1}, or {list(options)}", key)


def _resized(x: Tensor, axis: int, size: int) -> Tensor:
    if x.shape[axis] == size:
        return x
    if not x.shape[axis]:
        raise OptionError("dynamic", "an example with elements", list(x.shape))
    if size < x.shape[axis]:
        return x.narrow(axis, 0, size)
    return x.index_select(Tensor.arange(size).rem(x.shape[axis]), axis)


# -- many traces as one ----------------------------------------------------------------------------


def merged(graphs: Sequence[Graph], points: Sequence[tuple[int, ...]]) -> Graph:
    """The first graph, with each integer that varies as a polynomial.

    Raises TraceError where the graphs differ in more, and names the line.
    """
    return _Merge(graphs, points).graph()


class _Merge:
    def __init__(self, graphs: Sequence[Graph], points: Sequence[tuple[int, ...]]) -> None:
        self.graphs, self.points = graphs, points
        self.first: dict[Buffer, Buffer] = {}  # of the first graph, by another's

    def graph(self) -> Graph:
        counts = {len(g.nodes) for g in self.graphs}
        if len(counts) != 1 or len({len(g.outputs) for g in self.graphs}) != 1:
            raise _varies("as many steps at every size", sorted(counts), self.graphs[0].nodes[-1:])
        nodes = [self._node(nodes) for nodes in zip(*(g.nodes for g in self.graphs), strict=True)]
        ends = [
            [self._ref(refs, []) for refs in zip(*group, strict=True)]
            for group in ([g.inputs for g in self.graphs], [g.outputs for g in self.graphs])
        ]
        for renewals in zip(*(g.renewals for g in self.graphs), strict=True):
            self._ref([r.ref for r in renewals], [])
        inputs, outputs = ([r for r in refs if r is not None] for refs in ends)
        return Graph(nodes, inputs, outputs, self.graphs[0].renewals)

    def _node(self, nodes: Sequence[Node]) -> Node:
        one = nodes[0]
        same = {(n.op, len(n.outs), len(n.ins), n.floats) for n in nodes}
        if len(same) != 1:
            raise _varies("the same steps at every size", sorted({n.op for n in nodes}), nodes)
        outs, ins = (
            tuple(self._ref(refs, nodes) for refs in zip(*group, strict=True))
            for group in ([n.outs for n in nodes], [n.ins for n in nodes])
        )
        ints = tuple(self._fit(v, nodes) for v in zip(*(n.ints for n in nodes), strict=True))
        return Node(one.op, outs, ins, ints, one.floats, one.label, one.place)

    def _ref(self, refs: Sequence[Ref | None], nodes: Sequence[Node]) -> Ref | None:
        one = refs[0]
        if one is None or any(r is None for r in refs):
            if any(r is not None for r in refs):
                raise _varies("the same views at every size", "an absent one", nodes)
            return None
        there = [r for r in refs if r is not None]
        if len({(r.dtype, len(r.shape)) for r in there}) != 1:
            raise _varies("the same dtypes and axes at every size", there, nodes)
        for r in there:
            self._same_buffer(one.buffer, r.buffer, nodes)
        shape, strides = (
            tuple(self._fit(v, nodes) for v in zip(*group, strict=True))
            for group in ([r.shape for r in there], [r.strides for r in there])
        )
        offset = self._fit([r.offset for r in there], nodes)
        return Ref(one.buffer, offset, one.dtype, shape, strides)

    def _same_buffer(self, one: Buffer, other: Buffer, nodes: Sequence[Node]) -> None:
        known = self.first.setdefault(other, one)
        constant = one.kind in (Kind.CONSTANT, Kind.STATE)
        if known is not one or one.kind is not other.kind:
            raise _varies("the same memory at every size", f"{one.kind}, {other.kind}", nodes)
        if constant and one.address != other.address and _contents(one) != _contents(other):
            raise _varies("the same constants at every size", "others", nodes)

    def _fit(self, values: Sequence[int], nodes: Sequence[Node]) -> int:
        found = fitted(self.points, values)
        if found is None:
            pairs = [f"{p}: {v}" for p, v in zip(self.points, values, strict=True)]
            raise _varies("sums and products of dynamic sizes", ", ".join(pairs), nodes)
        return found


def _contents(buffer: Buffer) -> bytes:
    return bytes(view_of(Ref.whole(buffer, DType.U8, (buffer.nbytes,))).bytes())


def _varies(wanted: str, got: object, nodes: Sequence[Node]) -> TraceError:
    place = f" at {nodes[0].place}" if nodes else " of an argument or a result"
    hint = "make what varies an argument, or compile for one size"
    return TraceError("compile", wanted, f"{got}{place}", hint)
