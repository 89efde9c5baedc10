"""Decoder language models of the families `llama` and `gemma3`, configured from the GGUF file.

Pre-norm blocks of grouped-query attention with rotary positions and a gated perceptron (Touvron et
al. 2023). Gemma 3 adds norms after each part and on queries and keys, scales embeddings, and looks
back only `window` tokens in five of six layers (Gemma Team 2025).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .. import functional
from ..autograd import no_grad
from ..dtype import DType
from ..errors import FormatError
from ..nn import Embedding, Linear, Module, RmsNorm
from ..op import UnaryKind
from ..tensor import Tensor
from ..weights import Weights
from .config import epsilon, field, size

ARCHITECTURES = ("gemma3", "llama")


class Cache(Protocol):
    """Keys and values of the tokens so far; `llm.cache` has the real one."""

    length: int

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Adds [1, t, g, d] of new tokens; answers all of them, [1, length + t, g, d]."""
        ...

    def advance(self, count: int) -> None:
        """Counts the new tokens, once all layers have added theirs."""
        ...


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Sizes and constants of a decoder."""

    architecture: str
    width: int
    inner: int
    layers: int
    heads: int
    groups: int
    head: int
    value_head: int
    context: int
    epsilon: float
    rope_width: int
    rope_base: float
    rope_base_local: float
    rope_scale: float
    window: int
    global_every: int

    @staticmethod
    def read(metadata: Mapping[str, Any]) -> DecoderConfig:
        """From GGUF metadata. Raises FormatError for what is absent, odd or not supported."""
        name = field(metadata, "general.architecture", str)
        if name not in ARCHITECTURES:
            raise FormatError("decoder", f"an architecture of {', '.join(ARCHITECTURES)}", name)
        m = {k.removeprefix(name + "."): v for k, v in metadata.items() if k.startswith(name + ".")}
        width, heads = size(m, "embedding_length"), size(m, "attention.head_count", most=4096)
        groups = size(m, "attention.head_count_kv", heads, most=4096)
        head = size(m, "attention.key_length", width // heads or 1)
        if heads % groups or head % 2:
            got = f"{heads} heads of {head}, {groups} groups"
            raise FormatError("decoder", "an even head size and heads a multiple of groups", got)
        gemma = name == "gemma3"
        base = field(m, "rope.freq_base", float, 10000.0)
        return DecoderConfig(
            architecture=name,
            width=width,
            inner=size(m, "feed_forward_length"),
            layers=size(m, "block_count", most=1024),
            heads=heads,
            groups=groups,
            head=head,
            value_head=size(m, "attention.value_length", head),
            context=size(m, "context_length", most=1 << 30),
            epsilon=epsilon(m, "attention.layer_norm_rms_epsilon"),
            rope_width=min(size(m, "rope.dimension_count", head), head),
            rope_base=base,
            rope_base_local=10000.0 if gemma else base,
            rope_scale=_rope_scale(m),
            window=size(m, "attention.sliding_window", 512, most=1 << 30) if gemma else 0,
            global_every=6 if gemma else 1,
        )

    def is_global(self, layer: int) -> bool:
        """Whether a layer looks back without a window."""
        return layer % self.global_every == self.global_every - 1


def _rope_scale(m: Mapping[str, Any]) -> float:
    kind = field(m, "rope.scaling.type", str, "none")
    if kind == "none":
        return 1.0
    factor = field(m, "rope.scaling.factor", float)
    if kind != "linear" or not factor > 0:
        raise FormatError("decoder", "rope scaling none or linear", f"{kind} by {factor}")
    return 1.0 / factor


class SelfAttention(Module):
    """Grouped-query attention over a cache."""

    def __init__(self, w: Weights, c: DecoderConfig, layer: int, exact: bool) -> None:
        self.config = c
        self.layer = layer
        self.is_global = c.is_global(layer)
        self.q = _linear(w, "attn_q", c.width, c.heads * c.head, exact)
        self.k = _linear(w, "attn_k", c.width, c.groups * c.head, exact)
        self.v = _linear(w, "attn_v", c.width, c.groups * c.value_head, exact)
        self.output = _linear(w, "attn_output", c.heads * c.value_head, c.width, exact)
        gemma = c.architecture == "gemma3"
        self.q_norm = RmsNorm.load(w.pp("attn_q_norm"), c.head, c.epsilon) if gemma else None
        self.k_norm = RmsNorm.load(w.pp("attn_k_norm"), c.head, c.epsilon) if gemma else None

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [t, d] of new tokens; same shape out."""
        c, t = self.config, x.shape[0]
        q = self.q(x).reshape((1, t, c.heads, c.head))
        k = self.k(x).reshape((1, t, c.groups, c.head))
        v = self.v(x).reshape((1, t, c.groups, c.value_head))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        keys, values = step.cache.append(self.layer, self._turn(k, step), v)
        seen = functional.attention(
            self._turn(q, step),
            keys,
            values,
            scale=1.0 / math.sqrt(c.head),
            causal=True,
            position=step.start,
            window=0 if self.is_global else c.window,
        )
        return self.output(seen.reshape((t, c.heads * c.value_head)))

    def _turn(self, x: Tensor, step: Step) -> Tensor:
        c = self.config
        return functional.rope(
            x,
            step.positions,
            base=c.rope_base if self.is_global else c.rope_base_local,
            width=c.rope_width,
            neox=c.architecture == "gemma3",
            factors=step.factors,
            scale=c.rope_scale if self.is_global else 1.0,
        )


