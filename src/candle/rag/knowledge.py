"""From the name of a knowledge base to its files: a folder, an installed package, a `.candle`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import NameNotFoundError, PackageError
from ..package.names import Resolved, as_name, resolve
from ..package.reader import PackageReader
from ..package.store import InstalledPackage, default_home
from .location import INDEX, Base, Location, TemporaryFolder
from .schema import DATABASE
from .segment import Segment

KIND = "knowledge-base"
_FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def find_knowledge(name: str | os.PathLike[str]) -> Location:
    """Where the knowledge base `name` lies. Raises NameNotFoundError, StoreError, PackageError.

    An installed one is read in place; what is changed of it goes to `overlay_folder(name)`.
    """
    name = as_name(name, "knowledge base")
    try:
        found = resolve(name, what="knowledge base")
    except NameNotFoundError:
        left = _changed_overlay(name)
        if left is None:
            raise
        return left  # its package was removed, the user's changes were not
    if found.kind == KIND:
        return Location(found.path)
    if found.kind == "package":
        return open_package(found.path)
    if found.package is not None and found.package.manifest.kind == KIND:
        return _installed(found.package)
    raise _not_knowledge(name, found)


def overlay_folder(name: str) -> Path:
    """Where changes to the installed knowledge base `name` are kept."""
    return default_home() / "knowledge" / name


def open_package(path: Path) -> Location:
    """A `.candle` file to be read without installing it: only its database is unpacked.

    Its segments are read in place and not hashed; `verify_package` does that.
    Raises PackageError.
    """
    package = PackageReader.open(path)
    if package.manifest.kind != KIND:
        raise PackageError(f"open {path}", f"a package of kind {KIND}", package.manifest.kind)
    temporary = TemporaryFolder()
    try:
        database = package.extract(DATABASE, temporary.path / DATABASE)
    except BaseException:
        temporary.cleanup()
        raise

    def segment(name: str) -> Segment:
        return Segment.of_bytes(package.view(f"{INDEX}/{name}"), path)

    base = Base(database, package.digest, segment)
    return Location(temporary.path, base, read_only=True, temporary=temporary)


def verify_package(path: Path) -> None:
    """Hashes everything in a `.candle` file. Raises PackageError."""
    with PackageReader.open(path) as package:
        package.verify()


def _installed(package: InstalledPackage) -> Location:
    def segment(name: str) -> Segment:
        return Segment.open(package.path(f"{INDEX}/{name}"))

    base = Base(package.path(DATABASE), package.digest, segment)
    return Location(overlay_folder(package.name), base)


def _changed_overlay(name: str) -> Location | None:
    folded = name.lower()
    if not _FOLDER_NAME.fullmatch(folded):
        return None
    location = Location(overlay_folder(folded))
    return location if location.database.is_file() else None


def _not_knowledge(name: str, found: Resolved) -> NameNotFoundError:
    kind = found.package.manifest.kind if found.package else found.kind
    return NameNotFoundError(
        f"knowledge base {name!r}", "a knowledge base", f"{kind} at {found.path}"
    )
