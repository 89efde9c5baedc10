"""Makes quant_blocks.npz: random blocks of each format and their values by the `gguf` package.

python tests/golden/make_quant_blocks.py    (made with gguf 0.19.0, numpy 2.4.6)
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "native"))
from quant_model import FORMATS, random_rows  # noqa: E402


def main() -> None:
    rng = np.random.default_rng(20240607)
    arrays: dict[str, np.ndarray] = {}
    for name, (block, _, _) in FORMATS.items():
        rows = random_rows(name, 3, 512 // block * block, rng)
        kind = gguf.GGMLQuantizationType[name.upper()]
        arrays[name + "_rows"] = rows
        arrays[name + "_values"] = gguf.quants.dequantize(rows, kind)
    np.savez_compressed(HERE / "quant_blocks.npz", **arrays)


if __name__ == "__main__":
    main()
