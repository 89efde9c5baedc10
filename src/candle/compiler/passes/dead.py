"""Dead: steps whose results nobody sees."""

from __future__ import annotations

from ..graph import Buffer, Graph


def remove_dead(graph: Graph) -> Graph:
    """Without nodes that write only what is neither read later nor kept."""
    needed: set[Buffer] = graph.kept()
    alive = []
    for node in reversed(graph.nodes):
        if any(ref.buffer in needed for ref in node.writes()):
            alive.append(node)
            needed.update(ref.buffer for ref in node.reads())
    graph.nodes = alive[::-1]
    return graph
