"""Winograd: weights of 3 x 3 convolutions for minimal filtering (native/kernels/conv_winograd.c).

F(2x2, 3x3) of Lavin and Gray 2015: 16 products instead of 36. Its weights take 16/9 of the memory,
so it is used where there are tiles enough to pay for reading them.
"""

from __future__ import annotations

from ...tensor import Tensor
from ..graph import Node, Ref
from ..size import Size

_FEWEST_TILES = 32
_POINTS = 4
_G = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))


def pays(node: Node, out: Ref, block: int) -> bool:
    """Whether a conv2d of these sizes is faster so."""
    w = node.ins[1]
    if w is None or w.shape[2:] != (3, 3) or node.ints[:2] != (1, 1) or node.ints[4:7] != (1, 1, 1):
        return False
    n, _, h, wide = out.shape
    if any(isinstance(size, Size) for size in (n, h, wide)) or w.shape[1] < block:
        return False
    return n * (-(-h // 2)) * (-(-wide // 2)) >= _FEWEST_TILES


def transformed(w: Tensor, block: int) -> Tensor:
    """[o, c, 3, 3] of whole blocks as G w G^T: [16, o/16, c, 16]. Computed in f64."""
    o, c = w.shape[:2]
    g = Tensor(_G, dtype="f64")
    half = w.to_dtype("f64").reshape((o * c * 3, 3)).matmul(g.t())  # [o c y, 4]
    rows = half.reshape((o * c, 3, _POINTS)).transpose(1, 2).reshape((-1, 3)).matmul(g.t())
    points = rows.reshape((o, c, _POINTS, _POINTS)).transpose(2, 3).to_dtype("f32")
    return points.reshape((o // block, block, c, 16)).permute((3, 0, 2, 1)).contiguous()
