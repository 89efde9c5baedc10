"""Linear: constant weights are packed now, and an activation becomes a part of the product.

Both give the bits of the steps they replace.
"""

from __future__ import annotations

from dataclasses import replace

from ... import functional
from ...dtype import DType
from ..graph import Graph, Kind, Node, Ref
from .following import Followers
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
    followers, gone = Followers(graph), set[Node]()
    for node in graph.nodes:
        after = followers.of(node) if node.op == "linear" and not node.ints[0] else None
        if after is not None and after.op in _ACTIVATIONS:
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
