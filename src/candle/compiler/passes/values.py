"""Values: constants of a graph as tensors, and tensors as constants."""

from __future__ import annotations

from ...tensor import Tensor
from ..graph import Buffer, Kind, Ref, view_of


def as_tensor(ref: Ref) -> Tensor:
    """What a constant holds, in place."""
    return Tensor.of_view(view_of(ref))


def constant(value: Tensor) -> Ref:
    """A new constant."""
    view = value.contiguous().data
    buffer = Buffer(Kind.CONSTANT, view.layout.nbytes, "", view.address, view.storage)
    return Ref.whole(buffer, view.dtype, view.layout.shape)
