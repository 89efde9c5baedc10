"""Linear: constant weights are packed now, and an activation becomes a part of the product.

Both give the bits of the steps they replace.
"""

from __future__ import annotations

from dataclasses import replace

from ... import functional
from ...dtype import DType
from ..graph import Buffer, Graph, Kind, Node, Ref
from .values import as_tensor, constant

_ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}  # cdl_activation
_WEIGHT = 1  # of a linear's inputs


def pack_weights(graph: Graph) -> Graph:
    """Puts constant f32 weights into the order in which the product reads them."""
    packed: dict[Ref, Ref] = {}
    for node in graph.nodes:
        w = node.ins[_WEIGHT] if node.op == "linear" else None
        if w is None or w.buffer.kind is not Kind.CONSTANT or w.dtype is not DType.F32:
            continue
        if w not in packed:
            packed[w] = constant(functional.pack(as_tensor(w)))
        node.ins = (node.ins[0], packed[w], *node.ins[2:])
    return graph


def absorb_activations(graph: Graph) -> Graph:
    """Takes the activation of a product's result, where nobody else reads it, into the product."""
    readers, writers, kept = graph.readers(), graph.writers(), graph.kept()
    gone: set[Node] = set()
    for node in graph.nodes:
        after = _follower(node, readers, writers, kept)
        if after is not None:
            node.ints = (_ACTIVATIONS[after.op], *node.ints[1:])
            node.outs = (_instead(node.outs[0], after.outs[0]),)
            node.label = f"{node.label} {after.label}".strip()
            gone.add(after)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return graph


def _instead(out: Ref | None, made: Ref | None) -> Ref:
    """The product's matrix on the buffer of the activation."""
    assert out is not None and made is not None
    return replace(out, buffer=made.buffer)


def _follower(
    node: Node,
    readers: dict[Buffer, list[Node]],
    writers: dict[Buffer, list[Node]],
    kept: set[Buffer],
) -> Node | None:
    if node.op != "linear" or node.ints[0]:
        return None
    out = node.outs[0]
    if out is None or out.buffer in kept or out.buffer.kind is not Kind.TEMP:
        return None
    found = readers.get(out.buffer, [])
    if len(found) != 1 or found[0].op not in _ACTIVATIONS or len(writers[out.buffer]) != 1:
        return None
    (x,), (made,) = found[0].ins, found[0].outs
    if x is None or made is None or not x.covers() or not made.covers():
        return None
    alike = x.dtype is out.dtype is made.dtype is DType.F32 and made.nbytes == out.nbytes
    if not alike or len(writers[made.buffer]) != 1 or made.buffer.kind is not Kind.TEMP:
        return None
    return found[0]
