"""Padding: zeros around an image become the padding of the convolution that reads it."""

from __future__ import annotations

from ..graph import Buffer, Graph, Kind, Node, Ref


def fold_padding(graph: Graph) -> Graph:
    """Takes the image itself where all that pads it is a fill with zeros and a copy."""
    writers = graph.writers()
    for node in graph.nodes:
        x = node.ins[0] if node.op == "conv2d" else None
        if x is not None:
            found = _padded(x, writers.get(x.buffer, []))
            if found is not None:
                image, (top, left) = found
                node.ins = (image, *node.ins[1:])
                stride_y, stride_x, pad_y, pad_x, *rest = node.ints
                node.ints = (stride_y, stride_x, pad_y + top, pad_x + left, *rest)
    return graph


def _padded(x: Ref, made: list[Node]) -> tuple[Ref, tuple[int, int]] | None:
    """What was padded, and by how much above and to the left."""
    if x.buffer.kind is not Kind.TEMP or not x.covers() or [n.op for n in made] != ["fill", "copy"]:
        return None
    fill, copy = made
    inner, image = copy.outs[0], copy.ins[0]
    if fill.floats[0] != 0.0 or fill.outs[0] != x or inner is None or image is None:
        return None
    if inner.strides != x.strides or inner.shape[:2] != x.shape[:2] or image.dtype is not x.dtype:
        return None
    if not _steady(image.buffer):
        return None
    row = x.strides[2]
    top, left = divmod(inner.offset // x.dtype.size, row)
    return image, (top, left)


def _steady(buffer: Buffer) -> bool:
    """Whether it still has the same contents when a later step reads it."""
    return buffer.kind is not Kind.STATE
