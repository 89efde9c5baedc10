"""A lock between processes: one file, held by the operating system while it is open."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import LockedError

_PAUSE = 0.05  # seconds between two tries


class FileLock:
    """`with FileLock(path, "the store"):` one holder at a time, in this process and all others.

    The system releases it when its holder ends, however it ends: there is no stale lock. The
    file stays; its text is the holder's process number, for the message of whoever is refused.
    """

    def __init__(self, path: str | os.PathLike[str], what: str, wait: float = 0.0) -> None:
        """`what` names the locked thing in errors; `wait` is how many seconds to try for."""
        self._path = Path(path)
        self._what = what
        self._wait = wait
        self._handle: int | None = None
        self._owner = 0  # the process that took it

    def acquire(self) -> None:
        """Take the lock. Raises LockedError when `wait` is over, OSError if there can be none."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            self._take(handle)
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        except BaseException:
            os.close(handle)
            raise
        self._handle, self._owner = handle, os.getpid()

    def _take(self, handle: int) -> None:
        limit = time.monotonic() + self._wait
        while not _try_lock(handle):
            if time.monotonic() >= limit:
                raise LockedError(
                    f"lock of {self._what}",
                    "no other writer",
                    f"process {_holder(self._path)}",
                    f"waited {self._wait:g} s" if self._wait else "",
                )
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Give the lock up; safe to call twice."""
        if self._handle is None:
            return
        if self._owner == os.getpid():  # a forked child's copy must not keep it, nor give it up
            _unlock(self._handle)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(int(path.read_bytes()[:20]))
    return "unknown"


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30  # beyond the text: a locked range cannot be read

    def _try_lock(handle: int) -> bool:
        os.lseek(handle, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(handle, 0, os.SEEK_SET)
        return True

    def _unlock(handle: int) -> None:
        pass  # closing does it: no process inherits the handle

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_UN)
