"""Files cut at any point: the last good state or a StoreError, never a signal, never less."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from candle.errors import CandleError
from candle.rag.location import Location
from candle.rag.store import Store
from support import kb

MUTATIONS = 5000 if os.environ.get("CANDLE_SOAK") else 150

READER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support import kb
from candle.errors import CandleError
from candle.rag.location import Location
from candle.rag.store import Store
for folder in sys.argv[2:]:
    try:
        with Store(Location(Path(folder))) as store:
            store.verify()
            print(len(kb.contents(store)))
    except CandleError as error:
        print("error", type(error).__name__)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "kb"
    with kb.create(folder) as store:
        kb.add(store, kb.numbered(range(1200)))
        with store.writing() as batch:
            batch.delete(["d7"])
        kb.add(store, kb.numbered(range(1200, 1230)))
    return folder


def cuts(size: int) -> Iterator[int]:
    yield from sorted({size * percent // 100 for percent in range(100)})


@pytest.mark.parametrize("name", ["documents.sqlite", "index"])
def test_cut_at_every_percent_it_is_refused(whole: Path, tmp_path: Path, name: str) -> None:
    """chroma#7238 #7090 (R10): in another process, for a signal would end it."""
    folders = []
    original = whole / name if name.endswith("sqlite") else next((whole / "index").iterdir())
    for size in cuts(original.stat().st_size):
        folder = tmp_path / str(size)
        shutil.copytree(whole, folder)
        (folder / original.relative_to(whole)).write_bytes(original.read_bytes()[:size])
        folders.append(str(folder))
    output = read_in_a_process(folders)
    assert output == ["error StoreError"] * len(folders)


def read_in_a_process(folders: list[str]) -> list[str]:
    tests = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-c", READER, tests, *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_cut_journal_gives_the_last_state_that_is_whole(whole: Path, tmp_path: Path) -> None:
    """chroma#7090 (R10): commits are whole or were never made."""
    live = tmp_path / "live"
    shutil.copytree(whole, live)
    counts = [1229]
    with Store(Location(live)) as store, store.reading():
        for i in range(5):  # the open reader keeps the journal
            kb.add(store, {f"late{i}": f"text number {i}"})
            counts.append(1230 + i)
        shutil.copytree(live, tmp_path / "copy")
    journal = (tmp_path / "copy" / "documents.sqlite-wal").read_bytes()
    folders = []
    for size in cuts(len(journal)):
        folder = tmp_path / str(size)
        shutil.copytree(tmp_path / "copy", folder)
        (folder / "documents.sqlite-shm").unlink()
        (folder / "documents.sqlite-wal").write_bytes(journal[:size])
        folders.append(str(folder))
    found = [int(line) for line in read_in_a_process(folders)]
    assert found == sorted(found)
    assert set(found) <= set(counts) and found[0] == 1229


def test_random_mutations_of_the_database_raise_only_our_errors(
    whole: Path, tmp_path: Path
) -> None:
    """Flipped bytes anywhere: an error, or nothing that matters changed."""
    shutil.copytree(whole, tmp_path / "kb")
    path = tmp_path / "kb" / "documents.sqlite"
    data = path.read_bytes()
    rng = random.Random(11)
    query = kb.EMBEDDER.embed(["text number"])
    for _ in range(MUTATIONS):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 8, 200])):
            at = rng.randrange(len(data)) if rng.random() < 0.7 else rng.randrange(4096)
            changed[at] = rng.randrange(256)
        path.write_bytes(changed)
        for side in ("-wal", "-shm"):
            path.with_name(path.name + side).unlink(missing_ok=True)
        try:
            with Store(Location(tmp_path / "kb")) as store:
                with store.reading() as view:
                    assert len(view.search(query, 2000)) == len(view)
                kb.add(store, {"new": "text number"})
                store.verify()
        except CandleError:
            continue


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"\0" * 8192, b"GGUF" * 2000])
def test_a_file_that_is_no_database_is_refused(whole: Path, tmp_path: Path, content: bytes) -> None:
    shutil.copytree(whole, tmp_path / "kb")
    (tmp_path / "kb" / "documents.sqlite").write_bytes(content)
    with pytest.raises(CandleError):
        Store(Location(tmp_path / "kb"))
