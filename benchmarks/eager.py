"""Overhead of eager mode: calls on tensors of four elements, beside NumPy's and PyTorch's.

    python benchmarks/eager.py

The floor is the bare native call with its arguments packed: what no Python around it can save.
Bars: an add takes less than 2 us, all Python included. Numbers are the fastest of many short
rounds, since noise only adds; the systems alternate in fresh processes on one thread.
"""

from __future__ import annotations

import json
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

import common

RUNS, ROUNDS, CALLS = 3, 300, 500
Calls = dict[str, Callable[[], object]]


def candle_calls() -> Calls:
    """Ours, with the floor."""
    from candle import Tensor, Var, _native, eager

    a, b, m, v = Tensor([1.0] * 4), Tensor([2.0] * 4), Tensor([[1.0, 2.0]] * 2), Var([1.0] * 4)
    out = eager.new_view(a.dtype, a.shape)
    views = [out, a.data, b.data]
    packed = eager._pack3(*(n for x in views for n in (x.address, x.layout.address)))
    add, nothing, step = _native.op_id("add"), bytes(80), _native.step
    return {
        "floor: the native add alone": lambda: step(add, packed, 3, nothing),
        "add": lambda: a.add(b),
        "add a number": lambda: a.add(1.5),
        "neg": lambda: a.neg(),
        "sum": lambda: a.sum(),
        "matmul 2x2": lambda: m.matmul(m),
        "add, recorded": lambda: v.add(b),
        "add, mul, sum, backward": lambda: v.add(b).mul(a).sum().backward(),
        "reshape": lambda: m.reshape((4,)),
        "narrow": lambda: m.narrow(0, 1, 1),
        "transpose": lambda: m.transpose(0, 1),
        "row by index": lambda: m[1],
    }


def torch_calls() -> Calls:
    """PyTorch's."""
    import torch

    a, b = torch.tensor([1.0] * 4), torch.tensor([2.0] * 4)
    m, v = torch.tensor([[1.0, 2.0]] * 2), torch.tensor([1.0] * 4, requires_grad=True)
    return {
        "add": lambda: a.add(b),
        "add a number": lambda: a.add(1.5),
        "neg": lambda: a.neg(),
        "sum": lambda: a.sum(),
        "matmul 2x2": lambda: m.matmul(m),
        "add, recorded": lambda: v.add(b),
        "add, mul, sum, backward": lambda: v.add(b).mul(a).sum().backward(),
        "reshape": lambda: m.reshape((4,)),
        "narrow": lambda: m.narrow(0, 1, 1),
        "transpose": lambda: m.transpose(0, 1),
        "row by index": lambda: m[1],
    }


def numpy_calls() -> Calls:
    """NumPy's, which keeps no records."""
    import numpy as np

    a, b = np.ones(4, np.float32), np.ones(4, np.float32)
    m = np.ones((2, 2), np.float32)
    return {
        "add": lambda: np.add(a, b),
        "add a number": lambda: np.add(a, 1.5),
        "neg": lambda: np.negative(a),
        "sum": lambda: a.sum(),
        "matmul 2x2": lambda: np.matmul(m, m),
        "reshape": lambda: m.reshape((4,)),
        "narrow": lambda: m[1:2],
        "transpose": lambda: m.transpose((1, 0)),
        "row by index": lambda: m[1],
    }


SYSTEMS = {"candle": candle_calls, "torch": torch_calls, "numpy": numpy_calls}


def fastest(call: Callable[[], object]) -> float:
    """Nanoseconds of a call in the fastest round."""
    return min(timeit.Timer(call).repeat(ROUNDS, CALLS)) / CALLS * 1e9


def measure(system: str) -> common.Row:
    """Call to nanoseconds, the empty call taken off."""
    empty = fastest(lambda: None)
    return {name: round(fastest(call) - empty) for name, call in SYSTEMS[system]().items()}


def main() -> None:
    here, peers = sys.executable, common.peer_python()
    pythons = {"candle": here} | ({"torch": peers, "numpy": peers} if peers else {})
    runs = {
        name: lambda name=name, python=python: common.worker(python, Path(__file__), [name], 1)
        for name, python in pythons.items()
    }
    found = common.alternate(RUNS, runs)
    rows = [
        {"call": call, **{f"{s} ns": times.get(call, "-") for s, times in found.items()}}
        for call in found["candle"]
    ]
    common.table(rows)
    facts = common.versions(peers, ["torch", "numpy"]) if peers else {}
    print(common.save("eager", rows, python=sys.version.split()[0], peers=facts))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
