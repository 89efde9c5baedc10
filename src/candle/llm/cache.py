"""KvCache: keys and values of the tokens so far, one pair of buffers a layer.

Buffers grow by doubling up to the context, so a short answer in a long context stays small. Only
`append` changes them in place.
"""

from __future__ import annotations

from .. import eager
from ..dtype import DType
from ..errors import ContextLengthError
from ..tensor import Tensor

FIRST = 256  # tokens of the first buffer


class KvCache:
    """Room for `context` tokens. `length` counts those that all layers hold."""

    def __init__(self, layers: int, context: int, dtype: DType = DType.F32) -> None:
        self.length = 0
        self.context = context
        self.dtype = dtype
        self._buffers: list[tuple[Tensor, Tensor] | None] = [None] * layers

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds k and v [1, t, g, d] of new tokens; answers all, [1, length + t, g, d], as views.

        Raises ContextLengthError with both lengths if they do not fit.
        """
        end = self.length + k.shape[1]
        if end > self.context:
            raise ContextLengthError("cache", f"at most {self.context} tokens", end)
        keys, values = self._room(layer, k, v, end)
        eager.copy_into(keys.narrow(1, self.length, k.shape[1]).data, k.data)
        eager.copy_into(values.narrow(1, self.length, v.shape[1]).data, v.data)
        return keys.narrow(1, 0, end), values.narrow(1, 0, end)

    def advance(self, count: int) -> None:
        """Counts the new tokens, once all layers have added theirs."""
        self.length += count

    def truncate(self, length: int) -> None:
        """Forgets the tokens from `length` on."""
        self.length = min(self.length, length)

    def _room(self, layer: int, k: Tensor, v: Tensor, end: int) -> tuple[Tensor, Tensor]:
        held = self._buffers[layer]
        if held is not None and held[0].shape[1] >= end:
            return held
        size = FIRST
        while size < end:
            size *= 2
        size = min(size, self.context)
        grown = self._grown(held and held[0], k, size), self._grown(held and held[1], v, size)
        self._buffers[layer] = grown
        return grown

    def _grown(self, old: Tensor | None, like: Tensor, size: int) -> Tensor:
        made = Tensor.zeros((1, size, *like.shape[2:]), self.dtype)
        if old is not None and self.length:
            seen = old.narrow(1, 0, self.length)
            eager.copy_into(made.narrow(1, 0, self.length).data, seen.data)
        return made
