"""The local cache of the Hugging Face hub, read as it lies on disk; no socket, no import."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import NameNotFoundError

_COMMIT = re.compile(r"[0-9a-f]{40}")


def cache_folder() -> Path:
    """Where huggingface_hub keeps its repositories, by the same variables in the same order."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(variable):
            return _at(os.environ[variable])
    if os.environ.get("HF_HOME"):
        return _at(os.environ["HF_HOME"]) / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _at(base) / "huggingface" / "hub"


def _at(path: str) -> Path:
    """Without a home folder a path stays as it is; pathlib would raise."""
    return Path(os.path.expanduser(path))


def find_snapshot(name: str) -> Path | None:
    """The cached snapshot of `owner/model`, or of a `model` that one owner has; capitals aside.

    Raises NameNotFoundError where several owners have it.
    """
    wanted = name.lower().replace("/", "--")
    found = []
    for folder in sorted(cache_folder().glob("models--*--*")):
        full = folder.name.removeprefix("models--").lower()
        if full == wanted or ("/" not in name and full.partition("--")[2] == wanted):
            found.append(folder)
    if len(found) > 1:
        names = ", ".join(f.name.removeprefix("models--").replace("--", "/") for f in found)
        raise NameNotFoundError(f"model {name!r}", "one owner in the hub's cache", names)
    return _snapshot(found[0]) if found else None


def _snapshot(repo: Path) -> Path | None:
    """The folder that `refs/main` names; without it, the only one."""
    reference = repo / "refs" / "main"
    snapshots = repo / "snapshots"
    if reference.is_file():
        commit = reference.read_text("ascii", "replace").strip()
        # a file's text becomes a path only if it can be nothing else
        folder = snapshots / commit if _COMMIT.fullmatch(commit) else None
        return folder if folder is not None and folder.is_dir() else None
    folders = [p for p in snapshots.glob("*") if p.is_dir()]
    return folders[0] if len(folders) == 1 else None
