"""Values: constants of a graph as tensors, and tensors as constants."""

from __future__ import annotations

from ...tensor import Tensor
from ..graph import Buffer, Kind, Ref, view_of


def as_tensor(ref: Ref) -> Tensor:
    """What a constant holds, in place."""
    return Tensor.of_view(view_of(ref))


def single_number(ref: Ref | None) -> float | None:
    """The number of a constant that is the same everywhere; None for anything else."""
    if ref is None or ref.buffer.kind is not Kind.CONSTANT:
        return None
    if any(s for s, n in zip(ref.strides, ref.shape, strict=True) if n != 1):
        return None
    return float(as_tensor(Ref(ref.buffer, ref.offset, ref.dtype, (), ())).to_scalar())


def constant(value: Tensor) -> Ref:
    """A new constant."""
    view = value.contiguous().data
    buffer = Buffer(Kind.CONSTANT, view.layout.nbytes, "", view.address, view.storage)
    return Ref.whole(buffer, view.dtype, view.layout.shape)
