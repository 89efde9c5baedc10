"""A read-only mapped file that hands out bounds-checked, zero-copy views."""

from __future__ import annotations

import contextlib
import mmap
import os
from types import TracebackType
from typing import Self

from ..errors import FormatError
from .paths import as_path, require_file


class Closing:
    """A context manager that calls `close` at the end of its block."""

    __slots__ = ()

    def close(self) -> None:
        """Give up what is held; safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MappedFile(Closing):
    """The bytes of one file, in place: `MappedFile(path).view(offset, nbytes)`.

    A context manager. `close` gives the mapping up; views that were handed out stay valid, and
    the memory is unmapped when the last of them is gone. The file must not be cut shorter while
    it is mapped: the system answers an access past its new end with a signal.
    """

    __slots__ = ("_bytes", "_map", "path", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map `path`. Raises OptionError, OSError where it cannot be, FormatError for no file."""
        self.path = as_path(path, "open a file")
        require_file(self.path, f"open {self.path}")
        with self.path.open("rb") as stream:
            self.size = os.fstat(stream.fileno()).st_size
            # an empty file cannot be mapped
            self._map: mmap.mmap | None = (
                mmap.mmap(stream.fileno(), self.size, access=mmap.ACCESS_READ)
                if self.size
                else None
            )
        self._bytes: memoryview | None = memoryview(self._map if self._map is not None else b"")

    def view(self, offset: int, nbytes: int) -> memoryview:
        """Read-only bytes `offset` to `offset + nbytes`. Raises FormatError if not all in the file.

        Both numbers may come from the file itself: nothing is assumed of them.
        """
        if self._bytes is None:
            raise FormatError(f"view of {self.path}", "an open file", "a closed one")
        if offset < 0 or nbytes < 0 or offset > self.size or nbytes > self.size - offset:
            raise FormatError(
                f"view of {self.path}",
                f"a range within its {self.size} bytes",
                f"{nbytes} bytes at offset {offset}",
            )
        return self._bytes[offset : offset + nbytes]

    def part(self, offset: int, nbytes: int) -> MappedFile:
        """A range as a file of its own, on the same mapping. Raises FormatError as `view` does."""
        part = MappedFile.__new__(MappedFile)
        part.path, part.size, part._map = self.path, nbytes, None
        part._bytes = self.view(offset, nbytes)
        return part

    def head(self, nbytes: int) -> bytes:
        """A copy of the first `nbytes` bytes, or of all if the file is shorter."""
        return bytes(self.view(0, min(nbytes, self.size)))

    def close(self) -> None:
        """Give the mapping up; safe to call twice."""
        if self._bytes is not None:
            self._bytes.release()
            self._bytes = None
        if self._map is not None:
            with contextlib.suppress(BufferError):  # views are out: the last of them unmaps
                self._map.close()
            self._map = None
