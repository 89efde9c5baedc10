"""How exact the decoders are: against a NumPy float64 forward pass, and against llama.cpp.

    python benchmarks/logits.py [MODEL.gguf ...]

For each model: (1) precision="f32": 64 greedy steps on 8 prompts, the oracle's choice at every
step, and the greatest logit error; (2) the default integer kernels: mean KL divergence from the
oracle over 500 positions of WikiText-2, beside llama.cpp's from the same oracle on the same ids.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

HERE = Path(__file__).resolve()
DATA = Path.home() / ".cache/candle-peers/data"
MODELS = [DATA / "smollm2-135m-instruct-q4_1.gguf", DATA / "gemma-3-270m-q4_k_m.gguf"]
TEXT = common.ROOT.parent / "shared/data/wikitext-2/wiki.test.txt"
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "The three laws of thermodynamics are",
    "Water boils at 100 degrees because",
    "In 1969, humans first",
    "Q: What is the largest planet?\nA:",
    "The recipe needs two eggs, some flour and",
]
STEPS, POSITIONS = 64, 500


def log_softmax(x: Any) -> Any:
    """Over the last axis, f64."""
    import numpy as np

    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def mean_kl(expected: Any, logits: Any) -> float:
    """Mean over rows of KL(expected || logits); `expected` are log-probabilities."""
    import numpy as np

    total = 0.0
    for e, row in zip(expected, logits, strict=True):
        e = np.asarray(e, np.float64)
        total += float((np.exp(e) * (e - log_softmax(row))).sum())
    return total / len(expected)


def ours_greedy(model: str, folder: Path) -> None:
    """Greedy tokens and logits of each prompt, in f32."""
    import numpy as np

    from candle_llm import Generator

    generator = Generator.load(model, precision="f32")
    rows = []
    for n, prompt in enumerate(PROMPTS):
        ids = generator.tokenize(prompt)
        start, cache = len(ids), generator.new_cache()
        logits, kept = generator.model(ids, cache), []
        for _ in range(STEPS):
            kept.append(logits.numpy())
            ids.append(int(logits.argmax()))
            logits = generator.model(ids[-1:], cache)
        np.save(folder / f"greedy{n}.npy", np.stack(kept))
        rows.append({"ids": ids, "start": start})
    text_ids = generator.tokenize(TEXT.read_text(encoding="utf-8")[:20000])[:POSITIONS]
    (folder / "greedy.json").write_text(json.dumps({"prompts": rows, "text": text_ids}))
    print("{}")


def oracle(model: str, folder: Path) -> None:
    """Compares the greedy run with the oracle, and keeps its log-probabilities of the text."""
    import numpy as np

    from oracle_decoder import Oracle

    given = json.loads((folder / "greedy.json").read_text())
    reference, same, worst = Oracle(model), 0, 0.0
    for n, row in enumerate(given["prompts"]):
        ids, start = row["ids"], row["start"]
        expected = reference.logits(ids[:-1])[start - 1 :]
        mine = np.load(folder / f"greedy{n}.npy")
        same += int((expected.argmax(-1) == np.array(ids[start:])).sum())
        worst = max(worst, float(np.abs(expected - mine).max()))
    logits = reference.logits(given["text"])
    np.save(folder / "expected.npy", log_softmax(logits).astype(np.float32))
    print(json.dumps({"same_tokens": same, "of": STEPS * len(PROMPTS), "max_abs_error": worst}))


def ours_kl(model: str, folder: Path) -> None:
    """KL of the default kernels."""
    import numpy as np

    from candle_llm import Generator

    generator = Generator.load(model)
    ids = json.loads((folder / "greedy.json").read_text())["text"]
    logits = generator.logits(ids).numpy()
    expected = np.load(folder / "expected.npy", mmap_mode="r")
    print(json.dumps({"mean_kl": mean_kl(expected, logits)}))


def llama_kl(model: str, folder: Path) -> None:
    """KL of llama.cpp."""
    import numpy as np
    from llama_cpp import Llama

    ids = json.loads((folder / "greedy.json").read_text())["text"]
    llama = Llama(model, n_ctx=1024, n_batch=512, logits_all=True, verbose=False)
    llama.eval(ids)
    expected = np.load(folder / "expected.npy", mmap_mode="r")
    print(json.dumps({"mean_kl": mean_kl(expected, llama.scores[: len(ids)])}))


def main(models: list[Path]) -> None:
    peers = common.peer_python()
    if peers is None or not TEXT.exists():
        sys.exit("needs the peers' environment (CANDLE_PEERS) and ../shared/data")
    rows = []
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            args = [str(model), folder]
            common.worker(sys.executable, HERE, ["ours_greedy", *args], 2)
            exact = common.worker(peers, HERE, ["oracle", *args], 2, 3000)
            mine = common.worker(sys.executable, HERE, ["ours_kl", *args], 2)
            theirs = common.worker(peers, HERE, ["llama_kl", *args], 2)
        row = {"model": model.stem, **exact, "kl_ours": mine["mean_kl"]}
        rows.append({**row, "kl_llama_cpp": theirs["mean_kl"], "positions": POSITIONS})
    common.table(rows)
    print(common.save("logits", rows, peers=common.versions(peers, ["llama-cpp-python", "gguf"])))


if __name__ == "__main__":
    kinds = {f.__name__: f for f in (ours_greedy, oracle, ours_kl, llama_kl)}
    if sys.argv[1:2] and sys.argv[1] in kinds:
        kinds[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
    else:
        main([Path(p) for p in sys.argv[1:]] or MODELS)
