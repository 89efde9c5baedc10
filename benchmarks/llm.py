"""Decoding and prompt processing, ours against llama.cpp on the same GGUF file.

    python benchmarks/llm.py [MODEL.gguf ...]        both, alternating, 1 and 2 threads

pp512: 512 tokens of prompt, tokens a second. tg64: 64 tokens one by one after 16 of prompt. The
model call alone is timed on both sides: no sampling, no text.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

import common

HERE = Path(__file__).resolve()
DATA = Path.home() / ".cache/candle-peers/data"
MODELS = [DATA / "gemma-3-270m-q4_k_m.gguf", DATA / "smollm2-135m-instruct-q4_1.gguf"]
PROMPT, STEPS = 512, 64


def prompt_ids(vocabulary: int) -> list[int]:
    """The same ordinary ids for both."""
    return [(7919 * k + 1000) % min(vocabulary, 40000) for k in range(PROMPT)]


def ours(model: str) -> common.Row:
    from candle_llm import Generator

    start = perf_counter()
    generator = Generator.load(model)
    row: common.Row = {"load_s": perf_counter() - start}
    ids = prompt_ids(generator.model.vocabulary)

    def prompt() -> None:
        generator.model(ids, generator.new_cache())

    row["pp512_tok_s"] = PROMPT / common.timed(prompt, 4.0, 5, 1)

    def decode() -> float:
        cache = generator.new_cache()
        logits = generator.model(ids[:16], cache)
        start = perf_counter()
        for _ in range(STEPS):
            logits = generator.model([int(logits.argmax())], cache)
        return perf_counter() - start

    decode()
    row["tg64_tok_s"] = STEPS / sorted(decode() for _ in range(3))[1]
    return row | {"peak_rss_MiB": peak()}


def llama(model: str) -> common.Row:
    import numpy as np
    from llama_cpp import Llama

    threads = int(os.environ["OMP_NUM_THREADS"])
    start = perf_counter()
    llm = Llama(model, n_ctx=1024, n_batch=512, n_ubatch=512, n_threads=threads,
                n_threads_batch=threads, verbose=False)  # fmt: skip
    row: common.Row = {"load_s": perf_counter() - start}
    ids = prompt_ids(llm.n_vocab())

    def last() -> int:
        scores = np.ctypeslib.as_array(llm._ctx.get_logits_ith(-1), (llm.n_vocab(),))
        return int(scores.argmax())

    def prompt() -> None:
        llm.reset()
        llm.eval(ids)

    row["pp512_tok_s"] = PROMPT / common.timed(prompt, 4.0, 5, 1)

    def decode() -> float:
        llm.reset()
        llm.eval(ids[:16])
        start = perf_counter()
        for _ in range(STEPS):
            llm.eval([last()])
        return perf_counter() - start

    decode()
    row["tg64_tok_s"] = STEPS / sorted(decode() for _ in range(3))[1]
    return row | {"peak_rss_MiB": peak()}


def peak() -> float:
    """Peak resident memory of this process, MiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(models: list[Path]) -> None:
    peers = common.peer_python()
    rows: list[common.Row] = []
    for model in models:
        for threads in (1, 2):
            a = [str(model)]
            systems = {
                "candle": lambda t=threads, a=a: common.worker(
                    sys.executable, HERE, ["ours", *a], t
                )
            }
            if peers:
                systems["llama.cpp"] = lambda t=threads, a=a: common.worker(
                    peers, HERE, ["llama", *a], t
                )
            found = common.alternate(3, systems)
            for system, row in found.items():
                ratio = {
                    f"ours/{k}": found["candle"][k] / row[k] for k in ("pp512_tok_s", "tg64_tok_s")
                }
                rows.append(
                    {"model": model.stem, "threads": threads, "system": system, **row, **ratio}
                )
    common.table(rows)
    versions = common.versions(peers, ["llama-cpp-python"]) if peers else {}
    print(common.save("llm", rows, peers=versions))


if __name__ == "__main__":
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(sys.argv[2])))
    elif sys.argv[1:2] == ["llama"]:
        print(json.dumps(llama(sys.argv[2])))
    else:
        main([Path(p) for p in sys.argv[1:]] or MODELS)
