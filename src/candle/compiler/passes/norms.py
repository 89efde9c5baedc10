"""Norms: what scales and shifts a convolution's channels by constants goes into its weights.

So a batch norm at inference costs nothing. Sums are rounded otherwise than in eager mode: results
differ by some units in the last place.
"""

from __future__ import annotations

from ...autograd import no_grad
from ...dtype import DType
from ...tensor import Tensor
from ..graph import Graph, Kind, Node, Ref
from .following import Followers
from .values import as_tensor, constant

_BY = ("mul", "div", "add", "sub")
_OUT, _WEIGHT, _BIAS = 0, 1, 2  # of conv2d: outs[0]; ins[1], ins[2]


def fold_norms(graph: Graph) -> Graph:
    """Folds elementwise steps with a constant a channel into the conv2d before them."""
    followers, gone = Followers(graph), set[Node]()
    for node in graph.nodes:
        while _foldable(node) and (after := followers.of(node)) is not None:
            factor = _by_channel(node, after) if after.op in _BY else None
            if factor is None:
                break
            _absorb(node, after.op, factor)
            node.outs = after.outs
            gone.add(after)
    graph.nodes = [n for n in graph.nodes if n not in gone]
    return graph


def _foldable(node: Node) -> bool:
    """Whether it is a convolution in f32 by constants."""
    out = node.outs[_OUT]
    if node.op != "conv2d" or out is None or out.dtype is not DType.F32:
        return False
    return all(r is None or r.buffer.kind is Kind.CONSTANT for r in node.ins[_WEIGHT:])


def _by_channel(node: Node, after: Node) -> Tensor | None:
    """The other operand as one number a channel, f32 [c]; None where it is anything else."""
    out, (left, right) = node.outs[_OUT], after.ins
    if out is None or left is None or right is None or (left == out) == (right == out):
        return None
    if left.shape != right.shape:
        return None
    if after.op in ("div", "sub") and left != out:
        return None
    other = right if left == out else left
    spread = [s for axis, s in enumerate(other.strides) if axis != 1 and other.shape[axis] != 1]
    if other.buffer.kind is not Kind.CONSTANT or any(spread):
        return None
    channels = other.shape[1]
    row = Ref(other.buffer, other.offset, other.dtype, (channels,), (other.strides[1],))
    return as_tensor(row)


def _absorb(node: Node, op: str, factor: Tensor) -> None:
    x, *constants = node.ins
    kernel, *rest = [as_tensor(r) for r in constants if r is not None]
    shift = rest[0] if rest else Tensor.zeros(factor.shape)
    with no_grad():
        by = factor if op in ("mul", "add") else factor.recip() if op == "div" else factor.neg()
        if op in ("mul", "div"):
            kernel, shift = kernel.mul(by.reshape((-1, 1, 1, 1))), shift.mul(by)
        else:
            shift = shift.add(by)
    node.ins = (x, constant(kernel), constant(shift))
