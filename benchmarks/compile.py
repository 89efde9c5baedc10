"""Compiled image nets beside onnxruntime, f32; the memory of ResNet-50 beside PyTorch's eager mode.

    python benchmarks/compile.py [--memory] [NET ...]

The nets are those of candle.models with the weights they draw; peers get the same weights and the
same graph (vision_nets.py), and their answers are compared with ours. Systems take turns in rounds.
Memory is the most that a fresh process had resident, and what of it lay above the imports and the
weights: ours opens a stored plan, PyTorch's builds the net from its weights. Bars: latency at most
onnxruntime's; memory at most 0.6 of PyTorch's.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

BATCHES = {
    "ResNet-18": (1, 8),
    "ResNet-50": (1, 8),
    "EfficientNet-lite0": (1, 8),
    "LeNet-5": (1, 64, 1000),
}
PEERS = ("onnxruntime", "torch")
MEMORY = "ResNet-50"


def shape_of(net: str, batch: int) -> tuple[int, ...]:
    """Of an input."""
    return (batch, 1, 28, 28) if net == "LeNet-5" else (batch, 3, 224, 224)


def our_net(net: str, weights: Path) -> Any:
    """Our model; its weights are saved where they are not yet."""
    from candle import manual_seed, nn
    from candle import weights as files
    from candle.models.mobilenet import efficientnet_lite0
    from candle.models.resnet import ResNet
    from candle.nn import VarBuilder

    sys.path.insert(0, str(common.ROOT / "examples"))
    from lenet import LeNet

    makers: dict[str, Callable[[VarBuilder], nn.Module]] = {
        "ResNet-18": lambda vb: ResNet.new(18, vb),
        "ResNet-50": lambda vb: ResNet.new(50, vb),
        "EfficientNet-lite0": efficientnet_lite0,
        "LeNet-5": LeNet,
    }
    manual_seed(1)
    vb = VarBuilder.open(weights) if weights.exists() else VarBuilder()
    made = makers[net](vb)
    if not weights.exists():
        files.save_safetensors(weights, vb.made)
    made.eval()
    return made


def candle(net: str, batch: int, weights: Path) -> Callable[[], Any]:
    """A call of the compiled net."""
    import numpy as np

    from candle import Tensor
    from candle import compile as compiled

    x = Tensor.from_numpy(images(net, batch))
    run = compiled(our_net(net, weights), x)
    facts = {"arena_mb": run.arena.nbytes / 1e6, "bound_mb": run.arena.bound / 1e6}
    call = lambda: np.asarray(run(x).numpy())  # noqa: E731
    call.facts = facts  # type: ignore[attr-defined]
    return call


def stored(batch: int, weights: Path) -> Callable[[], Any]:
    """A call of a plan from a file."""
    from candle import Tensor, load_plan

    run, x = load_plan(weights.with_suffix(f".{batch}.plan")), images(MEMORY, batch)
    return lambda: run(Tensor.from_numpy(x))


def store(batch: int, weights: Path) -> None:
    """Writes that file."""
    from candle import Tensor
    from candle import compile as compiled

    x = Tensor.from_numpy(images(MEMORY, batch))
    compiled(our_net(MEMORY, weights), x).save(weights.with_suffix(f".{batch}.plan"))


def peer_weights(weights: Path) -> dict[str, Any]:
    """As NumPy arrays."""
    from safetensors.numpy import load_file

    return dict(load_file(weights))


def onnxruntime(net: str, batch: int, weights: Path) -> Callable[[], Any]:
    """A call of a session on the same net."""
    import onnxruntime as ort

    from vision_nets import NETS, Onnx

    path = weights.with_suffix(f".{batch}.onnx")
    Onnx(peer_weights(weights), shape_of(net, batch)).save(NETS[net], str(path))
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    x = images(net, batch)
    return lambda: session.run(None, {"x": x})[0]


def torch(net: str, batch: int, weights: Path) -> Callable[[], Any]:
    """A call of PyTorch's eager mode."""
    import torch as peer

    from vision_nets import NETS, Torch

    peer.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    backend, x = Torch(peer_weights(weights)), peer.from_numpy(images(net, batch))

    def call() -> Any:
        with peer.inference_mode():
            return NETS[net](backend, x).numpy()

    return call


def images(net: str, batch: int) -> Any:
    """The same for all."""
    import numpy as np

    return np.random.default_rng(0).standard_normal(shape_of(net, batch), np.float32)


