"""The gradient of attention against PyTorch's, and the gradient of that against its own parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from candle import Tensor, Var
from candle import functional as F
from candle.testing import assert_close
from golden.attention_cases import CASES

GOLDEN = np.load(Path(__file__).parent / "golden" / "attention.npz")
LIMITS = {"f32": 2e-6, "f16": 4e-3, "bf16": 4e-2}


def options(name: str) -> dict[str, Any]:
    given = dict(CASES[name])
    if "lengths" in given:
        given["lengths"] = Tensor(given["lengths"], "i32")
    return given


def array(name: str, dtype: str) -> Tensor:
    return Tensor.from_numpy(GOLDEN[name]).to_dtype(dtype)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_pytorchs(name: str, dtype: str) -> None:
    """candle#3752 (A08): the fused operation leads back to q, k and v, alike with 2 of 4 heads."""
    q, k, v = (Var(array(f"{name}.{n}", dtype)) for n in "qkv")
    out = F.attention(q, k, v, **options(name))
    out.backward(array(f"{name}.g", dtype))
    limit = LIMITS[dtype]
    assert_close(out.to_dtype("f64"), GOLDEN[f"{name}.out"].tolist(), limit, limit)
    for letter, x in zip("qkv", (q, k, v), strict=True):
        grad = x.grad()
        assert grad is not None and grad.dtype is x.dtype
        assert_close(grad.to_dtype("f64"), GOLDEN[f"{name}.g{letter}"].tolist(), limit, 4 * limit)


def by_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of one head each, written out."""
    q, k, v = (x.permute((0, 2, 1, 3)) for x in (q, k, v))
    scores = q.matmul(k.transpose(2, 3)).mul(q.shape[-1] ** -0.5)
    t, s = scores.shape[2:]
    seen = Tensor.arange(s).le(Tensor.arange(t).unsqueeze(1))
    weights = F.softmax(seen.where_cond(scores, -1e30))
    return weights.matmul(v).permute((0, 2, 1, 3))


def test_the_gradient_has_a_gradient(rng: np.random.Generator) -> None:
    arrays = [rng.standard_normal((2, 3, 2, 4), np.float32) for _ in range(3)]
    found = []
    for function in (lambda q, k, v: F.attention(q, k, v, causal=True), by_parts):
        inputs = [Var(Tensor.from_numpy(a)) for a in arrays]
        function(*inputs).sqr().sum().backward(create_graph=True)
        first = [x.grad() for x in inputs]
        for x in inputs:
            x.zero_grad()
        Tensor.cat([g.sqr().sum().unsqueeze(0) for g in first if g is not None]).sum().backward()
        found.append([x.grad() for x in inputs])
    for fused, parted in zip(*found, strict=True):
        assert_close(fused, parted, 1e-4, 1e-4)


def test_only_what_leads_back_is_computed_and_no_keys_give_zeros() -> None:
    q, k = Var(Tensor.ones((1, 2, 1, 3))), Tensor.ones((1, 0, 1, 3))
    F.attention(q, k, k).sum().backward()
    assert q.grad().to_vec() == Tensor.zeros((1, 2, 1, 3)).to_vec()
    v = Var(Tensor.ones((1, 4, 1, 3)))
    F.attention(Tensor.ones((1, 2, 1, 3)), v.detach(), v).sum().backward()
    assert_close(v.grad(), Tensor.full((1, 4, 1, 3), 0.5))
