"""BERT-type sentence encoders (Devlin et al. 2018), in Hugging Face's folder layout.

`config.json`, `model.safetensors`, and sentence-transformers' own files where present:
`sentence_bert_config.json` (window) and `1_Pooling/config.json` (mean or first token).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import functional
from ..autograd import no_grad
from ..dtype import DType
from ..errors import ContextLengthError, FormatError, OptionError
from ..nn import Embedding, LayerNorm, Linear, Module
from ..op import Activation
from ..tensor import Tensor
from ..weights import Weights
from .config import epsilon, field, read_json, size

_ACTIVATIONS = {
    "gelu": Activation.GELU,
    "gelu_new": Activation.GELU_TANH,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
    "silu": Activation.SILU,
}


@dataclass(frozen=True, slots=True)
class BertConfig:
    """Sizes of an encoder."""

    width: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    positions: int
    types: int
    epsilon: float
    activation: Activation
    max_tokens: int
    pooling: str

    @staticmethod
    def read(folder: Path) -> BertConfig:
        """From the folder's files. Raises FormatError for what is absent, odd or not supported."""
        c = read_json(folder / "config.json")
        kind = field(c, "model_type", str, "bert")
        if kind != "bert" or c.get("position_embedding_type", "absolute") != "absolute":
            raise FormatError("bert", "model_type bert with absolute positions", kind)
        name = field(c, "hidden_act", str, "gelu")
        if name not in _ACTIVATIONS:
            raise FormatError("bert", f"an activation of {sorted(_ACTIVATIONS)}", name)
        positions = size(c, "max_position_embeddings")
        width, heads = size(c, "hidden_size"), size(c, "num_attention_heads")
        if width % heads:
            raise FormatError("bert", f"hidden_size a multiple of {heads} heads", width)
        return BertConfig(
            width=width,
            inner=size(c, "intermediate_size"),
            layers=size(c, "num_hidden_layers", most=1024),
            heads=heads,
            vocabulary=size(c, "vocab_size"),
            positions=positions,
            types=size(c, "type_vocab_size", 2),
            epsilon=epsilon(c, "layer_norm_eps", 1e-12),
            activation=_ACTIVATIONS[name],
            max_tokens=_window(folder, positions),
            pooling=_pooling(folder),
        )


def _window(folder: Path, positions: int) -> int:
    path = folder / "sentence_bert_config.json"
    if not path.exists():
        return positions
    return min(size(read_json(path), "max_seq_length", positions), positions)


def _pooling(folder: Path) -> str:
    path = folder / "1_Pooling" / "config.json"
    if not path.exists():
        return "mean"
    flags = {k.removeprefix("pooling_mode_") for k, v in read_json(path).items() if v is True}
    if flags & {"mean_tokens"} and not flags & {"cls_token", "max_tokens", "mean_sqrt_len_tokens"}:
        return "mean"
    if flags & {"cls_token"} and not flags & {"max_tokens", "mean_sqrt_len_tokens", "mean_tokens"}:
        return "cls"
    raise FormatError("bert pooling", "mean or cls", sorted(flags))


