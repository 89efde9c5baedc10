"""Whole training steps, compiled, beside PyTorch's eager mode, f32.

    python benchmarks/compile_train.py

LeNet-5 on 64 images and a net of 12 linear layers with relu, width 64: loss, backward, SGD. The
same nets, losses and rates in both; systems take turns in rounds. Bars: 3 times as fast, and 4.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

RATE = 0.01
WORK = ("LeNet-5, 64", "MLP, 1", "MLP, 32")


def candle(work: str) -> Callable[[], Any]:
    """A call of the compiled step."""
    import candle as ours
    from candle import Tensor, nn
    from candle import functional as f
    from candle.optim import SGD

    ours.manual_seed(0)
    if work == WORK[0]:
        net = nn.Sequential(
            nn.Conv2d.new(1, 6, 5),
            Tensor.relu,
            nn.MaxPool2d(2),
            nn.Conv2d.new(6, 16, 5),
            Tensor.relu,
            nn.MaxPool2d(2),
            lambda x: x.flatten_from(1),
            nn.Linear.new(256, 120),
            Tensor.relu,
            nn.Linear.new(120, 84),
            Tensor.relu,
            nn.Linear.new(84, 10),
        )
        x = ours.randn((64, 1, 28, 28))
    else:
        layers: list[Any] = []
        for _ in range(12):
            layers += [nn.Linear.new(64, 64), Tensor.relu]
        net, x = nn.Sequential(*layers[:-1]), ours.randn((int(work.split()[1]), 64))
    labels = Tensor.arange(x.shape[0]).rem(10)
    optimizer = SGD(net.parameters(), RATE)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        loss = f.cross_entropy(net(x), labels)
        optimizer.backward_step(loss)
        return loss

    run = ours.compile(step, x, labels)
    return lambda: run(x, labels)


def torch(work: str) -> Callable[[], Any]:
    """A call of PyTorch's step."""
    import torch as peer
    from torch import nn

    peer.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if work == WORK[0]:
        net = nn.Sequential(
            nn.Conv2d(1, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )
        x = peer.randn(64, 1, 28, 28)
    else:
        layers: list[nn.Module] = []
        for _ in range(12):
            layers += [nn.Linear(64, 64), nn.ReLU()]
        net, x = nn.Sequential(*layers[:-1]), peer.randn(int(work.split()[1]), 64)
    labels = peer.arange(len(x)) % 10
    optimizer = peer.optim.SGD(net.parameters(), RATE)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    here, rows = Path(__file__).resolve(), []
    for threads in (1, 2):
        for work in WORK:
            systems = {"candle": sys.executable}
            if peer := common.peer_python():
                systems["torch"] = peer
            sides = {s: common.Partner(p, here, [s, work], threads) for s, p in systems.items()}
            ask = {s: lambda p=p: p.ask("") for s, p in sides.items()}
            found = {f"{s}_us": row["us"] for s, row in common.alternate(5, ask).items()}
            row = {"step": work, "threads": threads, **found}
            if "torch_us" in found:
                row["ratio"] = found["torch_us"] / found["candle_us"]
            rows.append(row)
            for side in sides.values():
                side.close()
    common.finish("compile_train", rows, ("torch",))


if __name__ == "__main__":
    if sys.argv[1:2] in (["candle"], ["torch"]):
        call = {"candle": candle, "torch": torch}[sys.argv[1]](sys.argv[2])
        common.serve(lambda _: {"us": common.timed(call, 0.5, 2000, 3) * 1e6})
    else:
        main()
