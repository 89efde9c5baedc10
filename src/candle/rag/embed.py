"""Texts to vectors: one encoder model with its tokenizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from .. import functional
from ..dtype import DType
from ..errors import ContextLengthError, NameNotFoundError, OptionError
from ..models.bert import BertEncoder
from ..package.names import Resolved, as_name, resolve
from ..tensor import Tensor
from ..text.tokenizer import Tokenizer
from .unpacked import unpacked

BATCH_SIZE = 32
_BATCH_TOKENS = 16384  # tokens in one batch, padding included: bounds memory for long texts
TRUNCATE = ("warn", "error")

Progress = Callable[[int, int], None]


class TruncationWarning(UserWarning):
    """Texts were longer than the model's window and their ends were not embedded."""


class Encoder(Protocol):
    """What a model does for `Embedder`: ids to pooled vectors [n, dimension], f32."""

    @property
    def dimension(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def encode(self, ids: list[list[int]]) -> Tensor: ...


class TextEmbedder(Protocol):
    """What a knowledge base needs of an embedder; `Embedder` is one."""

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def dimension(self) -> int: ...
    @property
    def max_tokens(self) -> int: ...
    def tokenize(self, text: str) -> list[int]: ...
    def embed(
        self,
        texts: Sequence[str],
        normalize: bool = True,
        truncate: str = "warn",
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
    ) -> Tensor: ...


class Embedder:
    """A model that turns texts into vectors: `Embedder.load("all-minilm-l6-v2")`.

    `name` is what it was loaded by, `digest` identifies its weights ("sha256:..."), `dimension`
    is the length of a vector and `max_tokens` the model's window, special tokens included.
    """

    def __init__(self, name: str, encoder: Encoder, tokenizer: Tokenizer, digest: str) -> None:
        self.name = name
        self.digest = digest
        self._encoder = encoder
        self._tokenizer = tokenizer
        self._ending = _ending(tokenizer)

    @staticmethod
    def load(name: str | os.PathLike[str]) -> Embedder:
        """By a known name ("all-minilm-l6-v2") or that of an installed encoder; or from a path:
        a folder in the Hugging Face layout, or a `.candle` file that holds an encoder.

        Raises NameNotFoundError, OptionError, FormatError.
        """
        name = as_name(name, "embedding model")
        found = resolve(name, what="embedding model")
        if found.source == "path":
            name = str(found.path.absolute())  # as it is found from any working folder
        return Embedder._open(name, found)

    @staticmethod
    def load_known(name: str) -> Embedder:
        """By name alone: nothing in it is taken for a path. Raises as `load` does."""
        return Embedder._open(name, resolve(name, what="embedding model", paths=False))

    @staticmethod
    def _open(name: str, found: Resolved) -> Embedder:
        op = f"embedding model {name!r}"
        if found.kind in ("package", "installed"):
            with unpacked(found, op) as folder:
                return Embedder._from_folder(name, folder)
        if found.kind != "folder":
            expected = "a folder with config.json, model.safetensors and tokenizer.json"
            raise NameNotFoundError(op, expected, f"{found.kind} at {found.path}")
        if not (found.path / "tokenizer.json").is_file():
            raise NameNotFoundError(op, "a tokenizer.json", str(found.path))
        return Embedder._from_folder(name, found.path)

    @staticmethod
    def _from_folder(name: str, folder: Path) -> Embedder:
        file = folder / "tokenizer.json"
        encoder = BertEncoder.load(folder)
        digest = _model_digest(encoder.digest, file.read_bytes())
        return Embedder(name, encoder, Tokenizer.from_file(file), digest)

    @property
    def dimension(self) -> int:
        """Elements of a vector."""
        return self._encoder.dimension

    @property
    def max_tokens(self) -> int:
        """The model's window in tokens, special ones included."""
        return self._encoder.max_tokens

    def __repr__(self) -> str:
        return f"Embedder({self.name!r}, dimension={self.dimension}, {self.digest[:19]})"

    def tokenize(self, text: str) -> list[int]:
        """The ids that the model would see, special tokens included, never cut."""
        return self._tokenizer.encode(text)

    def embed(
        self,
        texts: Sequence[str],
        normalize: bool = True,
        truncate: str = "warn",
        batch_size: int = BATCH_SIZE,
        progress: Progress | None = None,
    ) -> Tensor:
        """Vectors [n, dimension] of f32, in the order of `texts`; of length 1 if `normalize`.

        A text longer than the window is cut at its end with a TruncationWarning, or, with
        truncate="error", refused by a ContextLengthError. The vector of a text does not depend
        on the texts beside it. `progress` gets (texts done, texts in all). Raises OptionError.
        """
        _check_options(texts, truncate, batch_size)
        ids = self._fit(self._tokenizer.encode_batch(texts), truncate)
        width = 4 * self.dimension
        rows = bytearray(width * len(ids))
        done = 0
        for batch in _batches([len(i) for i in ids], batch_size):
            vectors = self._encoder.encode([ids[i] for i in batch])
            if normalize:
                vectors = functional.normalize(vectors)
            data = vectors.contiguous().buffer().cast("B")
            for at, i in enumerate(batch):
                rows[i * width : (i + 1) * width] = data[at * width : (at + 1) * width]
            done += len(batch)
            if progress:
                progress(done, len(ids))
        return Tensor.from_buffer(rows, DType.F32, (len(ids), self.dimension))

    def _fit(self, ids: list[list[int]], truncate: str) -> list[list[int]]:
        """`ids` within the window: the model's own ending stays, what stands before it goes."""
        limit = self.max_tokens
        long = [i for i, row in enumerate(ids) if len(row) > limit]
        if not long:
            return ids
        worst = max(len(ids[i]) for i in long)
        if truncate == "error":
            raise ContextLengthError(
                f"embed text {long[0]}", f"at most {limit} tokens", len(ids[long[0]])
            )
        message = (
            f"{len(long)} of {len(ids)} texts are longer than the {limit} tokens of {self.name}"
            f" (the longest has {worst}): their ends were not embedded"
        )
        warnings.warn(TruncationWarning(message), stacklevel=3)
        keep = limit - len(self._ending)
        return [row if len(row) <= limit else row[:keep] + self._ending for row in ids]


def load_embedder(embedder: str | os.PathLike[str] | TextEmbedder) -> TextEmbedder:
    """An embedder by name or path, or itself. Raises OptionError for anything else."""
    if isinstance(embedder, str | os.PathLike):
        return Embedder.load(embedder)
    if not callable(getattr(embedder, "embed", None)):
        raise OptionError("embedder", "a name, a path or an Embedder", repr(embedder)[:80])
    return embedder


def _model_digest(weights: str, tokenizer: bytes) -> str:
    """One name for all that decides what vector a text gets."""
    return "sha256:" + sha256(weights.encode() + sha256(tokenizer).digest()).hexdigest()


def _ending(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that the model wants behind every text."""
    whole, plain = tokenizer.encode("a"), tokenizer.encode("a", special=False)
    for start in range(len(whole) - len(plain) + 1):
        if whole[start : start + len(plain)] == plain:
            return whole[start + len(plain) :]
    return []


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Indices in batches of like lengths, the longest first, padded size bounded."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        count = max(1, min(batch_size, _BATCH_TOKENS // longest))
        yield order[start : start + count]
        start += count


def _check_options(texts: Sequence[str], truncate: str, batch_size: int) -> None:
    if isinstance(texts, str):
        raise OptionError("embed", "a list of texts", "one string", "put it in a list")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"embed texts[{i}]", "a string", type(text).__name__)
    if truncate not in TRUNCATE:
        raise OptionError("embed truncate", " or ".join(map(repr, TRUNCATE)), repr(truncate))
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise OptionError("embed batch_size", "a whole number from 1", repr(batch_size))
