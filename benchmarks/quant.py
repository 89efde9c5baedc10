"""Products with quantised blocks: bytes a second when decoding, products a second in prompts.

    python benchmarks/quant.py [ISA ...]    of this machine the best, if none is named

`read`: this machine's floor for decoding, a NumPy reduction over memory that no cache holds. A
weight of 640 x 2048 stays in the second-level cache; one of 131,072 x 640 comes from memory. GMAC:
10^9 products and sums. llama.cpp is compared on whole models, in llm.py.
"""

from __future__ import annotations

import sys

import numpy as np

import common
from candle import DType, Tensor, _native, no_grad
from candle import functional as F

FORMATS = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
CACHED, STREAMED = (640, 2048), (131072, 640)
TOKENS = 512


def weight(name: str, n: int, k: int) -> Tensor:
    """Random blocks [n, k]; scales are of no account for speed, but must not be NaN."""
    dtype = DType.of(name)
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (n, k // dtype.block, dtype.size), dtype=np.uint8)
    scale = np.float16(0.01).tobytes()
    for at in (208,) if name == "q6_k" else (0, 2) if name[-1] in "1k" else (0,):
        raw[..., at : at + 2] = np.frombuffer(scale, np.uint8)
    return Tensor.from_buffer(raw.reshape(-1), dtype, (n, k))


def seconds(w: Tensor, tokens: int) -> float:
    """Median seconds of a product with `tokens` rows of activations."""
    rng = np.random.default_rng(1)
    x = Tensor.from_numpy(rng.standard_normal((tokens, w.shape[1]), np.float32))
    return common.timed(lambda: F.linear(x, w), 0.5, 500)


def read_gb_s() -> float:
    """Bytes a second, 10^9, of reading what no cache holds, in one thread."""
    a = np.ones(32 << 20, np.float32)
    return a.nbytes / common.timed(a.max, 1.0) / 1e9


def measure(isa: str, threads: int, floor: float) -> list[common.Row]:
    """One row a format."""
    _native.set_isa(isa)
    _native.set_threads(threads)
    rows: list[common.Row] = []
    for name in FORMATS:
        row: common.Row = {"isa": isa, "threads": threads, "format": name}
        for label, (n, k) in (("cached", CACHED), ("streamed", STREAMED)):
            if DType.of(name).block == 256:
                k = k // 256 * 256
            w = weight(name, n, k)
            one = seconds(w, 1)
            nbytes = n * k // DType.of(name).block * DType.of(name).size
            row |= {f"{label}_GB_s": nbytes / one / 1e9, f"{label}_GMAC_s": n * k / one / 1e9}
        row["streamed/read"] = row["streamed_GB_s"] / floor
        n, k = CACHED
        row["prompt_GMAC_s"] = TOKENS * n * k / seconds(weight(name, n, k), TOKENS) / 1e9
        rows.append(row)
    return rows


def main(isas: list[str]) -> None:
    floor = read_gb_s()
    rows = [row for isa in isas for threads in (1, 2) for row in measure(isa, threads, floor)]
    print(f"read: {floor:.1f} GB/s in one thread\n")
    common.table(rows)
    print(common.save("quant", rows, read_GB_s=floor))


if __name__ == "__main__":
    with no_grad():
        main(sys.argv[1:] or [_native.isa()])
