"""Writes attention.npz: attention and the gradients of q, k and v, by PyTorch in f64.

    python tests/golden/make_attention.py      (with torch 2.13.0)

A case is a row of attention_cases.py; its arrays, all [b,n,h,d]: NAME.q .k .v .g .out .gq .gk .gv
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from attention_cases import CASES

SHAPES = {"q": (2, 3, 4, 5), "k": (2, 4, 2, 5), "v": (2, 4, 2, 5), "g": (2, 3, 4, 5)}


def attention(q, k, v, causal=False, position=0, window=0, softcap=0.0, lengths=None):
    b, t, h, d = q.shape
    s, r = k.shape[1], h // k.shape[2]
    k, v = (x.repeat_interleave(r, 2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) / d**0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at, keys = position + torch.arange(t)[:, None], torch.arange(s)[None, :]
    seen = torch.ones(b, 1, t, s, dtype=torch.bool)
    if causal:
        seen = seen & (keys <= at)
    if window:
        seen = seen & (keys > at - window)
    if lengths is not None:
        seen = seen & (keys < torch.tensor(lengths)[:, None, None, None])
    weights = torch.where(seen, scores, -1e30).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", torch.where(seen, weights, 0.0), v)


def main() -> None:
    made = {}
    for number, (name, given) in enumerate(CASES.items()):
        rng = np.random.default_rng(number)
        arrays = {k: rng.uniform(-2, 2, s).astype(np.float32) for k, s in SHAPES.items()}
        q, k, v, g = (torch.tensor(a, dtype=torch.float64) for a in arrays.values())
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = attention(*inputs, **given)
        grads = torch.autograd.grad(out, inputs, g)
        arrays |= {"out": out.detach().numpy()}
        arrays |= {f"g{n}": x.numpy() for n, x in zip("qkv", grads, strict=True)}
        made |= {f"{name}.{k}": a for k, a in arrays.items()}
    np.savez_compressed(Path(__file__).with_name("attention.npz"), **made)


if __name__ == "__main__":
    main()
