"""Files that appear whole or not at all: written beside their place, fsynced, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from .paths import as_path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new binary file that takes the name `path` when the block ends without an error.

    Until then nothing is visible under that name; after an error, Ctrl-C included, the partial
    file is removed and whatever had the name before is untouched. Raises OptionError, OSError.
    """
    final = as_path(path, "write a file")
    partial = final.with_name(f".{final.name[:100]}.{os.urandom(8).hex()}.tmp")
    # os.open, not mkstemp: the kernel then applies the user's umask, as for any new file
    stream = os.fdopen(os.open(partial, _FLAGS, 0o666), "w+b")
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, final)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    sync_folder(final.parent)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make a rename inside the folder `path` last through a power cut, where the system can."""
    if os.name == "nt":  # directories cannot be opened there; NTFS journals the rename
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse it
            os.fsync(handle)
    finally:
        os.close(handle)
