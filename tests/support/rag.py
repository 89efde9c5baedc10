"""A deterministic embedder for tests of retrieval: words hashed to signed dimensions.

Texts that share words are near to each other; the same text has the same vector in any process.
"""

from __future__ import annotations

import hashlib
import math
import re
from array import array
from collections.abc import Sequence
from typing import Any

from candle.dtype import DType
from candle.tensor import Tensor


class HashingEmbedder:
    """Stands where `candle.rag.embed.Embedder` does."""

    def __init__(self, dimension: int = 64, max_tokens: int = 256, name: str = "hashing") -> None:
        self.name = name
        self.dimension = dimension
        self.max_tokens = max_tokens
        content = f"{name}/{dimension}".encode()
        self.digest = "sha256:" + hashlib.sha256(content).hexdigest()
        self.embedded = 0

    def tokenize(self, text: str) -> list[int]:
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        return [0, *(word_hash(word) for word in words), 1]

    def embed(
        self,
        texts: Sequence[str],
        normalize: bool = True,
        truncate: str = "warn",
        batch_size: int = 32,
        progress: Any = None,
    ) -> Tensor:
        self.embedded += len(texts)
        values = array("f")
        for text in texts:
            values.extend(self._vector(text))
        return Tensor.from_buffer(values, DType.F32, (len(texts), self.dimension))

    def _vector(self, text: str) -> list[float]:
        row = [0.0] * self.dimension
        for token in self.tokenize(text)[1:-1]:
            row[token % self.dimension] += 1.0 if token >> 16 & 1 else -1.0
            row[(token >> 5) % self.dimension] += 0.5
        length = math.sqrt(sum(x * x for x in row)) or 1.0
        return [x / length for x in row]


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "little")
