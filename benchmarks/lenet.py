"""An epoch of LeNet-5, beside PyTorch's eager mode: time a step, a whole epoch, and memory.

    python benchmarks/lenet.py [--epoch] [THREADS ...]

60,000 images u8 of 1 x 28 x 28 with labels stay u8 in both; a step draws 64 of them in shuffled
order, makes them floats, and goes through the same net, cross-entropy and SGD. Steps are timed in
rounds, the systems in turns; `--epoch` times one whole epoch of each, one after the other. Memory
is what a process peaks at above its size after the imports. Bars: 1.6 times as fast, 0.61 of the
memory.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import common

COUNT, BATCH, RATE, ROUNDS, STEPS = 60_000, 64, 0.01, 9, 60
EPOCH = COUNT // BATCH  # whole batches only


def resident(name: str) -> float:
    """MB of this process now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text().split(name + ":")[1]
    return int(status.split()[0]) / 1024


def candle_steps() -> Iterator[None]:
    """Ours: one step each time, epoch after epoch. The first item comes after the imports."""
    from candle import DType, Tensor, manual_seed, nn
    from candle.datasets import DataLoader, Dataset
    from candle.functional import cross_entropy
    from candle.optim import SGD

    class LeNet(nn.Module):
        def __init__(self) -> None:
            self.conv1, self.conv2 = nn.Conv2d.new(1, 6, 5), nn.Conv2d.new(6, 16, 5)
            self.pool = nn.MaxPool2d(2)
            self.fc1, self.fc2 = nn.Linear.new(256, 120), nn.Linear.new(120, 84)
            self.fc3 = nn.Linear.new(84, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = self.pool(self.conv1(x).relu())
            x = self.pool(self.conv2(x).relu())
            x = self.fc1(x.flatten_from(1)).relu()
            return self.fc3(self.fc2(x).relu())

    def floats(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        return images.to_dtype("f32").mul(1 / 255.0), labels.to_dtype(DType.I64)

    yield
    manual_seed(0)
    block = Tensor.rand((COUNT // 60, 1, 28, 28)).mul(255.0).to_dtype("u8")
    images = Tensor.cat([block] * 60, 0)
    labels = Tensor.arange(COUNT).rem(10).to_dtype("u8")
    net = LeNet()
    optimizer = SGD(net.parameters(), RATE)
    loader = DataLoader(
        Dataset(images, labels), BATCH, shuffle=True, drop_last=True, transform=floats
    )
    while True:
        for x, y in loader:
            optimizer.backward_step(cross_entropy(net(x), y))
            yield


def torch_steps() -> Iterator[None]:
    """PyTorch's; batches are taken by index, which costs less than its DataLoader."""
    import torch
    from torch import nn

    class LeNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
            self.pool = nn.MaxPool2d(2)
            self.fc1, self.fc2 = nn.Linear(256, 120), nn.Linear(120, 84)
            self.fc3 = nn.Linear(84, 10)

        def forward(self, x: Any) -> Any:
            x = self.pool(self.conv1(x).relu())
            x = self.pool(self.conv2(x).relu())
            x = self.fc1(x.flatten(1)).relu()
            return self.fc3(self.fc2(x).relu())

    yield
    torch.manual_seed(0)
    block = torch.rand(COUNT // 60, 1, 28, 28).mul(255.0).to(torch.uint8)
    images = torch.cat([block] * 60, 0)
    labels = torch.arange(COUNT).remainder(10).to(torch.uint8)
    net = LeNet()
    optimizer = torch.optim.SGD(net.parameters(), RATE)
    while True:
        order = torch.randperm(COUNT)
        for k in range(EPOCH):
            rows = order[k * BATCH : (k + 1) * BATCH]
            x, y = images[rows].float().mul_(1 / 255.0), labels[rows].long()
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            yield


SYSTEMS = {"candle": candle_steps, "torch": torch_steps}


def answers(system: str) -> Callable[[str], common.Row]:
    """Times as many steps as a line says; ms a step, and MB above the imports so far."""
    steps = SYSTEMS[system]()
    next(steps)
    before = resident("VmRSS")

    def answer(line: str) -> common.Row:
        times = []
        for _ in range(int(line)):
            start = perf_counter()
            next(steps)
            times.append(perf_counter() - start)
        ms = statistics.median(times) * 1e3
        return {"ms": ms, "total s": sum(times), "MB": resident("VmHWM") - before}

    return answer


def measure(threads: int, epoch: bool) -> common.Row:
    """The row of a thread count."""
    systems = common.partners(Path(__file__), threads, "torch")
    found: dict[str, list[common.Row]] = {name: [] for name in systems}
    for k in range(ROUNDS + 1):
        for name, system in systems.items():
            got = system.ask(str(STEPS))
            if k:  # the first round warms up, and shuffles
                found[name].append(got)
    row: common.Row = {"threads": threads}
    for name, rounds in found.items():
        row[f"{name} ms a step"] = statistics.median(r["ms"] for r in rounds)
    for name, system in systems.items():
        last = system.ask(str(EPOCH if epoch else 1))
        row |= {f"{name} epoch s": last["total s"]} if epoch else {}
        row[f"{name} MB"] = last["MB"]
        system.close()
    if "torch" in found:
        row["speed"] = row["torch ms a step"] / row["candle ms a step"]
        row["memory"] = row["candle MB"] / row["torch MB"]
    print(row, file=sys.stderr, flush=True)
    return row


def main(counts: list[int], epoch: bool) -> None:
    rows = [measure(count, epoch) for count in counts]
    common.finish("lenet", rows, ["torch"])


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in SYSTEMS:
        common.serve(answers(sys.argv[1]))
    else:
        given = sys.argv[1:]
        main([int(x) for x in given if x != "--epoch"] or [1, 2], "--epoch" in given)
