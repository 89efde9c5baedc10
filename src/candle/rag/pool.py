"""Read connections to one database: each search borrows one, so threads never share one."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from pathlib import Path

from ..errors import NameNotFoundError, StoreError
from .schema import check_schema, connect, guard

_MAX_IDLE = 16
# SQLite forbids that a forked child so much as closes its parent's connections: keep them for ever
_INHERITED: list[sqlite3.Connection] = []


class Pool:
    """Idle connections, handed out one to a caller, to any thread, and anew after a fork."""

    _idle: list[sqlite3.Connection]

    def __init__(self, path: Path, immutable: bool = False) -> None:
        self.path = path
        self.immutable = immutable
        self._reset()

    def borrow(self) -> sqlite3.Connection:
        """A connection whose schema was checked. Raises StoreError."""
        if self._pid != os.getpid():
            _INHERITED.extend(self._idle)
            self._reset()
        with self._lock:
            if self._closed:
                raise StoreError(f"read {self.path}", "an open knowledge base", "a closed one")
            if self._idle:
                return self._idle.pop()
        if not self.path.is_file():
            raise NameNotFoundError("open", "a knowledge base", f"nothing at {self.path}")
        return open_checked(self.path, immutable=self.immutable)

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Ends its transaction and keeps it for the next caller."""
        if self._pid != os.getpid():
            _INHERITED.append(connection)
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            connection.close()
            return
        with self._lock:
            if not self._closed and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Closes what is idle; what is borrowed is closed when it comes back."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            idle = [*self._idle]
            self._idle.clear()
        for connection in idle:
            connection.close()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle = []
        self._closed = False
        # what is dropped without `close`; nothing here waits, or takes a lock
        weakref.finalize(self, _abandon, self._idle, self._pid).atexit = False


def _abandon(idle: list[sqlite3.Connection], pid: int) -> None:
    if pid != os.getpid():
        _INHERITED.extend(idle)
        return
    while idle:
        idle.pop().close()


def open_checked(path: Path, *, write: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """A connection to a knowledge base. Raises StoreError for any other file."""
    with guard("open", path):
        connection = connect(path, write=write, immutable=immutable)
        try:
            check_schema(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection
