"""Makes opset.npz: operations as PyTorch computes them, forward and back.

python tests/golden/make_opset.py    (made with torch 2.13.0, numpy 2.4)

Each entry is `name/part`: `in0`, `in1`, ... the inputs, `out` the result (`out0`, `out1` of two),
`slope` the gradient given to it, and `g0`, `g1`, ... the gradients of the float inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

Out = dict[str, Any]
SPECIAL = [-np.inf, -1e30, -20.0, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5, 20.0, 1e30, np.inf]
UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "sqr": torch.square,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "recip": torch.reciprocal,
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
}


def entry(out: Out, name: str, function: Callable[..., Any], *inputs: Any) -> None:
    """One function of tensors, and its gradient by a drawn slope."""
    given = [torch.as_tensor(np.asarray(x)) for x in inputs]
    given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in given]
    made = function(*given)
    results = made if isinstance(made, tuple) else (made,)
    first = results[0]
    slope = torch.randn_like(first)
    first.backward(slope)
    out |= {f"{name}/in{n}": x for n, x in enumerate(given)}
    suffixes = ["0", "1"] if len(results) > 1 else [""]
    out |= {f"{name}/out{s}": r for s, r in zip(suffixes, results, strict=True)}
    out[f"{name}/slope"] = slope
    out |= {f"{name}/g{n}": x.grad for n, x in enumerate(given) if x.grad is not None}


def draw(*shape: int) -> Any:
    return torch.randn(*shape).numpy()


def sort(x: torch.Tensor, descending: bool) -> tuple[torch.Tensor, ...]:
    return tuple(torch.sort(x, dim=1, descending=descending, stable=True))


def rows(out: Out) -> None:
    """Reductions, running sums, orders, softmax."""
    ties = np.array([[2, 3, 0, 3, 3], [1, 3, 1, 3, 1]], np.float32)
    entry(out, "var", lambda x: x.var((0, 2), correction=1), draw(3, 4, 5))
    entry(out, "amax of ties", lambda x: x.amax(1), ties)
    entry(out, "amin of ties", lambda x: x.amin(1), ties)
    entry(out, "cumsum", lambda x: x.cumsum(1), draw(3, 5, 2))
    for name, down in (("up", False), ("down", True)):
        entry(out, f"sort {name}", lambda x, d=down: sort(x, d), ties)
    entry(out, "topk", lambda x: tuple(x.topk(3, -1)), draw(4, 9))
    entry(out, "softmax", lambda x: x.softmax(1), draw(3, 5, 2))
    entry(out, "log_softmax", lambda x: x.log_softmax(1), draw(3, 5, 2) * 30)
    entry(out, "logsumexp", lambda x: x.logsumexp(1), draw(3, 5, 2) * 30)


def places(out: Out) -> None:
    """Indices and margins."""
    index = np.array([[3, 0, 3], [1, 2, 0]])
    entry(out, "gather", lambda x, i: x.gather(1, i), draw(2, 4), index)
    entry(out, "scatter_add", lambda x, i, s: x.scatter_add(1, i, s), draw(2, 4), index, draw(2, 3))
    entry(
        out,
        "index_add",
        lambda x, i, s: x.index_add(1, i, s),
        draw(2, 4),
        np.array([3, 0, 3]),
        draw(2, 3),
    )
    entry(out, "index_select", lambda x, i: x.index_select(1, i), draw(2, 4), np.array([3, 0, 3]))
    for mode in ("constant", "reflect", "replicate"):
        value = {"value": 2.5} if mode == "constant" else {}
        entry(
            out,
            f"pad {mode}",
            lambda x, mode=mode, value=value: F.pad(x, (1, 3, 2, 0), mode, **value),
            draw(2, 2, 3, 5),
        )


def images(out: Out) -> None:
    """Upsampling and pooling."""
    for size in ((8, 10), (3, 2), (7, 7)):
        name = f"{size[0]}x{size[1]}"
        entry(out, f"nearest {name}", lambda x, s=size: F.interpolate(x, s), draw(2, 3, 4, 5))
        for corners in (False, True):
            entry(
                out,
                f"bilinear {name}{' corners' if corners else ''}",
                lambda x, s=size, c=corners: F.interpolate(x, s, mode="bilinear", align_corners=c),
                draw(2, 3, 4, 5),
            )
    entry(out, "max_pool2d", lambda x: F.max_pool2d(x, 3, 2, 1, 1, True), draw(1, 2, 6, 7))
    entry(out, "avg_pool2d", lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), draw(1, 2, 6, 7))


def losses(out: Out) -> None:
    """Losses with each reduction."""
    targets, weight = np.array([0, 3, -100, 6, 3]), np.linspace(0.2, 2, 7).astype(np.float32)
    for reduction in ("mean", "sum", "none"):
        given: Any = {"reduction": reduction}
        entry(
            out,
            f"nll_loss {reduction}",
            lambda x, t, g=given: F.nll_loss(x, t, weight=torch.as_tensor(weight), **g),
            draw(5, 7),
            targets,
        )
        entry(
            out,
            f"cross_entropy {reduction}",
            lambda x, t, g=given: F.cross_entropy(
                x, t, weight=torch.as_tensor(weight), label_smoothing=0.1, **g
            ),
            draw(5, 7),
            targets,
        )
        entry(
            out, f"mse {reduction}", lambda x, t, g=given: F.mse_loss(x, t, **g), draw(5), draw(5)
        )
        entry(
            out,
            f"bce {reduction}",
            lambda x, t, g=given: F.binary_cross_entropy_with_logits(x, t.detach(), **g),
            draw(5) * 9,
            np.array([0, 1, 0.3, 1, 0], np.float32),
        )
    out["weight"] = weight


def main() -> None:
    torch.manual_seed(11)
    out: Out = {}
    for name, function in UNARY.items():
        entry(out, f"unary {name}", function, np.array(SPECIAL, np.float32))
    rows(out)
    places(out)
    images(out)
    losses(out)
    arrays = {k: np.asarray(v.detach() if torch.is_tensor(v) else v) for k, v in out.items()}
    np.savez_compressed(Path(__file__).with_name("opset.npz"), **arrays)


if __name__ == "__main__":
    main()
