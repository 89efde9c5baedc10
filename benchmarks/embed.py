"""MiniLM sentence embedding, f32: ours against onnxruntime (plain and fused graph).

    python benchmarks/embed.py            both, alternating, 1 and 2 threads
    python benchmarks/embed.py ours       one measured process

Texts: 14 words (16 tokens) and 198 words (200 tokens), batch 1 and 32, tokenising included in
both. The peer's ONNX files are minilm.onnx and minilm_fused.onnx in CANDLE_PEERS_DATA.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "market",
    "prices",
    "rise",
    "and",
    "people",
    "read",
    "about",
    "science",
    "music",
    "travel",
    "food",
    "water",
    "energy",
    "history",
    "city",
    "school",
    "river",
    "mountain",
    "season",
    "garden",
]
DATA = Path(os.environ.get("CANDLE_PEERS_DATA", Path.home() / ".cache/candle-peers/data"))


def texts(count: int, words: int, seed: int) -> list[str]:
    """Texts of common words, each one token."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(words)) for _ in range(count)]


def measure(encode: Callable[[list[str]], Any]) -> common.Row:
    """Milliseconds at batch 1, texts a second at batch 32, for short and long texts."""
    row: common.Row = {}
    for name, words, count in (("short", 14, 256), ("long", 198, 64)):
        some, turn = texts(count, words, len(name)), [0]

        def one(some: list[str] = some, turn: list[int] = turn) -> None:
            turn[0] = (turn[0] + 1) % len(some)
            encode([some[turn[0]]])

        row[f"{name}_b1_ms"] = common.timed(one, 1.5, 400, 8) * 1e3

        def batch(some: list[str] = some) -> None:
            for k in range(0, len(some), 32):
                encode(some[k : k + 32])

        row[f"{name}_b32_per_s"] = len(some) / common.timed(batch, 3.0, 9, 1)
    return row


def ours() -> common.Row:
    """Candle, through the public Embedder."""
    from candle_rag import Embedder

    embedder = Embedder.load("all-minilm-l6-v2")
    return measure(lambda batch: embedder.embed(batch))


def onnxruntime(path: str) -> common.Row:
    """onnxruntime with Hugging Face tokenizers, mean pooling and normalising in NumPy."""
    import numpy as np
    import onnxruntime as ort
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(DATA / "minilm/tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def encode(batch: list[str]) -> Any:
        encoded = tokenizer.encode_batch(batch)
        ids = np.array([e.ids for e in encoded], np.int64)
        mask = np.array([e.attention_mask for e in encoded], np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, {k: feed[k] for k in names})[0]
        weight = mask[..., None].astype(np.float32)
        pooled = (hidden * weight).sum(1) / weight.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    return measure(encode)


def main() -> None:
    here = Path(__file__).resolve()
    peers = common.peer_python()
    rows: list[common.Row] = []
    for threads in (1, 2):
        systems = {"candle": lambda t=threads: common.worker(sys.executable, here, ["ours"], t)}
        for name in ("minilm", "minilm_fused"):
            path = DATA / f"{name}.onnx"
            if peers and path.exists():
                systems[f"onnxruntime {name}"] = lambda t=threads, p=path: common.worker(
                    peers, here, ["onnxruntime", str(p)], t
                )
        found = common.alternate(3, systems)
        mine = found["candle"]
        for system, row in found.items():
            ratios = {
                f"ours/{k}": (row[k] / mine[k] if k.endswith("_ms") else mine[k] / row[k])
                for k in row
            }
            rows.append({"system": system, "threads": threads, **row, **ratios})
    common.table(rows)
    facts = versions = {}
    if peers:
        versions = common.versions(peers, ["onnxruntime", "tokenizers", "numpy"])
    facts = {
        "peers": versions,
        "note": "ours/x is our speed over that system's: above 1 we are faster",
    }
    print(common.save("embed", rows, **facts))


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours()))
    elif sys.argv[1:2] == ["onnxruntime"]:
        print(json.dumps(onnxruntime(sys.argv[2])))
    else:
        main()