class GatedPerceptron(Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, w: Weights, c: DecoderConfig, exact: bool) -> None:
        self.kind = UnaryKind.GELU_TANH if c.architecture == "gemma3" else UnaryKind.SILU
        self.gate = _linear(w, "ffn_gate", c.width, c.inner, exact)
        self.up = _linear(w, "ffn_up", c.width, c.inner, exact)
        self.down = _linear(w, "ffn_down", c.inner, c.width, exact)

    def forward(self, x: Tensor) -> Tensor:
        """x [t, d], same shape out."""
        gate = self.gate(x)
        opened = gate.silu() if self.kind is UnaryKind.SILU else gate.gelu(tanh=True)
        return self.down(opened.mul(self.up(x)))


class Block(Module):
    """Attention and perceptron, each on a normed input, each added to what came in."""

    def __init__(self, w: Weights, c: DecoderConfig, layer: int, exact: bool) -> None:
        self.attention_norm = RmsNorm.load(w.pp("attn_norm"), c.width, c.epsilon)
        self.attention = SelfAttention(w, c, layer, exact)
        self.norm = RmsNorm.load(w.pp("ffn_norm"), c.width, c.epsilon)
        self.perceptron = GatedPerceptron(w, c, exact)
        gemma = c.architecture == "gemma3"
        after = ("post_attention_norm", "post_ffw_norm") if gemma else ()
        self.after = [RmsNorm.load(w.pp(name), c.width, c.epsilon) for name in after]

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [t, d], same shape out."""
        seen = self.attention(self.attention_norm(x), step)
        x = x.add(self.after[0](seen) if self.after else seen)
        made = self.perceptron(self.norm(x))
        return x.add(self.after[1](made) if self.after else made)


@dataclass(frozen=True, slots=True)
class Step:
    """What all blocks of one forward pass share."""

    cache: Cache
    start: int
    positions: Tensor
    factors: Tensor | None


class Decoder(Module):
    """Token ids to logits of the next token."""

    def __init__(self, w: Weights, c: DecoderConfig, exact: bool = False) -> None:
        self.config = c
        table = w.get("token_embd.weight")
        if table.rank != 2 or table.shape[1] != c.width:
            raise FormatError("decoder", f"token_embd of width {c.width}", list(table.shape))
        self.words = Embedding(table)
        self.vocabulary = table.shape[0]
        self.blocks = [Block(w.pp("blk", k), c, k, exact) for k in range(c.layers)]
        self.norm = RmsNorm.load(w.pp("output_norm"), c.width, c.epsilon)
        head = w.find("output.weight", (self.vocabulary, c.width))
        self.head = Linear(table if head is None else head, exact=exact)
        self.factors = w.find("rope_freqs.weight", (c.rope_width // 2,))

    @staticmethod
    def load(path: str | os.PathLike[str], exact: bool = False) -> Decoder:
        """From a GGUF file, mapped. `exact`: activations stay f32. Raises FormatError."""
        w = Weights.open(Path(path))
        return Decoder(w, DecoderConfig.read(w.metadata), exact)

    def forward(self, ids: Sequence[int], cache: Cache, all_rows: bool = False) -> Tensor:
        """Logits f32 [vocabulary] after the last id, or [len(ids), vocabulary] where `all_rows`.

        The ids follow those that the cache holds; their keys and values are added to it. Raises
        RangeError for an id outside the vocabulary.
        """
        start, t = cache.length, len(ids)
        with no_grad():
            positions = Tensor.arange(start, start + t, dtype=DType.I32)
            step = Step(cache, start, positions, self.factors)
            x = self.words(Tensor(list(ids), DType.I32))
            if self.config.architecture == "gemma3":
                x = x.mul(math.sqrt(self.config.width))
            for block in self.blocks:
                x = block(x, step)
            cache.advance(t)
            x = self.norm(x if all_rows else x.narrow(0, t - 1, 1))
            logits: Tensor = self.head(x)
        return logits if all_rows else logits.reshape((self.vocabulary,))


def _linear(w: Weights, name: str, size_in: int, size_out: int, exact: bool) -> Linear:
    layer = Linear.load(w.pp(name), size_in, size_out)
    layer.exact = exact
    return layer
