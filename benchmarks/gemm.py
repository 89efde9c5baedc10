"""f32 products, attention and exact search: the kernels alone, beside NumPy, PyTorch and FAISS.

    python benchmarks/gemm.py [THREADS ...]

One process a thread count holds all systems, which take turns; medians are kept. Peers that the
peers' environment lacks are left out. `linear` has its weight packed, as the models do,
and adds a bias; PyTorch's does, NumPy's is the product alone. `nearest` finds the 10 best rows;
NumPy's is again the product alone. GFLOP/s; GB/s of weights, keys and values, or vectors.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common

Calls = dict[str, Callable[[], object]]
PEERS = ("numpy", "torch", "faiss-cpu")

LINEAR = [
    (1, 384, 384), (1, 1536, 384), (1, 384, 1536), (1, 4096, 4096), (8, 384, 384), (8, 1536, 384),
    (16, 384, 1536), (64, 384, 384), (256, 384, 384), (256, 1536, 384), (256, 384, 1536),
    (1, 2048, 2048), (8, 2048, 2048), (64, 2048, 2048), (1000, 1000, 1000),
]  # fmt: skip
MATMUL = [
    *(("", 1, n, n, n) for n in (256, 512, 1024, 2048)),
    *(("", 1, m, 2048, 2048) for m in (1, 8, 64)),
    ("a^T", 1, 512, 512, 2048), ("batch", 64, 64, 64, 64),
]  # fmt: skip
ATTENTION = [  # batch, queries, keys, heads, heads of k and v, width, causal
    (32, 256, 256, 12, 12, 32, False), (1, 256, 256, 12, 12, 32, False),
    (1, 16, 16, 12, 12, 32, False), (1, 512, 512, 9, 3, 64, True), (1, 512, 512, 4, 1, 256, True),
    (1, 1, 4096, 9, 3, 64, True), (1, 1, 4096, 4, 1, 256, True),
]  # fmt: skip
LAYERS = 20  # of keys and values in turn: decoding finds none in a cache
NEAREST = [(1, 200000, 384), (4, 100000, 384), (100, 20000, 384), (1000, 10000, 384)]
BEST = 10


class Kernels:
    """The shared library, without Python's eager layer: calls are packed once and then repeated."""

    LAYOUT = struct.Struct("=ii8q8q")
    DTYPES = {"float32": 0, "int64": 4}  # noqa: RUF012

    def __init__(self, threads: int) -> None:
        self.lib = ctypes.CDLL(str(common.ROOT / "src/candle/_native/libcandle.so"))
        self.lib.cdl_op_name.restype = self.lib.cdl_isa.restype = ctypes.c_char_p
        self.lib.cdl_step.argtypes = [
            ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
        ]  # fmt: skip
        count = range(self.lib.cdl_op_count())
        self.ops = {self.lib.cdl_op_name(i).decode(): i for i in count}
        if self.lib.cdl_threads_set(threads):
            raise ValueError(f"not a number of threads: {threads}")

    def call(
        self, op: str, *arrays: Any, i: Sequence[int] = (), f: Sequence[float] = ()
    ) -> Callable[[], None]:
        """A call to repeat. `arrays` are NumPy's, or (array, dtype number, shape)."""
        layouts, views, number = bytearray(), b"", self.ops[op]
        memory = (ctypes.c_char * (self.LAYOUT.size * len(arrays)))()
        for at, array in enumerate(arrays):
            x, dtype, shape = array if isinstance(array, tuple) else (array, None, array.shape)
            strides = [s // x.itemsize for s in x.strides] if dtype is None else [shape[1], 1]
            pad = [0] * (8 - len(shape))
            kind = self.DTYPES[str(x.dtype)] if dtype is None else dtype
            layouts += self.LAYOUT.pack(kind, len(shape), *shape, *pad, *strides, *pad)
            views += struct.pack(
                "=QQ", x.ctypes.data, ctypes.addressof(memory) + at * self.LAYOUT.size
            )
        memory[:] = bytes(layouts)
        params = struct.pack("=8q2d", *i, *[0] * (8 - len(i)), *f, *[0.0] * (2 - len(f)))

        def run(keep: Any = (memory, arrays), step: Any = self.lib.cdl_step) -> None:
            if step(number, views, len(arrays), params):
                raise RuntimeError(f"{op} refused its views")

        return run


class Cases:
    """Every case as a row: what it is, its work, and the calls of all systems."""

    def __init__(self, threads: int) -> None:
        import numpy as np

        self.np, self.threads, self.kernels = np, threads, Kernels(threads)
        self.rng = np.random.default_rng(0)
        try:
            import torch

            torch.set_num_threads(threads)
            self.torch: Any = torch
        except ImportError:
            self.torch = None
        try:
            import faiss

            faiss.omp_set_num_threads(threads)
            self.faiss: Any = faiss
        except ImportError:
            self.faiss = None

    def normal(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape, self.np.float32)

    def row(self, call: str, shape: str, flop: float, nbytes: float, calls: Calls) -> common.Row:
        """Times the calls of one case."""
        seconds = common.take_turns(calls, self.threads)
        best = min((s for name, s in seconds.items() if name != "candle"), default=0.0)
        row: common.Row = {"call": call, "shape": shape, "threads": self.threads}
        row |= {f"{name} GF/s": flop / s / 1e9 for name, s in seconds.items()}
        row["candle GB/s"] = nbytes / seconds["candle"] / 1e9
        row["against best"] = best / seconds["candle"] if best else "-"
        print(row, file=sys.stderr, flush=True)
        return row

    def linear(self, m: int, n: int, k: int) -> common.Row:
        np, x, w, b = self.np, self.normal(m, k), self.normal(n, k), self.normal(n)
        panels = np.zeros((-(-n // 16), k, 16), np.float32)
        packed, out, other = (
            (panels, 32, (n, k)),
            np.empty((m, n), np.float32),
            np.empty((m, n), "f4"),
        )
        self.kernels.call("pack", packed, w)()
        calls: Calls = {"candle": self.kernels.call("linear", out, x, packed, b)}
        calls["numpy"] = lambda: np.dot(x, w.T, out=other)
        if self.torch:
            tx, tw, tb = map(self.torch.from_numpy, (x, w, b))
            calls["torch"] = lambda: self.torch.nn.functional.linear(tx, tw, tb)
        return self.row("linear", f"{m}x{n}x{k}", 2 * m * n * k, 4 * n * k, calls)

    def matmul(self, kind: str, batch: int, m: int, n: int, k: int) -> common.Row:
        np = self.np
        a = self.normal(batch, k, m).swapaxes(1, 2) if kind == "a^T" else self.normal(batch, m, k)
        b, out = self.normal(batch, k, n), np.empty((batch, m, n), np.float32)
        other = np.empty_like(out)
        calls: Calls = {"candle": self.kernels.call("matmul", out, a, b)}
        calls["numpy"] = lambda: np.matmul(a, b, out=other)
        if self.torch:
            ta, tb = map(self.torch.from_numpy, (a, b))
            calls["torch"] = lambda: self.torch.matmul(ta, tb)
        shape = (
            f"{f'{batch}x' if batch > 1 else ''}{m}x{n}x{k}{' ' + kind if kind == 'a^T' else ''}"
        )
        return self.row("matmul", shape, 2 * batch * m * n * k, 4 * batch * k * n, calls)

    def attention(self, b: int, t: int, s: int, h: int, g: int, d: int, causal: bool) -> common.Row:
        np, layers = self.np, LAYERS if t == 1 else 1
        q, kv = self.normal(b, t, h, d), self.normal(layers, 2, b, s, g, d)
        out, whole, scale = np.empty_like(q), (int(causal), s - t), (d**-0.5,)
        steps = [self.kernels.call("attention", out, q, k, v, i=whole, f=scale) for k, v in kv]
        calls: Calls = {"candle": lambda: [step() for step in steps]}
        if self.torch:
            attend = self.torch.nn.functional.scaled_dot_product_attention
            tq, tkv = (self.torch.from_numpy(x).transpose(-3, -2) for x in (q, kv))
            mask = causal and t > 1
            calls["torch"] = lambda: [
                attend(tq, k, v, is_causal=mask, enable_gqa=h != g) for k, v in tkv
            ]
        seen = t * (t + 1) // 2 if causal and t > 1 else t * s
        shape = f"{b} x {t} of {s}, {h}/{g} heads of {d}{', causal' if causal else ''}"
        flop, nbytes = 4 * b * h * d * seen * layers, kv.nbytes
        return self.row("attention", shape, flop, nbytes, calls)

    def nearest(self, m: int, n: int, d: int) -> common.Row:
        np, q, x = self.np, self.normal(m, d), self.normal(n, d)
        scores, rows = np.empty((m, BEST), np.float32), np.empty((m, BEST), np.int64)
        calls: Calls = {"candle": self.kernels.call("nearest", scores, rows, q, x)}
        calls["numpy"] = lambda: x @ q.T
        if self.faiss:
            index = self.faiss.IndexFlatIP(d)
            index.add(x)
            calls["faiss"] = lambda: index.search(q, BEST)
        return self.row("nearest", f"{m} in {n}x{d}", 2 * m * n * d, x.nbytes, calls)

    def all(self) -> list[common.Row]:
        """Every row, in the order of the lists above."""
        return [
            *(self.linear(*case) for case in LINEAR),
            *(self.matmul(*case) for case in MATMUL),
            *(self.attention(*case) for case in ATTENTION),
            *(self.nearest(*case) for case in NEAREST),
        ]


def main(counts: list[int]) -> None:
    python, script = common.peer_python() or sys.executable, Path(__file__).resolve()
    rows: list[common.Row] = []
    for count in counts:
        found = common.worker(python, script, ["--worker", str(count)], count)
        rows += found["rows"]
    print(f"kernels: {found['isa']}\n")
    common.table(rows)
    print(common.save("gemm", rows, isa=found["isa"], peers=common.versions(python, PEERS)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        cases = Cases(int(sys.argv[2]))
        print(json.dumps({"rows": cases.all(), "isa": cases.kernels.lib.cdl_isa().decode()}))
    else:
        main([int(count) for count in sys.argv[1:]] or [1, 2])
