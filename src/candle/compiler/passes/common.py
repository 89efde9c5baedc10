"""Common: a step that computes again what is there already."""

from __future__ import annotations

from typing import Any

from ..graph import Buffer, Graph, Kind, Node, Ref, replaced


def share_common(graph: Graph) -> Graph:
    """Each value computed once: later nodes of the same operation on the same values go.

    Only where both results are written by one node each and by nobody else.
    """
    writers = graph.writers()
    kept = graph.kept()
    seen: dict[Any, Node] = {}
    instead: dict[Buffer, Buffer] = {}
    nodes = []
    for node in graph.nodes:
        refs = node.writes()
        alone = all(r.buffer.kind is Kind.TEMP and len(writers[r.buffer]) == 1 for r in refs)
        fixed = all(_fixed(r.buffer, writers) for r in node.reads())
        if not (alone and fixed):
            nodes.append(node)
            continue
        first = seen.setdefault(_key(node, instead), node)
        if first is node or any(r.buffer in kept for r in refs):
            nodes.append(node)
            continue
        instead.update(_pairs(node, first))
    graph.nodes = nodes
    graph.nodes = list(replaced(graph, instead))
    return graph


def _fixed(buffer: Buffer, writers: dict[Buffer, list[Node]]) -> bool:
    """Whether a buffer has one value throughout the run."""
    return len(writers.get(buffer, ())) <= (buffer.kind is Kind.TEMP)


def _pairs(node: Node, first: Node) -> dict[Buffer, Buffer]:
    both = zip(node.outs, first.outs, strict=True)
    return {a.buffer: b.buffer for a, b in both if a is not None and b is not None}


def _key(node: Node, instead: dict[Buffer, Buffer]) -> Any:
    ins = tuple(None if r is None else _place(r, instead) for r in node.ins)
    outs = tuple(None if r is None else (r.offset, r.dtype, r.shape, r.strides) for r in node.outs)
    return node.op, ins, outs, node.ints, node.floats


def _place(ref: Ref, instead: dict[Buffer, Buffer]) -> Any:
    return instead.get(ref.buffer, ref.buffer), ref.offset, ref.dtype, ref.shape, ref.strides
