"""Runs every benchmark of this folder, one after another: `make bench`.

    python benchmarks/run.py [SUBJECT ...]

Each writes benchmarks/results/<subject>.json; one that lacks its peers says so and is passed over.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_SUBJECT = {"common", "oracle_decoder", "run"}


def main(wanted: list[str]) -> int:
    subjects = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in NO_SUBJECT)
    unknown = set(wanted) - set(subjects)
    if unknown:
        sys.exit(
            f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(subjects)}"
        )
    failed = 0
    for subject in wanted or subjects:
        print(f"\n== {subject}", flush=True)
        failed += subprocess.run([sys.executable, HERE / f"{subject}.py"]).returncode != 0
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
