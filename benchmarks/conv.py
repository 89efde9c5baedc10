"""Convolution and its two gradients beside PyTorch: the layers of LeNet-5, ResNet-18, MobileNet.

    python benchmarks/conv.py [--only WORDS] [--quick] [THREADS ...]

One process a thread count holds both systems, which take turns round by round; medians are kept.
Both are called eagerly, allocate their result and add no bias; a gradient call makes that gradient
alone. The floor of a call is the greater of its arithmetic at the speed of the best product of two
1024 x 1024 matrices that either system made in this process, and of its bytes, each touched once,
at the speed of a copy of as many bytes. `peak` is the share of that product's speed, `floor` the
share of the floor's time.
"""

from __future__ import annotations

import argparse
import json
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

Call = Callable[[], object]
# net, channels in, height, channels out, kernel, stride, padding, groups
LENET = [("lenet", 1, 28, 6, 5, 1, 0, 1), ("lenet", 6, 12, 16, 5, 1, 0, 1)]
RESNET = [
    ("resnet", 3, 224, 64, 7, 2, 3, 1),
    ("resnet", 64, 56, 64, 3, 1, 1, 1),
    ("resnet", 64, 56, 128, 3, 2, 1, 1),
    ("resnet", 64, 56, 128, 1, 2, 0, 1),
    ("resnet", 128, 28, 128, 3, 1, 1, 1),
    ("resnet", 128, 28, 256, 3, 2, 1, 1),
    ("resnet", 256, 14, 256, 3, 1, 1, 1),
    ("resnet", 256, 14, 512, 3, 2, 1, 1),
    ("resnet", 512, 7, 512, 3, 1, 1, 1),
]
MOBILENET = [
    ("mobilenet", 3, 224, 32, 3, 2, 1, 1),
    ("mobilenet", 32, 112, 32, 3, 1, 1, 32),
    ("mobilenet", 32, 112, 64, 1, 1, 0, 1),
    ("mobilenet", 16, 112, 96, 1, 1, 0, 1),
    ("mobilenet", 64, 112, 64, 3, 2, 1, 64),
    ("mobilenet", 128, 56, 128, 3, 1, 1, 128),
    ("mobilenet", 128, 56, 128, 1, 1, 0, 1),
    ("mobilenet", 144, 56, 32, 1, 1, 0, 1),
    ("mobilenet", 128, 56, 128, 3, 2, 1, 128),
    ("mobilenet", 256, 28, 256, 3, 1, 1, 256),
    ("mobilenet", 256, 28, 256, 1, 1, 0, 1),
    ("mobilenet", 512, 14, 512, 3, 1, 1, 512),
    ("mobilenet", 512, 14, 512, 1, 1, 0, 1),
    ("mobilenet", 960, 7, 960, 3, 1, 1, 960),
    ("mobilenet", 1024, 7, 1024, 1, 1, 0, 1),
]
PAUSE = 0.06  # seconds
CASES = [(64, *c) for c in LENET] + [(b, *c) for b in (1, 8) for c in RESNET + MOBILENET]


