"""Blocked: convolutions work on images whose channels lie in blocks of 16 (native/kernels/block.h).

A value stays blocked from one convolution to the next; a step that knows only plain images gets a
copy. The channels that fill up the last block are zeros, and every step taken over here keeps them
so: whatever the values, they add nothing to the next convolution.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ...dtype import DType
from ...shape import row_major
from ...tensor import Tensor
from ..graph import Buffer, Graph, Kind, Node, Ref
from .values import as_tensor, constant, single_number
from .winograd import pays, transformed

BLOCK = 16
_MOST_TAPS = 64
_ZERO_AT_ZERO = ("relu", "silu", "tanh", "gelu")
_ZERO_OF_ZEROS = ("add", "sub", "mul", "minimum", "maximum")
_ALIKE = (*_ZERO_AT_ZERO, *_ZERO_OF_ZEROS, "sigmoid")
_REDUCED = ("mean", "sum", "max", "min")
_NONE = (0,) * 8


def block_images(graph: Graph) -> Graph:
    """Takes over convolutions with constant weights and what lies between them."""
    return _Blocking(graph).graph


class _Blocking:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.writers = graph, graph.writers()
        self.nodes: list[Node] = []
        self.blocked: dict[Buffer, Ref] = {}  # by the buffer of the plain value
        self.missing: dict[Buffer, Ref] = {}  # plain values that nobody has written
        for node in graph.nodes:
            self._take(node)
        for ref in graph.outputs:
            self._plain(ref)
        graph.nodes = self.nodes

    def _take(self, node: Node) -> None:
        out = node.outs[0] if len(node.outs) == 1 else None
        if out is not None and self._free(out) and self._over(node, out):
            self.missing[out.buffer] = out
            return
        if out is not None and node.op in _REDUCED and self._reduced(node, out):
            return
        for ref in node.reads():
            self._plain(ref)
        self.nodes.append(node)

    def _free(self, out: Ref) -> bool:
        """Whether a result is an image of its own."""
        alone = len(self.writers[out.buffer]) == 1 and out.buffer.kind is Kind.TEMP
        return alone and out.covers() and out.dtype is DType.F32 and len(out.shape) == 4

    def _over(self, node: Node, out: Ref) -> bool:
        if node.op == "conv2d":
            return self._convolution(node, out)
        if node.op == "max_pool2d":
            return self._pool(node, out)
        return node.op in _ALIKE and self._alike(node, out)

    # -- steps taken over --------------------------------------------------------------------------

    def _convolution(self, node: Node, out: Ref) -> bool:
        x, w, bias = node.ins
        if x is None or w is None or any(not _constant(r) for r in node.ins[1:]):
            return False
        groups, taps = node.ints[6], w.shape[2] * w.shape[3]
        depthwise = groups == w.shape[0] == x.shape[1] and groups > 1
        if taps > _MOST_TAPS or not (groups == 1 or depthwise):
            return False
        if pays(node, out, BLOCK):
            whole = _filled(_filled(as_tensor(w), 0), 1)
            weight, op, given = transformed(whole, BLOCK), "conv_winograd", self._image(x)
        elif depthwise:
            weight, op, given = _depth_weight(as_tensor(w)), "conv_block_depth", self._image(x)
        else:
            plain = x.shape[1] < BLOCK and x.contiguous and x.buffer not in self.blocked
            weight, op = _weight(as_tensor(w)), "conv_block"
            given = x if plain else self._image(x)
        shift = None if bias is None else constant(_filled(as_tensor(bias), 0))
        ins = (given, constant(weight), shift, *([None] if groups == 1 else []))
        self._node(node, op, out, ins, (*node.ints[:6], 0, 0))
        return True

    def _pool(self, node: Node, out: Ref) -> bool:
        x, values = node.ins
        kernel, stride, padding, dilation = (node.ints[k : k + 2] for k in range(0, 8, 2))
        if x is None or x != values or x.buffer not in self.blocked or not x.covers():
            return False
        reach = all(2 * p <= k for p, k in zip(padding, kernel, strict=True))
        if x.shape[1] % BLOCK and not (reach and dilation == (1, 1)):
            return False  # a window outside of the image would make minus infinity of zeros
        if kernel[0] * kernel[1] > _MOST_TAPS:
            return False
        ints = (*stride, *padding, *dilation, *kernel)
        self._node(node, "max_pool_block", out, (self.blocked[x.buffer],), ints)
        return True

    def _alike(self, node: Node, out: Ref) -> bool:
        """An elementwise step: on images of the same shape, and on single numbers."""
        ins: list[Ref] = []
        for ref in node.ins:
            if ref is None or ref.dtype is not DType.F32:
                return False
            if ref.buffer in self.blocked and ref.shape == out.shape and ref.covers():
                ins.append(self.blocked[ref.buffer])
            elif not any(s for s, n in zip(ref.strides, ref.shape, strict=True) if n != 1):
                ins.append(replace(ref, shape=_blocks_of(out), strides=(0,) * 5))
            else:
                return False
        images = [any(ref.strides) for ref in ins]
        if not any(images) or (out.shape[1] % BLOCK and not _keeps_zeros(node, images)):
            return False
        self._node(node, node.op, out, tuple(ins), node.ints)
        return True

    def _reduced(self, node: Node, out: Ref) -> bool:
        """Whole planes to numbers: the channels need no other order."""
        (x,) = node.ins
        if x is None or x.buffer not in self.blocked or not x.covers() or node.ints[0] != 2:
            return False
        n, c, h, w = x.shape
        if c % BLOCK or not out.contiguous or len(out.shape) != 2:
            return False
        shape = (n, c // BLOCK, BLOCK)
        strides = (c * h * w, BLOCK * h * w, 1, w * BLOCK, BLOCK)
        outs = replace(out, shape=shape, strides=row_major(shape))
        ins = replace(self.blocked[x.buffer], shape=(*shape, h, w), strides=strides)
        self.nodes.append(replace(node, outs=(outs,), ins=(ins,)))
        return True

    def _node(
        self, of: Node, op: str, out: Ref, ins: tuple[Ref | None, ...], ints: tuple[int, ...]
    ) -> None:
        there = _room(out)
        self.blocked[out.buffer] = there
        self.nodes.append(replace(of, op=op, outs=(there,), ins=ins, ints=ints))

    # -- from one form to the other ----------------------------------------------------------------

    def _image(self, x: Ref) -> Ref:
        """An image in blocks."""
        whole = x.covers()
        if whole and x.buffer in self.blocked:
            return self.blocked[x.buffer]
        self._plain(x)
        there = _room(x)
        for inside, outside in _halves(there, x):
            self.nodes.append(Node("copy", (inside,), (outside,), label="Blocks"))
        if x.shape[1] % BLOCK:
            self.nodes.append(Node("fill", (_rest(there, x.shape[1]),), (), label="Blocks"))
        if whole and len(self.writers.get(x.buffer, [])) <= 1 and x.buffer.kind is not Kind.STATE:
            self.blocked[x.buffer] = there
        return there

    def _plain(self, ref: Ref) -> None:
        """Writes a plain image that was left out so far."""
        out = self.missing.pop(ref.buffer, None)
        if out is not None:
            for inside, outside in _halves(self.blocked[ref.buffer], out):
                self.nodes.append(Node("copy", (outside,), (inside,), label="Plain"))


def _keeps_zeros(node: Node, images: list[bool]) -> bool:
    """Whether an elementwise step makes zeros of zeros, whatever the single numbers beside them."""
    if all(images):
        return node.op in (*_ZERO_AT_ZERO, *_ZERO_OF_ZEROS)
    number = single_number(node.ins[images.index(False)])
    if number is None or not math.isfinite(number):
        return False
    return node.op == "mul" or (node.op == "minimum" and number >= 0.0)


def _constant(ref: Ref | None) -> bool:
    return ref is None or (ref.buffer.kind is Kind.CONSTANT and ref.dtype is DType.F32)


def _blocks_of(image: Ref) -> tuple[int, ...]:
    n, c, h, w = image.shape
    return (n, -(-c // BLOCK), h, w, BLOCK)


def _room(image: Ref) -> Ref:
    """A new buffer for an image in blocks."""
    shape = _blocks_of(image)
    whole = Ref.whole(Buffer(Kind.TEMP, 0), DType.F32, shape)
    whole.buffer.nbytes = whole.nbytes
    return whole


def _halves(blocked: Ref, plain: Ref) -> list[tuple[Ref, Ref]]:
    """The same elements in both: the whole blocks, and what the last one holds."""
    n, c, h, w = plain.shape
    to_n, to_b, to_y, to_x, _ = blocked.strides
    by_n, by_c, by_y, by_x = plain.strides
    full, rest = divmod(c, BLOCK)
    halves = []
    for first, blocks, count in ((0, full, BLOCK), (full, 1, rest)):
        if blocks and count:
            shape = (n, blocks, count, h, w)
            inside, outside = (to_n, to_b, 1, to_y, to_x), (by_n, BLOCK * by_c, by_c, by_y, by_x)
            a = replace(blocked, offset=first * to_b * 4, shape=shape, strides=inside)
            at = plain.offset + first * BLOCK * by_c * 4
            halves.append((a, replace(plain, offset=at, shape=shape, strides=outside)))
    return halves


def _rest(blocked: Ref, channels: int) -> Ref:
    """The channels that no image has."""
    n, blocks, h, w, _ = blocked.shape
    used = channels % BLOCK
    to_n, to_b, to_y, to_x, _ = blocked.strides
    offset = ((blocks - 1) * to_b + used) * 4
    strides = (to_n, to_y, to_x, 1)
    return replace(blocked, offset=offset, shape=(n, h, w, BLOCK - used), strides=strides)


def _filled(x: Tensor, axis: int) -> Tensor:
    """x with zeros up to a whole number of blocks."""
    missing = -x.shape[axis] % BLOCK
    if not missing:
        return x
    shape = (*x.shape[:axis], missing, *x.shape[axis + 1 :])
    return Tensor.cat([x, Tensor.zeros(shape)], axis)


def _weight(w: Tensor) -> Tensor:
    """[o, c, kh, kw] as [o/16, c/16, kh, kw, 16, 16]; fewer than 16 channels stay as they are."""
    c, kh, kw = w.shape[1:]
    w = _filled(w, 0)
    w = _filled(w, 1) if c > BLOCK else w
    deep = min(c, BLOCK)
    blocks = w.reshape((w.shape[0] // BLOCK, BLOCK, w.shape[1] // deep, deep, kh, kw))
    return blocks.permute((0, 2, 4, 5, 3, 1)).contiguous()


def _depth_weight(w: Tensor) -> Tensor:
    """[c, 1, kh, kw] as [c/16, kh, kw, 16]."""
    _, _, kh, kw = w.shape
    w = _filled(w, 0)
    return w.reshape((w.shape[0] // BLOCK, BLOCK, kh, kw)).permute((0, 2, 3, 1)).contiguous()
