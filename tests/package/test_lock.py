"""The lock between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from candle.errors import LockedError
from candle.package.lock import FileLock

HOLD = """
import sys
from candle.package.lock import FileLock
with FileLock(sys.argv[1], "it"):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(LockedError, match=f"lock of the store.*got process {holder.pid}"):
            FileLock(path, "the store").acquire()
        holder.stdin.close()
        with FileLock(path, "the store", wait=30):
            pass


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    with FileLock(path, "it", wait=10):
        assert path.read_text() == str(os.getpid())


def test_threads_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        with FileLock(tmp_path / "lock", "it", wait=30):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []


def test_release_may_be_called_twice(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "it")
    lock.acquire()
    lock.release()
    lock.release()
    with lock:
        pass