class Layer(Module):
    """One block: self-attention, then a two-layer perceptron, each with residual and norm."""

    def __init__(self, w: Weights, c: BertConfig) -> None:
        self.heads = c.heads
        attention = w.pp("attention")
        self.query_key_value = _joined(attention.pp("self"), ("query", "key", "value"), c.width)
        self.output = Linear.load(attention.pp("output", "dense"), c.width, c.width)
        self.attention_norm = LayerNorm.load(
            attention.pp("output", "LayerNorm"), c.width, c.epsilon
        )
        self.up = Linear.load(w.pp("intermediate", "dense"), c.width, c.inner, c.activation)
        self.down = Linear.load(w.pp("output", "dense"), c.inner, c.width)
        self.norm = LayerNorm.load(w.pp("output", "LayerNorm"), c.width, c.epsilon)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x [b, t, d]; `lengths` i32 [b]: tokens of each row."""
        b, t, d = x.shape
        joined = self.query_key_value(x).reshape((b, t, 3, self.heads, d // self.heads))
        q, k, v = (joined[:, :, part] for part in range(3))
        seen = functional.attention(q, k, v, lengths).reshape((b, t, d))
        x = self.attention_norm(self.output(seen).add(x))
        return self.norm(self.down(self.up(x)).add(x))


def _joined(w: Weights, names: Sequence[str], width: int) -> Linear:
    """Several projections of one input as a single product."""
    parts = [Linear.load(w.pp(name), width, width) for name in names]
    bias = [p.bias if p.bias is not None else Tensor.zeros(width) for p in parts]
    return Linear(Tensor.cat([p.weight for p in parts]), Tensor.cat(bias))


class BertEncoder(Module):
    """Token ids to one vector a text."""

    def __init__(self, w: Weights, c: BertConfig, source: Path) -> None:
        self.config = c
        self.source = source
        e = w.pp("embeddings")
        self.words = Embedding.load(e.pp("word_embeddings"), c.vocabulary, c.width)
        positions = e.get("position_embeddings.weight", (c.positions, c.width))
        types = e.get("token_type_embeddings.weight", (c.types, c.width))
        self.positions = positions.add(types[0])  # every token is of the first type
        self.norm = LayerNorm.load(e.pp("LayerNorm"), c.width, c.epsilon)
        self.layers = [Layer(w.pp("encoder", "layer", k), c) for k in range(c.layers)]

    @staticmethod
    def load(path: str | os.PathLike[str]) -> BertEncoder:
        """From a folder, ready for inference. Raises FormatError, ShapeError."""
        folder = Path(path)
        w = Weights.open(folder)
        if "bert.embeddings.word_embeddings.weight" in w:
            w = w.pp("bert")
        with no_grad():
            model = BertEncoder(w, BertConfig.read(folder), folder)
            model.freeze()
        return model

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.config.width

    @property
    def max_tokens(self) -> int:
        """Tokens of the window, special ones included."""
        return self.config.max_tokens

    @cached_property
    def digest(self) -> str:
        """SHA-256 of configuration and weights: which model made a vector."""
        digest = hashlib.sha256()
        for path in sorted([self.source / "config.json", *self.source.glob("*.safetensors")]):
            with path.open("rb") as file:
                while part := file.read(1 << 20):
                    digest.update(part)
        return digest.hexdigest()

    def forward(self, ids: Tensor, lengths: Tensor | None = None) -> Tensor:
        """ids i32 [b, t], lengths i32 [b] or None; hidden states f32 [b, t, d]."""
        x = self.words(ids).add(self.positions.narrow(0, 0, ids.shape[1]))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, lengths)
        return x

    def encode(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """One pooled vector a row of ids: f32 [n, d], not normalised.

        A row's vector is the same bits whatever rows stand beside it. Raises ContextLengthError
        for a row over the window, OptionError for one without tokens.
        """
        if not ids:
            return Tensor.zeros((0, self.dimension))
        sizes = [len(row) for row in ids]
        if max(sizes) > self.max_tokens:
            raise ContextLengthError("encode", f"at most {self.max_tokens} tokens", max(sizes))
        if min(sizes) == 0:
            raise OptionError("encode", "at least one token a text", 0)
        width = max(sizes)
        padded = Tensor([[*row, *[0] * (width - len(row))] for row in ids], DType.I32)
        lengths = None if min(sizes) == width else Tensor(sizes, DType.I32)
        with no_grad():
            return self._pool(self.forward(padded, lengths), sizes)

    def _pool(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        if self.config.pooling == "cls":
            return x[:, 0].contiguous()
        width = x.shape[1]
        share = [[1.0 / n] * n + [0.0] * (width - n) for n in sizes]
        return Tensor(share).unsqueeze(1).matmul(x).squeeze(1)
