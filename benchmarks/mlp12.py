"""Forward and backward of twelve linear layers with ReLU, beside PyTorch's eager mode.

    python benchmarks/mlp12.py [THREADS ...]

The loss is the mean of squares. Small sizes tell what a record costs, great ones what the products
and the memory do. Both systems stay in a process of their own and take turns in short rounds;
medians are kept. Bars: at widths 64 and 256 in batches of 1 and 32, at least 37 % less time; at
width 1024 in batches of 1 a third of the time; never more time elsewhere.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import common

LAYERS, ROUNDS, ROUND_S = 12, 5, 0.2
CASES = [(w, b) for w in (64, 256, 1024) for b in (1, 32, 256)]
LESS = 1 / 0.63  # 37 % less time
BARS = {(64, 1): LESS, (64, 32): LESS, (256, 1): LESS, (256, 32): LESS, (1024, 1): 3}


def candle_step(width: int, batch: int) -> Callable[[], object]:
    """Ours."""
    from candle import Tensor, nn

    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = [nn.Linear.new(width, width) for _ in range(LAYERS)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x).relu()
            return x

    net, x = Net(), Tensor.randn((batch, width))
    variables = list(net.parameters())

    def step() -> None:
        for v in variables:
            v.zero_grad()
        net(x).sqr().mean().backward()

    return step


def torch_step(width: int, batch: int) -> Callable[[], object]:
    """PyTorch's."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x).relu()
            return x

    net, x = Net(), torch.randn(batch, width)
    variables = list(net.parameters())

    def step() -> None:
        for v in variables:
            v.grad = None
        net(x).square().mean().backward()

    return step


SYSTEMS = {"candle": candle_step, "torch": torch_step}


def answers(system: str) -> Callable[[str], common.Row]:
    """Measures one round of the case that a line names."""
    made: dict[str, Callable[[], object]] = {}

    def answer(line: str) -> common.Row:
        if line not in made:
            made.clear()
            made[line] = SYSTEMS[system](*map(int, line.split()))
            made[line]()
        step, times, end = made[line], [], perf_counter() + ROUND_S
        while perf_counter() < end or len(times) < 3:
            start = perf_counter()
            step()
            times.append(perf_counter() - start)
        return {"us": statistics.median(times) * 1e6}

    return answer


def measure(threads: int) -> list[common.Row]:
    """A row a case."""
    systems = common.partners(Path(__file__), threads, "torch")
    rows: list[common.Row] = []
    for case in CASES:
        line = f"{case[0]} {case[1]}"
        times: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(ROUNDS):
            for name, system in systems.items():
                times[name].append(system.ask(line)["us"])
        found = {name: statistics.median(t) for name, t in times.items()}
        row: common.Row = {"threads": threads, "width": case[0], "batch": case[1]}
        row |= {f"{name} us": t for name, t in found.items()}
        if "torch" in found:
            row |= {"ratio": found["torch"] / found["candle"], "bar": BARS.get(case, 1.0)}
        print(row, file=sys.stderr, flush=True)
        rows.append(row)
    for system in systems.values():
        system.close()
    return rows


def main(counts: list[int]) -> None:
    rows = [row for count in counts for row in measure(count)]
    common.finish("mlp12", rows, ["torch"])


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SYSTEMS:
        common.serve(answers(sys.argv[1]))
    else:
        main([int(count) for count in sys.argv[1:]] or [1, 2])
