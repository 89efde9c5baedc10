"""What all benchmarks share: the machine's facts, fresh worker processes, tables and JSON.

A measured process is fresh, has its thread count by environment, and prints one JSON object as its
last line. Ours and the peer's alternate within one run; medians are kept. Peers live in another
environment (two packages are called candle): `CANDLE_PEERS` names its Python.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
Row = dict[str, Any]


def peer_python() -> str | None:
    """Python of the peers' environment, or None."""
    given = os.environ.get("CANDLE_PEERS", str(Path.home() / ".cache/candle-peers/venv/bin/python"))
    return given if Path(given).exists() else None


def machine() -> Row:
    """The processor's name, cores, memory and system."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = lines[0].split(":", 1)[1].strip() if lines else name
    return {"cpu": name, "cores": os.cpu_count(), "system": platform.platform(terse=True)}


def versions(python: str, names: Iterable[str]) -> Row:
    """Versions of packages in an environment; absent ones are left out."""
    code = (
        "import sys, json, platform\nfrom importlib import metadata as m\n"
        "found = {'python': platform.python_version()}\n"
        "for n in sys.argv[1:]:\n"
        "    try: found[n] = m.version(n)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _environment(threads: int) -> dict[str, str]:
    """That of a measured process: its thread count, by every name that libraries read."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "PYTHONPATH"))}
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        env[name] = str(threads)
    env |= {"CANDLE_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    env["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    return env


def worker(python: str, script: Path, args: Sequence[str], threads: int, timeout: int = 900) -> Row:
    """Runs a fresh process; answers the JSON object of its last line. Raises if it fails."""
    env = _environment(threads)
    command = [python, str(script), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=env)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


class Partner:
    """A process that stays and measures when asked: a line in, a JSON object out.

    So two systems can take turns in rounds of a fraction of a second, which noise meets alike. Ours
    runs the sources that the script lies beside.
    """

    def __init__(self, python: str, script: Path, args: Sequence[str], threads: int) -> None:
        env = _environment(threads)
        if python == sys.executable:
            env["PYTHONPATH"] = str(ROOT / "src")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [python, str(script), *args], stdin=pipe, stdout=pipe, text=True, env=env
        )

    def ask(self, question: str) -> Row:
        """What it answers. Raises RuntimeError where it ended instead."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a measured process ended with {self.process.wait()}: {question}")
        return dict(json.loads(line))

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def serve(answer: Callable[[str], Row]) -> None:
    """The other side of `Partner`: answers each line of standard input."""
    for line in sys.stdin:
        print(json.dumps(answer(line.strip())), flush=True)


def partners(script: Path, threads: int, peer: str) -> dict[str, Partner]:
    """Ours, and the peer where its environment is there; each is given its name."""
    found = {"candle": sys.executable}
    if python := peer_python():
        found[peer] = python
    return {name: Partner(python, script, [name], threads) for name, python in found.items()}


def median_rows(rows: Sequence[Row]) -> Row:
    """Medians of the numbers of several runs of one system, plus the spread of each."""
    out: Row = {}
    for key, first in rows[0].items():
        values = [r[key] for r in rows]
        numeric = isinstance(first, int | float) and not isinstance(first, bool)
        out[key] = statistics.median(values) if numeric else first
    return out


def alternate(runs: int, systems: dict[str, Callable[[], Row]]) -> dict[str, Row]:
    """Runs all systems in turn, `runs` times; answers the medians of each."""
    found: dict[str, list[Row]] = {name: [] for name in systems}
    for k in range(runs):
        for name, run in systems.items():
            print(f"  run {k + 1}/{runs}: {name}", file=sys.stderr, flush=True)
            found[name].append(run())
    return {name: median_rows(rows) for name, rows in found.items()}


def timed(fn: Callable[[], Any], least_s: float = 0.5, most: int = 200, warm: int = 2) -> float:
    """Median seconds of a call, after warming up."""
    for _ in range(warm):
        fn()
    times: list[float] = []
    end = perf_counter() + least_s
    while len(times) < 3 or (perf_counter() < end and len(times) < most):
        start = perf_counter()
        fn()
        times.append(perf_counter() - start)
    return statistics.median(times)


def take_turns(
    calls: dict[str, Callable[[], object]],
    threads: int,
    rounds: int = 4,
    round_s: float = 0.15,
    pause_s: float = 0.3,
) -> dict[str, float]:
    """Median seconds of each system's call, in alternating rounds.

    Before a round with several threads there is a pause, in which the other's pool falls asleep.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            sleep(pause_s if threads > 1 else 0.0)
            call()
            end, count = perf_counter() + round_s, 0
            while perf_counter() < end or count < 3:
                start = perf_counter()
                call()
                times[name].append(perf_counter() - start)
                count += 1
    return {name: statistics.median(t) for name, t in times.items()}


def finish(subject: str, rows: list[dict[str, Any]], packages: Sequence[str]) -> None:
    """Prints the rows and saves them with the versions of these packages of the peers' Python."""
    table(rows)
    peers = peer_python()
    facts = versions(peers, packages) if peers else {}
    print(save(subject, rows, python=sys.version.split()[0], peers=facts))


def table(rows: Sequence[Row]) -> None:
    """Prints rows as a Markdown table."""
    keys = list(dict.fromkeys(k for r in rows for k in r))

    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    body = [[cell(r.get(k, "-")) for k in keys] for r in rows]
    widths = [max(len(k), *(len(b[i]) for b in body)) for i, k in enumerate(keys)]
    for line in [keys, ["-" * w for w in widths], *body]:
        print("| " + " | ".join(v.ljust(w) for v, w in zip(line, widths, strict=True)) + " |")


def save(subject: str, rows: Sequence[Row], **facts: Any) -> Path:
    """Writes benchmarks/results/<subject>.json with the machine and our version."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    try:
        ours = metadata.version("candle")
    except metadata.PackageNotFoundError:
        ours = "source"
    path = RESULTS / f"{subject}.json"
    whole = {"subject": subject, "candle": ours, "machine": machine(), **facts, "rows": list(rows)}
    path.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
