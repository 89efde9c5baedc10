"""Where the files of a knowledge base lie: a folder, or a package with what was changed of it."""

from __future__ import annotations

import re
import shutil
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from ..errors import StoreError
from .schema import DATABASE
from .segment import Segment

INDEX = "index"
LOCK = "writer.lock"
_NAME = re.compile(r"\d{8,}-[0-9a-f]{16}\.seg")


@dataclass(frozen=True, slots=True)
class Base:
    """The read-only knowledge base in a package; `digest` names the package's content.

    `open_segment` maps a segment by its file name in the database.
    """

    database: Path
    digest: str
    open_segment: Callable[[str], Segment]


class TemporaryFolder:
    """A folder that is removed by `cleanup`, or without a word when nothing refers to it."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="candle-"))
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def cleanup(self) -> None:
        """Removes the folder; safe to call twice."""
        self._finalizer()


@dataclass(frozen=True, slots=True)
class Location:
    """`folder` holds what may be written: all of a knowledge base, or what was changed of `base`.

    `temporary` is a folder that ends with the store. With `read_only` nothing can be written.
    """

    folder: Path
    base: Base | None = None
    read_only: bool = False
    temporary: TemporaryFolder | None = None

    @property
    def database(self) -> Path:
        """The database that is written."""
        return self.folder / DATABASE

    @property
    def index(self) -> Path:
        """The folder of the segments that are written."""
        return self.folder / INDEX

    @property
    def lock(self) -> Path:
        """The file that the writer locks."""
        return self.folder / LOCK

    def on_base(self) -> bool:
        """Is the package still what is read, with nothing written over it?"""
        return self.base is not None and (self.read_only or not self.database.exists())

    def segment(self, name: str) -> Segment:
        """A segment named in `folder`'s database. Raises StoreError, FileNotFoundError."""
        return Segment.open(self.index / checked_name(name, self.folder))

    def base_segment(self, name: str) -> Segment:
        """A segment named in the base's database. Raises StoreError."""
        assert self.base is not None
        return self.base.open_segment(checked_name(name, self.base.database))


def checked_name(name: str, where: Path) -> str:
    """`name`, which is a plain file name of ours. Raises StoreError for any other, as "../x"."""
    if not _NAME.fullmatch(name):
        raise StoreError(f"open {where}", "a segment in its index folder", repr(name))
    return name
