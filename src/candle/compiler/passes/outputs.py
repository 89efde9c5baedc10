"""Outputs: each result is a whole, row-major buffer of its own, for the caller to bring."""

from __future__ import annotations

from ..graph import Buffer, Graph, Kind, Node, Ref


def separate_outputs(graph: Graph) -> Graph:
    """A temporary that is all of one result becomes its buffer; others are copied into new ones."""
    outputs = []
    for k, ref in enumerate(graph.outputs):
        taken = ref.buffer.kind is not Kind.TEMP
        if taken or not ref.covers():
            copy = Ref.whole(Buffer(Kind.OUTPUT, ref.nbytes), ref.dtype, ref.shape)
            graph.nodes.append(Node("copy", (copy,), (ref,), label="Output"))
            ref = copy
        ref.buffer.kind, ref.buffer.name = Kind.OUTPUT, f"output {k}"
        outputs.append(ref)
    graph.outputs = outputs
    return graph
