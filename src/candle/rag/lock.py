"""The writer's lock of a knowledge base: one process, and in it one thread, writes at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from ..package.lock import FileLock

WAIT = 5.0  # seconds for another process to end what it writes: a small addition, a merge


class WriterLock:
    """Held while something is written: threads of one process wait, other processes give up."""

    def __init__(self, path: Path, wait: float = WAIT) -> None:
        self.path = path
        self.wait = wait
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Takes the lock. Raises LockedError, naming the process that has it, after `wait` s."""
        with self._threads:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path, f"the knowledge base {self.path.parent}", self.wait):
                yield

    def after_fork(self) -> None:
        """In a forked child: the parent's threads hold nothing here."""
        self._threads = threading.Lock()
