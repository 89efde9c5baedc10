"""A lock and a forked child: neither process gives up or keeps what is the other's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from candle.errors import LockedError
from candle.package.lock import FileLock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(run: object) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run()  # type: ignore[operator]
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "the test")
    lock.acquire()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)  # holds a copy of the handle until the parent is done
        os._exit(0)
    lock.release()
    with FileLock(tmp_path / "lock", "the test"):
        pass
    os.close(write)
    os.waitpid(pid, 0)
    os.close(read)


def test_a_child_does_not_release_its_parents_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", "the test")
    lock.acquire()
    assert in_child(lock.release) == 0
    with pytest.raises(LockedError):
        FileLock(tmp_path / "lock", "the test").acquire()
    lock.release()
    FileLock(tmp_path / "lock", "the test").acquire()
    assert sys.exc_info() == (None, None, None)
