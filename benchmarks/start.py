"""Start and size: importing, `candle --help`, and the built wheel in an empty environment.

    python benchmarks/start.py

Medians of fresh processes with a warm page cache. The environment's growth is what the wheel and
its hard dependencies add to a bare venv.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import common

RUNS = 21


def wall(command: list[str], cwd: str) -> float:
    """Median milliseconds of a command."""
    times = []
    for _ in range(RUNS):
        start = perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=cwd)
        times.append(1e3 * (perf_counter() - start))
    return statistics.median(times)


def size(folder: Path) -> float:
    """Megabytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def main() -> None:
    rows: list[common.Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
        build = [*pip, "wheel", "--no-deps", "-w", str(folder), str(common.ROOT)]
        start = perf_counter()
        subprocess.run(build, check=True)
        rows.append({"what": "build the wheel", "s": perf_counter() - start})
        wheel = next(folder.glob("candle-*.whl"))
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python, before = str(folder / "venv/bin/python"), size(folder / "venv")
        install = [python, *pip[1:], "install", "--no-cache-dir", str(wheel)]
        start = perf_counter()
        subprocess.run(install, check=True)
        took, grown = perf_counter() - start, size(folder / "venv") - before
        rows.append({"what": "install the wheel, empty venv", "s": took, "MB": grown})
        rows.append({"what": "the wheel itself", "MB": wheel.stat().st_size / 1e6})
        bare = wall([python, "-c", "pass"], name)
        imported = wall([python, "-c", "import candle"], name)
        rows.append({"what": "import candle over bare Python", "ms": imported - bare})
        rows.append(
            {"what": "candle --help", "ms": wall([f"{name}/venv/bin/candle", "--help"], name)}
        )
    common.table(rows)
    print(common.save("start", rows, python=sys.version.split()[0]))


if __name__ == "__main__":
    main()