SYSTEMS = {"candle": candle, "onnxruntime": onnxruntime, "torch": torch}


def serve(system: str, net: str, batch: int, weights: Path) -> None:
    """Answers each line with a round of measuring."""
    import numpy as np

    call = SYSTEMS[system](net, batch, weights)
    np.save(weights.with_suffix(f".{system}.npy"), call())
    facts = getattr(call, "facts", {})

    def answer(_: str) -> common.Row:
        return {"ms": common.timed(call, 0.5, 400, 2) * 1e3, **facts}

    common.serve(answer)


def resident(name: str) -> float:
    """MB of this process now (VmRSS) or at most (VmHWM)."""
    status = Path("/proc/self/status").read_text().split(name + ":")[1]
    return int(status.split()[0]) / 1024


def memory(system: str, batch: int, weights: Path) -> None:
    """Peak memory of a process that answers three times."""
    import importlib

    importlib.import_module("candle.compiler" if system == "candle" else "torch")
    import numpy as np  # noqa: F401

    base = resident("VmRSS")
    call = stored(batch, weights) if system == "candle" else torch(MEMORY, batch, weights)
    for _ in range(3):
        call()
    held = weights.stat().st_size / 2**20
    peak = resident("VmHWM")
    row = {"peak_mb": peak, "above_weights_mb": peak - base - held, "imports_mb": base}
    import json

    print(json.dumps(row))


def differ(weights: Path, peer: str) -> float:
    """The largest difference of the answers, over the largest answer."""
    import numpy as np

    ours, theirs = (np.load(weights.with_suffix(f".{s}.npy")) for s in ("candle", peer))
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def measure(net: str, batch: int, threads: int, folder: Path) -> common.Row:
    """One net at one size, in turns."""
    here, weights = Path(__file__).resolve(), folder / f"{net}.safetensors"
    our_net(net, weights)
    pythons = {"candle": sys.executable, "onnxruntime": common.peer_python()}
    sides = {
        s: common.Partner(p, here, ["serve", s, net, str(batch), str(weights)], threads)
        for s, p in pythons.items()
        if p
    }
    found = common.alternate(5, {s: lambda p=p: p.ask("") for s, p in sides.items()})
    for partner in sides.values():
        partner.close()
    mine = found["candle"]
    row = {"net": net, "batch": batch, "threads": threads, "candle_ms": mine["ms"]}
    if "onnxruntime" in found:
        row["onnxruntime_ms"] = found["onnxruntime"]["ms"]
        row["ratio"] = mine["ms"] / row["onnxruntime_ms"]
        row["differ"] = differ(weights, "onnxruntime")
    return row | {"arena_mb": mine["arena_mb"], "bound_mb": mine["bound_mb"]}


def measure_memory(batch: int, threads: int, folder: Path) -> common.Row:
    """ResNet-50 in fresh processes."""
    here, weights = Path(__file__).resolve(), folder / f"{MEMORY}.safetensors"
    store(batch, weights)
    row: common.Row = {"net": f"{MEMORY}, memory", "batch": batch, "threads": threads}
    for system, python in (("candle", sys.executable), ("torch", common.peer_python())):
        if python:
            args = ["memory", system, MEMORY, str(batch), str(weights)]
            found = common.worker(python, here, args, threads)
            row |= {f"{system}_{k}": v for k, v in found.items()}
    if "torch_peak_mb" in row:
        for name in ("peak", "above_weights"):
            row[f"{name}_ratio"] = row[f"candle_{name}_mb"] / row[f"torch_{name}_mb"]
    return row


def main(asked: list[str]) -> None:
    rows = []
    nets = [n for n in BATCHES if n in asked or not asked]
    with tempfile.TemporaryDirectory() as folder:
        for net in nets:
            for threads in (1, 2):
                rows += [measure(net, b, threads, Path(folder)) for b in BATCHES[net]]
        if "--memory" in asked or not asked:
            rows += [measure_memory(b, t, Path(folder)) for t in (1, 2) for b in BATCHES[MEMORY]]
    common.finish("compile", rows, ("onnxruntime", "torch", "numpy"))


if __name__ == "__main__":
    what = sys.argv[1:2]
    if what in (["serve"], ["memory"]):
        system, net, batch, weights = sys.argv[2:]
        if what == ["serve"]:
            serve(system, net, int(batch), Path(weights))
        else:
            memory(system, int(batch), Path(weights))
    else:
        main(sys.argv[1:])
