"""Following: which step alone goes on with a result, so that the step before may do its work."""

from __future__ import annotations

from ..graph import Graph, Kind, Node


class Followers:
    """Of a graph as it was; a pass that merges steps keeps a list of those that are gone."""

    def __init__(self, graph: Graph) -> None:
        self.readers, self.writers = graph.readers(), graph.writers()
        self.kept = graph.kept()

    def of(self, node: Node) -> Node | None:
        """The only reader of a node's only result, if it reads all of that, once, and writes one
        result of the same dtype and size, which nobody else writes."""
        out = node.outs[0] if len(node.outs) == 1 else None
        if out is None or out.buffer.kind is not Kind.TEMP or out.buffer in self.kept:
            return None
        found = self.readers.get(out.buffer, [])
        if len(found) != 1 or len(self.writers[out.buffer]) != 1 or len(found[0].outs) != 1:
            return None
        read = [r for r in found[0].ins if r is not None and r.buffer is out.buffer]
        made = found[0].outs[0]
        if len(read) != 1 or not read[0].covers() or made is None or not made.covers():
            return None
        alone = made.buffer.kind is Kind.TEMP and len(self.writers[made.buffer]) == 1
        alike = made.dtype is read[0].dtype is out.dtype and made.nbytes == out.nbytes
        return found[0] if alone and alike else None
