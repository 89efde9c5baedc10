"""Several threads and processes at once: one writer, readers each on a consistent state."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from candle.errors import LockedError
from candle.rag.location import Location
from candle.rag.store import Store
from support import kb

SECONDS = 60.0 if os.environ.get("CANDLE_SOAK") else 3.0

HOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support import kb
from candle.rag.location import Location
from candle.rag.store import Store
store = Store(Location(Path(sys.argv[2])))
with store.writing() as batch:
    kb.put(batch, {"theirs": "text number 1"})
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_second_writer_gets_an_error_that_names_the_first(tmp_path: Path) -> None:
    """MemPalace#357 #1581; uteke PR 552 (R11)."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(5)))
        tests = str(Path(__file__).resolve().parents[1])
        command = [sys.executable, "-c", HOLDER, tests, str(tmp_path / "kb")]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None and process.stdin is not None
            assert process.stdout.readline() == "held\n"
            store._lock.wait = 0.2
            with pytest.raises(LockedError, match=str(process.pid)):
                kb.add(store, {"ours": "text number 2"})
            assert kb.contents(store) == kb.numbered(range(5))
            process.stdin.write("\n")
            process.stdin.close()
            assert process.wait(30) == 0
        kb.add(store, {"ours": "text number 2"})
        assert set(kb.contents(store)) == {*kb.numbered(range(5)), "theirs", "ours"}


def test_two_stores_of_one_process_are_two_writers(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as one, Store(Location(tmp_path / "kb")) as two:
        two._lock.wait = 0.1
        with one.writing(), pytest.raises(LockedError, match=str(os.getpid())):
            kb.add(two, {"a": "b"})


def test_threads_of_one_store_take_turns(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        threads = [
            threading.Thread(target=kb.add, args=(store, kb.numbered(range(i, i + 50))))
            for i in range(0, 1000, 50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kb.contents(store) == kb.numbered(range(1000))


def test_searching_while_adding_sees_whole_states(tmp_path: Path) -> None:
    """faiss#1781 #1216 #1504 (R13): batches of ten appear and disappear whole."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(1000)))
        stop = time.monotonic() + SECONDS
        faults: list[object] = []
        searches = [0]

        def read() -> None:
            query = kb.EMBEDDER.embed(["text number"])
            while time.monotonic() < stop and not faults:
                try:
                    with store.reading() as view:
                        found = view.search(query, 5000)
                        if len(found) % 10 or len(found) != len(view):
                            faults.append(len(found))
                    searches[0] += 1
                except Exception as error:
                    faults.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        turn = 0
        while time.monotonic() < stop and not faults:
            start = 1000 + turn % 50 * 10
            if turn // 50 % 2:
                with store.writing() as batch:
                    batch.delete(f"d{i}" for i in range(start, start + 10))
            else:
                kb.add(store, kb.numbered(range(start, start + 10)))
            if turn % 40 == 39:
                store.compact()
            turn += 1
        for thread in threads:
            thread.join()
        assert not faults
        assert turn > 3 and searches[0] > 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_reads_and_writes(tmp_path: Path) -> None:
    """SQLite forbids the use of a parent's connections in a child."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(1500)))
        kb.contents(store)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if len(kb.contents(store)) == 1500:
                    kb.add(store, {"child": "text number"})
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(kb.contents(store)) == 1501
        store.verify()


def test_a_merge_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))

        def fail() -> bool:
            raise OSError("disk on fire")

        monkeypatch.setattr(store, "merge", fail)
        with store.writing() as batch:
            batch.delete(f"d{i}" for i in range(1000))
        with pytest.raises(OSError, match="on fire"):
            store.wait()
        monkeypatch.undo()
        assert len(kb.contents(store)) == 1000
