"""Makes training.npz: layers, losses and optimisers as PyTorch computes them, forward and back.

python tests/golden/make_training.py    (made with torch 2.13.0, numpy 2.4)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

OPTIMISERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "sgd_dampening": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8, dampening=0.5),
    "adam": lambda p: torch.optim.Adam(p, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, weight_decay=0.1),
}
INITS: dict[str, Any] = {
    "kaiming_uniform": nn.init.kaiming_uniform_,
    "kaiming_normal": nn.init.kaiming_normal_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "xavier_normal": nn.init.xavier_normal_,
}


def layer(out: dict[str, Any], name: str, module: nn.Module, x: torch.Tensor) -> None:
    """Two forward passes and one backward of a module with drawn parameters, then inference."""
    for p in module.parameters():
        nn.init.normal_(p, 0.5)
    x = x.clone().requires_grad_()
    module(x.detach() * 2.0 + 1.0)
    y = module(x)
    slope = torch.randn_like(y)
    y.backward(slope)
    out |= {f"{name}.{k}": v for k, v in [("x", x), ("y", y), ("slope", slope), ("gx", x.grad)]}
    out |= {f"{name}.{k}": v.detach().clone() for k, v in module.state_dict().items()}
    out |= {f"{name}.g{k}": p.grad for k, p in module.named_parameters()}
    out[f"{name}.eval"] = module.eval()(x)


def optimiser(out: dict[str, Any], name: str, make: Any) -> None:
    """Ten steps of 5 parameters down (w - 1)^2 (i + 1) + sin(3 w)."""
    w = torch.tensor([-2.0, -0.5, 0.0, 0.7, 3.0], requires_grad=True)
    steps, made = [], make([w])
    for _ in range(10):
        made.zero_grad()
        ((w - 1.0) ** 2 * torch.arange(1.0, 6.0) * 0.3 + torch.sin(3.0 * w)).sum().backward()
        made.step()
        steps.append(w.detach().clone())
    out[f"{name}.steps"] = torch.stack(steps)


def losses(out: dict[str, Any]) -> None:
    x = torch.tensor([-40.0, -3.0, -0.5, 0.0, 0.5, 2.0, 60.0], requires_grad=True)
    t = torch.tensor([0.0, 1.0, 0.3, 0.0, 1.0, 0.9, 0.0])
    heavy = torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0, 1.5, 1.0])
    kinds = {"plain": {}, "pos": {"pos_weight": heavy}, "weight": {"weight": heavy}}
    for name, options in kinds.items():
        x.grad = None
        loss = nn.functional.binary_cross_entropy_with_logits(x, t, **options)
        loss.backward()
        out[f"bce_{name}.loss"], out[f"bce_{name}.gx"] = loss, x.grad.clone()
    out["bce.x"], out["bce.t"], out["bce.heavy"] = x, t, heavy
    a, b = (torch.randn(6, 4, requires_grad=True) for _ in range(2))
    scores = nn.functional.normalize(a) @ nn.functional.normalize(b).T / 0.1
    loss = nn.functional.cross_entropy(scores, torch.arange(6))
    loss.backward()
    out |= {"contrastive.a": a, "contrastive.b": b, "contrastive.loss": loss}
    out |= {"contrastive.ga": a.grad, "contrastive.gb": b.grad}


def main() -> None:
    torch.manual_seed(7)
    out: dict[str, Any] = {}
    layer(out, "layer_norm", nn.LayerNorm(7), torch.randn(3, 7) * 3.0)
    layer(out, "rms_norm", nn.RMSNorm(7, eps=1e-6), torch.randn(3, 7) * 3.0)
    layer(out, "group_norm", nn.GroupNorm(2, 6), torch.randn(2, 6, 3, 2) + 2.0)
    layer(out, "batch_norm", nn.BatchNorm2d(3), torch.randn(4, 3, 2, 3) * 2.0 - 1.0)
    for name, make in OPTIMISERS.items():
        optimiser(out, name, make)
    losses(out)
    for name, fill in INITS.items():
        drawn = fill(torch.empty(300, 100, 3, 3))
        out[f"{name}.std"] = drawn.std()
        out[f"{name}.peak"] = drawn.abs().max()
    out["linear.peak"] = nn.Linear(400, 500).weight.abs().max()
    arrays = {k: np.asarray(v.detach() if torch.is_tensor(v) else v) for k, v in out.items()}
    np.savez_compressed(Path(__file__).with_name("training.npz"), **arrays)


if __name__ == "__main__":
    main()
