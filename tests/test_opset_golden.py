"""Operations against what PyTorch recorded, forward and back (golden/make_opset.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from candle import Tensor, Var
from candle import functional as F

GOLDEN = np.load(Path(__file__).resolve().parent / "golden" / "opset.npz")
WEIGHT = Tensor.from_numpy(GOLDEN["weight"])


def _image(name: str) -> Callable[..., Tensor]:
    kind, size, *corners = name.split()
    p, q = map(int, size.split("x"))
    if kind == "nearest":
        return lambda x: F.upsample_nearest2d(x, (p, q))
    return lambda x: F.upsample_bilinear2d(x, (p, q), align_corners=bool(corners))


def _loss(name: str) -> Callable[..., Tensor]:
    kind, how = name.split()
    return {
        "nll_loss": lambda x, t: F.nll_loss(x, t, weight=WEIGHT, reduction=how),
        "cross_entropy": lambda x, t: F.cross_entropy(
            x, t, weight=WEIGHT, label_smoothing=0.1, reduction=how
        ),
        "mse": lambda x, t: F.mse(x, t, reduction=how),
        "bce": lambda x, t: F.bce_with_logits(x, t.detach(), reduction=how),
    }[kind]


OURS: dict[str, Callable[..., Any]] = {
    "var": lambda x: x.var((0, 2)),
    "amax of ties": lambda x: x.max(1),
    "amin of ties": lambda x: x.min(1),
    "cumsum": lambda x: x.cumsum(1),
    "sort up": lambda x: x.sort(1),
    "sort down": lambda x: x.sort(1, descending=True),
    "topk": lambda x: x.topk(3),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: F.log_softmax(x, 1),
    "logsumexp": lambda x: F.logsumexp(x, 1),
    "gather": lambda x, i: x.gather(i, 1),
    "scatter_add": lambda x, i, s: x.scatter_add(i, s, 1),
    "index_add": lambda x, i, s: x.index_add(i, s, 1),
    "index_select": lambda x, i: x.index_select(i, 1),
    "pad constant": lambda x: F.pad(x, [(2, 0), (1, 3)], value=2.5),
    "pad reflect": lambda x: F.pad(x, [(2, 0), (1, 3)], "reflect"),
    "pad replicate": lambda x: F.pad(x, [(2, 0), (1, 3)], "replicate"),
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1, 1, True),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
}
NAMES = sorted({key.rpartition("/")[0] for key in GOLDEN.files} - {""})


def ours(name: str) -> Callable[..., Any]:
    if name.startswith("unary "):
        kind = name.split()[1]
        return lambda x: x.gelu(tanh=True) if kind == "gelu_tanh" else getattr(x, kind)()
    if name in OURS:
        return OURS[name]
    return _image(name) if name.split()[0] in ("nearest", "bilinear") else _loss(name)


# PyTorch gives NaN where these have a limit, which we give: at infinities, and gelu_tanh far out
LIMITS = {"unary gelu", "unary gelu_tanh", "unary silu"}


def compare(name: str, got: Tensor, want: Any, rtol: float, atol: float) -> None:
    values = got.numpy()
    if name in LIMITS:
        want = np.where(np.isnan(want), values, want)
    np.testing.assert_allclose(values, want, rtol, atol)


def test_activations_have_their_limits() -> None:
    """0 and inf, where x * 0 would be NaN; the slope of gelu_tanh is finite for finite x."""
    ends = Tensor([-np.inf, -1e30, 1e30, np.inf])
    for y in (ends.gelu(), ends.gelu(tanh=True), ends.silu()):
        assert y.to_vec() == [0.0, 0.0, pytest.approx(1e30), np.inf]
    x = Var([-1e30, 1e30])
    x.gelu(tanh=True).sum().backward()
    grad = x.grad()
    assert grad is not None
    assert grad.to_vec() == [0.0, 1.0]


@pytest.mark.parametrize("name", NAMES)
def test_agrees_with_pytorch(name: str) -> None:
    arrays = {k.rpartition("/")[2]: GOLDEN[k] for k in GOLDEN.files if k.startswith(f"{name}/")}
    inputs = [Tensor.from_numpy(arrays[f"in{n}"]) for n in range(3) if f"in{n}" in arrays]
    given = [Var(x) if x.dtype.is_float else x for x in inputs]
    made = ours(name)(*given)
    results = made if isinstance(made, tuple) else (made,)
    wanted = [arrays[k] for k in ("out", "out0", "out1") if k in arrays]
    for got, want in zip(results, wanted, strict=True):
        compare(name, got, want, 2e-6, 1e-6)
    results[0].backward(Tensor.from_numpy(arrays["slope"]))
    for n, x in enumerate(given):
        if f"g{n}" in arrays:
            grad = x.grad()
            assert grad is not None
            compare(name, grad, arrays[f"g{n}"], 1e-5, 2e-6)
