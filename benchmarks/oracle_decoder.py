"""A decoder in plain NumPy float64, from dequantised weights: the oracle of benchmarks/logits.py.

Shares nothing with candle: GGUF is read and dequantised by the `gguf` package, and the forward pass
follows the papers (Touvron et al. 2023; Gemma Team 2025). Run in the peers' environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize

F = np.float64


class Oracle:
    """Logits f64 [t, vocabulary] of a row of token ids."""

    def __init__(self, path: str) -> None:
        reader = GGUFReader(path)
        self.raw = {t.name: t for t in reader.tensors}
        self.architecture = self._text(reader.fields["general.architecture"])
        self.fields = reader.fields
        self.layers = int(self._value("block_count"))
        self.width = int(self._value("embedding_length"))
        self.heads = int(self._value("attention.head_count"))
        self.groups = int(self._value("attention.head_count_kv"))
        self.head = int(self._value("attention.key_length", self.width // self.heads))
        self.epsilon = float(self._value("attention.layer_norm_rms_epsilon"))
        self.base = float(self._value("rope.freq_base", 10000.0))
        self.gemma = self.architecture == "gemma3"
        self.window = int(self._value("attention.sliding_window", 0))

    @staticmethod
    def _text(field: Any) -> str:
        return bytes(field.parts[-1]).decode()

    def _value(self, name: str, default: Any = None) -> Any:
        field = self.fields.get(f"{self.architecture}.{name}")
        return default if field is None else field.parts[-1][0]

    def weight(self, name: str) -> np.ndarray:
        """One tensor, dequantised, as f64."""
        t = self.raw[name]
        return np.asarray(dequantize(t.data, t.tensor_type), F).reshape(tuple(t.shape)[::-1])

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weight(name)

    def turn(self, x: np.ndarray, base: float) -> np.ndarray:
        """Rotary positions of x [t, h, d]: halves for gemma3, neighbours for llama."""
        t, _, d = x.shape
        angle = np.arange(t)[:, None] * base ** (-2.0 * np.arange(d // 2) / d)[None]
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        out = np.empty_like(x)
        a, b = (
            (slice(0, d // 2), slice(d // 2, d)) if self.gemma else (slice(0, d, 2), slice(1, d, 2))
        )
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., a] * sin + x[..., b] * cos
        return out

    def attention(self, x: np.ndarray, layer: int) -> np.ndarray:
        t, p = len(x), f"blk.{layer}."
        q = (x @ self.weight(p + "attn_q.weight").T).reshape(t, self.heads, self.head)
        k = (x @ self.weight(p + "attn_k.weight").T).reshape(t, self.groups, self.head)
        v = (x @ self.weight(p + "attn_v.weight").T).reshape(t, self.groups, -1)
        local = self.gemma and layer % 6 != 5
        if self.gemma:
            q, k = self.norm(q, p + "attn_q_norm.weight"), self.norm(k, p + "attn_k_norm.weight")
        base = 10000.0 if local else self.base
        q, k = self.turn(q, base), self.turn(k, base)
        each = self.heads // self.groups
        k, v = np.repeat(k, each, 1), np.repeat(v, each, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head)
        i, j = np.arange(t)[:, None], np.arange(t)[None]
        hidden = (j > i) | ((i - j >= self.window) if local else False)
        scores = np.where(hidden[None], -np.inf, scores)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        seen = np.einsum("hqk,khd->qhd", scores, v).reshape(t, -1)
        return seen @ self.weight(p + "attn_output.weight").T

    def perceptron(self, x: np.ndarray, layer: int) -> np.ndarray:
        p = f"blk.{layer}."
        gate, up = x @ self.weight(p + "ffn_gate.weight").T, x @ self.weight(p + "ffn_up.weight").T
        if self.gemma:
            c = np.sqrt(2 / np.pi)
            gate = 0.5 * gate * (1 + np.tanh(c * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return (gate * up) @ self.weight(p + "ffn_down.weight").T

    def logits(self, ids: list[int]) -> np.ndarray:
        """Logits after each id."""
        x = self.weight("token_embd.weight")[np.asarray(ids)]
        if self.gemma:
            x = x * np.sqrt(self.width)
        for layer in range(self.layers):
            p = f"blk.{layer}."
            seen = self.attention(self.norm(x, p + "attn_norm.weight"), layer)
            x = x + (self.norm(seen, p + "post_attention_norm.weight") if self.gemma else seen)
            made = self.perceptron(self.norm(x, p + "ffn_norm.weight"), layer)
            x = x + (self.norm(made, p + "post_ffw_norm.weight") if self.gemma else made)
        x = self.norm(x, "output_norm.weight")
        head = "output.weight" if "output.weight" in self.raw else "token_embd.weight"
        return x @ self.weight(head).T
