"""Which model a knowledge base asks for: what its file says is a name, never a path.

The file may come from anybody, so the name in it leads only to models that are known on this
machine: installed packages, Python packages, the hub's cache. A model that the user chose by its
path is remembered on this machine alone, by the digest of its weights: `embedders/<hex>` under
CANDLE_HOME holds the path. A file that states that digest gets that very model or none.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path, PurePosixPath, PureWindowsPath

from ..errors import CandleError, NameNotFoundError
from ..formats.atomic import atomic_file
from ..package.store import default_home
from .embed import Embedder, TextEmbedder
from .schema import Settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_PATH = 1 << 16  # bytes of a remembered path
_HINT = "if its model lies in a folder or file, give that path: embedder=PATH, or --embedder PATH"


def portable_name(embedder: str) -> str:
    """What a knowledge base says its embedder is called: of a path, the last part."""
    for kind in (PurePosixPath, PureWindowsPath):
        if kind(embedder).is_absolute():
            return kind(embedder).name
    return embedder


def open_embedder(settings: Settings, where: str) -> Embedder:
    """The model of a knowledge base `where`, by its digest where it is remembered, else by name.

    Raises NameNotFoundError, also for a name that could be a path, FormatError.
    """
    remembered = _recall(settings.digest)
    if remembered is not None:
        return Embedder.load(remembered)
    name = settings.embedder
    if not _NAME.fullmatch(name):
        op = f"embedding model of {where}"
        expected = "a plain name of it in the knowledge base"
        raise NameNotFoundError(op, expected, repr(name[:200]), f"paths in it count not; {_HINT}")
    try:
        return Embedder.load_known(name)
    except NameNotFoundError as error:
        hint = f"{_HINT}; {error.hint}" if error.hint else _HINT
        raise NameNotFoundError(error.op, error.expected, error.got, hint) from None


def remember(embedder: TextEmbedder) -> None:
    """Notes where the user's own model lies, if it was loaded from a path.

    Where that cannot be noted, the knowledge base is opened with `embedder=` the next time too.
    """
    found = _DIGEST.fullmatch(embedder.digest)
    if not isinstance(embedder, Embedder) or not found or not Path(embedder.name).is_absolute():
        return
    path = os.fsencode(embedder.name)
    with contextlib.suppress(OSError, CandleError):
        note = default_home() / "embedders" / found[1]
        if not note.is_file() or note.read_bytes() != path:
            note.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(note) as stream:
                stream.write(path)


def _recall(digest: str) -> str | None:
    """The path that was noted for a digest, if something is still there."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        return None
    try:
        note = default_home() / "embedders" / found[1]
        with note.open("rb") as stream:
            path = os.fsdecode(stream.read(_MAX_PATH))
        return path if os.path.isabs(path) and os.path.exists(path) else None
    except (OSError, CandleError):
        return None