class Bench:
    """Both systems in this process, and the machine's two speeds."""

    def __init__(self, threads: int, quick: bool) -> None:
        import numpy as np
        import torch

        from candle import Tensor, _native, functional, op

        self.np, self.torch, self.tensor, self.op, self.f = np, torch, Tensor, op, functional
        self.threads, self.rng = threads, np.random.default_rng(0)
        self.pace = (2, 0.03, PAUSE) if quick else (4, 0.05, PAUSE)
        torch.set_num_threads(threads)
        _native.set_threads(threads)
        self.peak = self._peak()

    def draw(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape, self.np.float32)

    def _peak(self) -> float:
        """FLOP/s of the best product of two 1024 x 1024 matrices."""
        a, b = self.draw(1024, 1024), self.draw(1024, 1024)
        ours, other = self.tensor.from_numpy(a), self.tensor.from_numpy(b)
        theirs = self.torch.from_numpy(a), self.torch.from_numpy(b)
        calls: dict[str, Call] = {
            "candle": lambda: ours @ other,
            "torch": lambda: theirs[0] @ theirs[1],
        }
        return 2 * 1024**3 / min(common.take_turns(calls, self.threads, 4, 0.2, PAUSE).values())

    def copy_seconds(self, nbytes: int) -> float:
        """Time to read half of the bytes and write the other half."""
        a = self.np.zeros(max(nbytes // 8, 1), self.np.float32)
        b = self.np.ones_like(a)
        return common.timed(lambda: self.np.copyto(b, a), 0.02) / self.threads

    def rows(self, case: tuple[Any, ...]) -> list[common.Row]:
        """The three directions of a case."""
        batch, net, c, h, o, k, s, p, g = case
        np, aten, op = self.np, self.torch.ops.aten, self.op
        x, w = self.draw(batch, c, h, h), self.draw(o, c // g, k, k)
        size = (h + 2 * p - k) // s + 1
        grad = self.draw(batch, o, size, size)
        tx, tw, tg = (self.torch.from_numpy(a) for a in (x, w, grad))
        cx, cw, cg = (self.tensor.from_numpy(a) for a in (x, w, grad))
        how = ((s, s), (p, p), (1, 1), g)

        def theirs(mask: list[bool]) -> Call:
            given = (None, [s, s], [p, p], [1, 1], False, [0, 0], g, mask)
            return lambda: aten.convolution_backward(tg, tx, tw, *given)

        calls: dict[str, tuple[Call, Call]] = {
            "forward": (
                lambda: self.f.conv2d(cx, cw, stride=s, padding=p, groups=g),
                lambda: self.torch.nn.functional.conv2d(tx, tw, None, s, p, 1, g),
            ),
            "input": (
                lambda: cg.apply(op.ConvTranspose2d((cg, cw), *how, (h, h))),
                theirs([True, False, False]),
            ),
            "weight": (
                lambda: cx.apply(op.Conv2dWeight((cx, cg), *how, (k, k))),
                theirs([False, True, False]),
            ),
        }
        flop = 2 * batch * o * size * size * (c // g) * k * k
        nbytes = 4 * sum(int(np.prod(a.shape)) for a in (x, w, grad))
        floor = max(flop / self.peak, self.copy_seconds(nbytes))
        kind = f"{k}x{k}" + (f"/{s}" if s > 1 else "") + (" dw" if g > 1 else "")
        return [
            self.row((net, f"{batch} x {c}@{h}->{o}", kind, name), flop, floor, *pair)
            for name, pair in calls.items()
        ]

    def row(
        self, labels: tuple[str, ...], flop: float, floor: float, ours: Call, theirs: Call
    ) -> Any:
        with self.torch.no_grad():
            took = common.take_turns({"candle": ours, "torch": theirs}, self.threads, *self.pace)
        row: common.Row = dict(zip(("net", "shape", "kernel", "pass"), labels, strict=True))
        row |= {"threads": self.threads, "floor us": floor * 1e6}
        row |= {f"{name} us": s * 1e6 for name, s in took.items()}
        row["candle GF/s"] = flop / took["candle"] / 1e9
        row["peak"] = flop / took["candle"] / self.peak
        row["floor"] = floor / took["candle"]
        row["ratio"] = took["torch"] / took["candle"]
        return row


def work(threads: int, only: str, quick: bool) -> None:
    """The measured process: every case that has all words of `only` in its labels."""
    bench, rows = Bench(threads, quick), []
    for case in CASES:
        batch, net, c, h, _, k, s, _, g = case
        name = (
            f"{net} b{batch} {k}x{k}{f'/{s}' if s > 1 else ''} {'dw' if g > 1 else 'dense'} {c}@{h}"
        )
        if all(word in name for word in only.split()):
            rows += bench.rows(case)
            print(name, [round(r["ratio"], 2) for r in rows[-3:]], file=sys.stderr, flush=True)
    print(json.dumps({"rows": rows, "peak": bench.peak / 1e9}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--worker", default="", help="where this Python keeps cffi, which peers lack"
    )
    a = parser.parse_args()
    if a.worker:
        sys.path[:] = [str(common.ROOT / "src"), *sys.path, a.worker]
        work(a.threads[0], a.only, a.quick)
        return
    python = common.peer_python() or sys.exit("the peers' environment is not here: see README")
    own = sysconfig.get_path("platlib")
    script, flags = (
        Path(__file__).resolve(),
        ["--only", a.only, *["--quick"] * a.quick, "--worker", own],
    )
    found = [common.worker(python, script, [*flags, str(t)], t) for t in a.threads]
    rows = [row for part in found for row in part["rows"]]
    common.table(rows)
    met = sum(row["ratio"] >= 1.0 for row in rows)
    print(f"\n{met} of {len(rows)} at or above 1.0x; peak {[round(f['peak']) for f in found]} GF/s")
    if not a.only and not a.quick:
        peaks = {str(t): f["peak"] for t, f in zip(a.threads, found, strict=True)}
        peers = common.versions(python, ("numpy", "torch"))
        print(common.save("conv", rows, peak_gflops=peaks, peers=peers))


if __name__ == "__main__":
    main()
