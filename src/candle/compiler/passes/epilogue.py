"""Epilogue: what is done to each result of a blocked convolution becomes a part of it."""

from __future__ import annotations

from ..graph import Buffer, Graph, Kind, Node, Ref
from .values import as_tensor

_TAKERS = ("conv_block", "conv_winograd", "conv_block_depth")
_RELU, _BOUNDED = 1, 2  # of ints[6]
_END, _ADD = 6, 3


def absorb_epilogues(graph: Graph) -> Graph:
    """Takes a sum with another image, relu and a bound on it into the convolution before them."""
    readers, writers = graph.readers(), graph.writers()
    instead: dict[Node, Node] = {}  # the convolution that stands where its last follower stood
    taken, gone = set[Node](), set[Node]()
    for node in graph.nodes:
        if node.op not in _TAKERS or not _steady(node, writers):
            continue
        last = node
        while (after := _follower(node, readers, writers)) and after not in taken:
            if not _absorb(node, after):
                break
            taken.add(after)
            node.outs = after.outs
            gone.update((last, after))
            last = after
        if last is not node:
            gone.discard(last)
            instead[last] = node
    graph.nodes = [instead.get(n, n) for n in graph.nodes if n not in gone]
    return graph


def _steady(node: Node, writers: dict[Buffer, list[Node]]) -> bool:
    """Whether what it reads is the same at any later step."""
    return all(
        len(writers.get(r.buffer, ())) <= 2 and r.buffer.kind is not Kind.STATE
        for r in node.reads()
    )


def _follower(
    node: Node, readers: dict[Buffer, list[Node]], writers: dict[Buffer, list[Node]]
) -> Node | None:
    """The one step that reads all of the result, and writes an image like it."""
    (out,) = node.outs
    if out is None or out.buffer.kind is not Kind.TEMP:
        return None
    found = readers.get(out.buffer, [])
    if len(found) != 1 or len(found[0].outs) != 1:
        return None
    made = found[0].outs[0]
    if made is None or made.shape != out.shape or not made.covers():
        return None
    alone = len(writers[made.buffer]) == 1 and sum(r == out for r in found[0].ins) == 1
    return found[0] if alone else None


def _absorb(node: Node, after: Node) -> bool:
    out, end = node.outs[0], node.ints[_END]
    if after.op == "relu" and end == 0:
        node.ints = _ending(node, _RELU)
    elif after.op == "minimum" and end == _RELU and (most := _number(after, out)) is not None:
        node.ints, node.floats = _ending(node, _BOUNDED), (most, 0.0)
    elif after.op == "add" and end == 0 and len(node.ins) > _ADD and not node.ins[_ADD]:
        other = _other(after, out)
        if out is None or other is None or other.shape != out.shape or not other.covers():
            return False
        node.ins = (*node.ins[:_ADD], other)
    else:
        return False
    node.label = f"{node.label} {after.label}".strip()
    return True


def _ending(node: Node, end: int) -> tuple[int, ...]:
    return (*node.ints[:_END], end, *node.ints[_END + 1 :])


def _other(after: Node, out: Ref | None) -> Ref | None:
    left, right = after.ins
    return right if left == out else left


def _number(after: Node, out: Ref | None) -> float | None:
    """The single number beside the result, where it is known."""
    if after.ins[0] != out:
        return None
    other = after.ins[1]
    if other is None or other.buffer.kind is not Kind.CONSTANT or any(other.strides):
        return None
    one = Ref(other.buffer, other.offset, other.dtype, (), ())
    return float(as_tensor(one).to_scalar())
