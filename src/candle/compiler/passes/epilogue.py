"""Epilogue: what is done to each result of a blocked convolution becomes a part of it."""

from __future__ import annotations

from ..graph import Graph, Node, Ref
from .following import Followers
from .values import single_number

_TAKERS = ("conv_block", "conv_winograd", "conv_block_depth")
_RELU, _BOUNDED = 1, 2  # of ints[6]
_END, _ADD = 6, 3


def absorb_epilogues(graph: Graph) -> Graph:
    """Takes a sum with another image, relu and a bound on it into the convolution before them."""
    followers = Followers(graph)
    instead: dict[Node, Node] = {}  # the convolution that stands where its last follower stood
    taken, gone = set[Node](), set[Node]()
    position = {node: k for k, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        if node.op not in _TAKERS or not _steady(node, followers, position):
            continue
        last = node
        while (after := followers.of(node)) is not None and after not in taken:
            if not _absorb(node, after):
                break
            node.outs = after.outs
            taken.add(after)
            gone.update((last, after))
            last = after
        if last is not node:
            gone.discard(last)
            instead[last] = node
    graph.nodes = [instead.get(n, n) for n in graph.nodes if n not in gone]
    return graph


def _steady(node: Node, followers: Followers, position: dict[Node, int]) -> bool:
    """Whether all that it reads was written before it: then it may as well stand later."""
    return all(
        position[writer] < position[node]
        for ref in node.reads()
        for writer in followers.writers.get(ref.buffer, ())
    )


def _absorb(node: Node, after: Node) -> bool:
    out, end = node.outs[0], node.ints[_END]
    if out is None or after.outs[0] is None or after.outs[0].shape != out.shape:
        return False
    if after.op == "relu" and end == 0:
        node.ints = _ending(node, _RELU)
    elif after.op == "minimum" and end == _RELU and (most := _bound(after, out)) is not None:
        node.ints, node.floats = _ending(node, _BOUNDED), (most, 0.0)
    elif after.op == "add" and end == 0 and len(node.ins) > _ADD and not node.ins[_ADD]:
        other = _other(after, out)
        if other is None or other.shape != out.shape or not other.covers():
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


def _bound(after: Node, out: Ref) -> float | None:
    """The number that bounds a result from above, where it is known."""
    return single_number(after.ins[1]) if after.ins[0] == out else None
