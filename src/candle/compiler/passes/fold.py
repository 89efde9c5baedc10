"""Fold: steps on constants are run now."""

from __future__ import annotations

from ..._native import plans
from ...launch import call, params
from ...storage import Storage
from ..graph import Buffer, Graph, Kind, Node, view_of


def fold_constants(graph: Graph) -> Graph:
    """Runs the nodes that read constants alone; what they write becomes constants.

    A buffer is folded with all of its writers or not at all.
    """
    writers = graph.writers()
    outputs = {r.buffer for r in graph.outputs}
    folded: set[Buffer] = set()
    for node in graph.nodes:
        made = {r.buffer for r in node.writes()}
        together = [w for b in made for w in writers[b]]
        if not made & outputs and all(_foldable(w, folded | made) for w in together):
            folded |= made
    return _run(graph, folded)


def _foldable(node: Node, folded: set[Buffer]) -> bool:
    if node.varies:
        return False
    known = all(r.buffer.kind is Kind.CONSTANT or r.buffer in folded for r in node.reads())
    return known and all(r.buffer.kind is Kind.TEMP for r in node.writes())


def _run(graph: Graph, folded: set[Buffer]) -> Graph:
    left = []
    for node in graph.nodes:
        if any(r.buffer not in folded for r in node.writes()) or not node.writes():
            left.append(node)
            continue
        for ref in node.writes():
            _materialise(ref.buffer)
        call(
            plans.NAMES.index(node.op),
            [None if r is None else view_of(r) for r in (*node.outs, *node.ins)],
            params(*node.ints, f=node.floats),
        )
    for buffer in folded:
        buffer.kind = Kind.CONSTANT
    graph.nodes = left
    return graph


def _materialise(buffer: Buffer) -> None:
    if not isinstance(buffer.owner, Storage):
        buffer.owner = Storage(buffer.nbytes)
        buffer.address = buffer.owner.address
