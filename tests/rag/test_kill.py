"""kill -9 at any moment leaves the last good state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from candle.rag.location import Location
from candle.rag.store import Store
from support import kb

ROUNDS = 200 if os.environ.get("CANDLE_SOAK") else 12

# Adds, updates and deletes for ever. Before each change it says what it is about to do, after it
# that it is done, so that the parent knows which two states may be found.
WRITER = """
import json, random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support import kb
from candle.rag.location import Location
from candle.rag.store import Store
rng = random.Random(int(sys.argv[3]))
store = Store(Location(Path(sys.argv[2])))
while True:
    names = [f"d{rng.randrange(3000)}" for _ in range(rng.choice([1, 40, 1100]))]
    texts = {n: f"text number {rng.randrange(10**6)}" for n in names}
    delete = rng.random() < 0.3
    print(json.dumps(["begin", delete, texts]), flush=True)
    with store.writing() as batch:
        batch.delete(names) if delete else kb.put(batch, texts)
    print(json.dumps(["done"]), flush=True)
    if rng.random() < 0.1:
        store.compact()
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is POSIX")
def test_a_killed_writer_loses_at_most_what_it_had_not_committed(tmp_path: Path) -> None:
    """chroma#7090 (R10), at random moments, compared with a plain dictionary."""
    rng = random.Random(7)
    folder = tmp_path / "kb"
    kb.create(folder).close()
    model: dict[str, str] = {}
    for turn in range(ROUNDS):
        lines = run_and_kill(folder, turn, 0.25 + rng.random() * 0.5)
        with Store(Location(folder)) as store:
            store.verify()
            model = expected(model, lines, kb.contents(store))
            kb.add(store, {"after": f"text number {turn}"})
            model["after"] = f"text number {turn}"


def run_and_kill(folder: Path, seed: int, seconds: float) -> list[str]:
    tests = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", WRITER, tests, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
    return (first + rest).splitlines()


def expected(model: dict[str, str], lines: list[str], found: dict[str, str]) -> dict[str, str]:
    """The state that was found, which must be the one before or after the last change begun."""
    import json

    states = [model]
    for line in lines:
        try:
            kind, *change = json.loads(line)
        except ValueError:  # cut off by the kill: the change had not begun
            break
        if kind == "done":
            continue
        delete, texts = change
        now = dict(states[-1])
        if delete:
            now = {k: v for k, v in now.items() if k not in texts}
        else:
            now |= texts
        states.append(now)
    assert lines, "the writer never began"
    assert found in states[-2:]
    return found
