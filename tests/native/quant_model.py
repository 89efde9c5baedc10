"""The block formats and their arithmetic in NumPy: the independent model that kernels must equal.

docs/reference/block-formats.md is the text of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = np.float32
Array = NDArray[Any]

# name: (values a block, bytes a block, offset taken off the stored integers)
FORMATS = {
    "q8_0": (32, 34, 0),
    "q4_0": (32, 18, 8),
    "q4_1": (32, 20, 0),
    "q5_0": (32, 22, 16),
    "q5_1": (32, 24, 0),
    "q4_k": (256, 144, 0),
    "q5_k": (256, 176, 0),
    "q6_k": (256, 210, 32),
}


@dataclass(frozen=True)
class Blocks:
    """Rows of a block format taken apart. `q` [n,k] integers without offset; `s`, `m` [n,k/32] f32;
    `c` [n,k/16] integers (ones where the format has no second level)."""

    q: Array
    s: Array
    m: Array | None
    c: Array | None

    def dequantised(self) -> Array:
        """[n,k] f32, in the order of operations of GGUF's reference."""
        s = np.repeat(self.s, 32, axis=1)
        if self.c is not None:
            s = s * np.repeat(self.c.astype(F32), 16, axis=1)
        w = s * self.q.astype(F32)
        return w if self.m is None else w + np.repeat(self.m, 32, axis=1)


def _half(raw: Array, at: int) -> Array:
    return np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16).astype(F32)[..., 0]


def _nibbles(qs: Array) -> Array:
    """[..., j] bytes to [..., 2j] values: all low nibbles, then all high ones."""
    return np.concatenate([qs & 15, qs >> 4], axis=-1)


def _six_bits(p: Array) -> tuple[Array, Array]:
    low, mid, high = p[..., 0:4], p[..., 4:8], p[..., 8:12]
    scale = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    least = np.concatenate([mid & 63, high >> 4 | (mid >> 6) << 4], axis=-1)
    return scale.astype(F32), least.astype(F32)


def _k_integers(raw: Array, name: str) -> Array:
    groups = raw[..., -128:].reshape(*raw.shape[:2], 4, 32)
    q = np.stack([groups & 15, groups >> 4], axis=-2).reshape(*raw.shape[:2], 8, 32)
    if name == "q5_k":
        shifts = np.arange(8, dtype=np.uint8)[:, None]
        q = q | (raw[..., None, 16:48] >> shifts & 1) << 4
    return q


def _q6k_integers(raw: Array) -> Array:
    low = _nibbles(raw[..., :128].reshape(*raw.shape[:2], 2, 64)).reshape(*raw.shape[:2], 8, 32)
    pairs = raw[..., 128:192].reshape(*raw.shape[:2], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return low | ((pairs >> shifts & 3) << 4).reshape(*raw.shape[:2], 8, 32)


def unpack(name: str, rows: Array) -> Blocks:
    """Takes rows [n, bytes] u8 apart."""
    block, size, offset = FORMATS[name]
    raw = rows.reshape(rows.shape[0], -1, size)
    n, k = raw.shape[0], raw.shape[1] * block
    d = _half(raw, 208 if name == "q6_k" else 0)
    m: Array | None = None
    c: Array | None = None
    if name == "q8_0":
        q: Array = raw[..., 2:].view(np.int8)
    elif name == "q6_k":
        q = _q6k_integers(raw)
        c = raw[..., 192:208].view(np.int8).astype(np.int64).reshape(n, -1)
        d = np.repeat(d, 8, axis=-1)
    elif name in ("q4_k", "q5_k"):
        q = _k_integers(raw, name)
        scale, least = _six_bits(raw[..., 4:16])
        d, m = d[..., None] * scale, -(_half(raw, 2)[..., None] * least)
    else:
        q = _nibbles(raw[..., -16:])
        if name[1] == "5":
            high = np.unpackbits(raw[..., -20:-16], axis=-1, bitorder="little")
            q = q | high << 4
        m = _half(raw, 2) if name.endswith("_1") else None
    q = q.reshape(n, k).astype(np.int64) - offset
    return Blocks(q, d.reshape(n, -1), None if m is None else m.reshape(n, -1), c)


def quantise(x: Array) -> tuple[Array, Array]:
    """(q [m,k] integers, d [m,k/32] f32) of activations [m,k] f32."""
    blocks = x.astype(F32).reshape(x.shape[0], -1, 32)
    most = np.abs(blocks).max(axis=-1)
    finite = np.isfinite(blocks).all(axis=-1)
    some = finite & (most >= F32(2.0**-100))
    scale = np.where(some, F32(127) / np.where(some, most, F32(1)), F32(0))
    q = np.rint(np.where(some[..., None], blocks, F32(0)) * scale[..., None]).astype(np.int64)
    d = np.where(finite, np.where(some, most / F32(127), F32(0)), F32(np.nan))
    return q.reshape(x.shape), d.astype(F32)


def product(x: Array, w: Blocks) -> Array:
    """[m,n] f32: the defined result of x times the blocks, to the bit."""
    q, d = quantise(x)
    acc = np.zeros((x.shape[0], w.q.shape[0]), F32)
    for b in range(w.s.shape[1]):
        at = slice(32 * b, 32 * b + 32)
        weights = w.q[:, at]
        if w.c is not None:
            weights = weights * np.repeat(w.c[:, 2 * b : 2 * b + 2], 16, axis=1)
        term = w.s[:, b] * (q[:, at] @ weights.T).astype(F32)
        if w.m is not None:
            term = term + w.m[:, b] * q[:, at].sum(axis=1).astype(F32)[:, None]
        acc = acc + term * d[:, b, None]
    return acc


def random_rows(name: str, n: int, k: int, rng: np.random.Generator, sane: bool = True) -> Array:
    """[n, bytes] u8 of random blocks; sane ones have scales of a trained model's size."""
    block, size, _ = FORMATS[name]
    raw = rng.integers(0, 256, (n, k // block, size), dtype=np.uint8)
    if sane:
        halves = {"q6_k": (208,), "q8_0": (0,), "q4_0": (0,), "q5_0": (0,)}.get(name, (0, 2))
        for at in halves:
            d = (rng.standard_normal((n, k // block)) * 0.01).astype(np.float16)
            raw[..., at : at + 2] = d[..., None].view(np.uint8)
    return raw.reshape(n, k // block * size)
