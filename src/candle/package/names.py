"""From what a user calls a model to where it lies: the first place that has it wins.

    1  a path
    2  a package installed in the store
    3  a Python package that carries weights: a known one, or one with a `candle.models` entry point
    4  the local cache of the Hugging Face hub

Nothing here opens a socket.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import NameNotFoundError, PackageError
from ..formats.paths import path_text
from ..formats.sniff import HEAD, describe
from .hub_cache import cache_folder, find_snapshot
from .manifest import check_name
from .store import InstalledPackage, Store
from .wheels import KNOWN, find_known, locate, locate_plugin, plugins

_SUFFIXES = (".candle", ".gguf", ".safetensors")
_KINDS = {
    "a GGUF file": "gguf",
    "a .candle package": "package",
    "a safetensors file": "safetensors",
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where a name leads.

    `kind` says what `path` is: "package" (a .candle file), "installed" (the folder of a package of
    the store, which is `package`), "gguf", "safetensors" (a file each), "folder" (a model in the
    Hugging Face layout) or "knowledge-base" (a folder). `source` says where it was found.
    """

    kind: str
    path: Path
    source: str
    package: InstalledPackage | None = None


# the word for what is looked for -> the kinds of packages that are one
_WANTED = {
    "model": ("generator",),
    "embedding model": ("encoder",),
    "knowledge base": ("knowledge-base",),
}


def resolve(
    name: str | os.PathLike[str],
    store: Store | None = None,
    what: str = "model",
    paths: bool = True,
) -> Resolved:
    """Find `name`, a path or a name in any capitals; `what` is the word for it in errors.

    With `paths` false it counts as a name only: for one that somebody else's file holds.
    Raises NameNotFoundError that says where it looked and how to get it, and for a path that is
    no model what was found there; OptionError for what is neither, StoreError if the store is
    damaged.
    """
    name = as_name(name, what)
    op = f"{what} {name!r}"
    found = _from_path(op, name) if paths else None
    if found is not None:
        return found
    store = Store() if store is None else store
    return (
        _from_store(name, store)
        or _from_wheels(op, name, store)
        or _from_hub_cache(op, name)
        or _give_up(op, name, store, what)
    )


def as_name(name: str | os.PathLike[str], what: str) -> str:
    """A name or a path as text. Raises OptionError."""
    return path_text(name, what, "a name or a path")


def classify(path: Path, op: str = "model") -> Resolved | None:
    """What kind of model lies at an existing `path`; None for a folder that holds none.

    Raises NameNotFoundError for a file that is no model, and for a folder with a choice of them.
    """
    if path.is_dir():
        return _classify_folder(path, op)
    if not path.is_file():  # before open(): opening a pipe would wait for its writer
        kinds = "a .candle, .gguf or .safetensors file, or a folder"
        raise NameNotFoundError(op, kinds, "a device, pipe or socket", os.fspath(path))
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    found = describe(head, path.stat().st_size)
    if found not in _KINDS:
        kinds = "a .candle, .gguf or .safetensors file, or a folder"
        raise NameNotFoundError(op, kinds, found, os.fspath(path))
    return Resolved(_KINDS[found], path, "path")


def _classify_folder(path: Path, op: str) -> Resolved | None:
    if (path / "documents.sqlite").is_file():
        return Resolved("knowledge-base", path, "path")
    if (path / "config.json").is_file() and any(path.glob("*.safetensors")):
        return Resolved("folder", path, "path")
    files = sorted(path.glob("*.gguf")) or sorted(path.glob("*.safetensors"))
    if len(files) > 1:
        names = ", ".join(p.name for p in files[:10])
        raise NameNotFoundError(op, f"one model in {path}", names, "choose one by its path")
    return classify(files[0], op) if files else None


def _from_path(op: str, name: str) -> Resolved | None:
    path = _existing(name)
    if path is None:
        if _is_surely_path(name):
            raise NameNotFoundError(op, "a file or folder", "none at that path")
        return None
    found = classify(path, op)
    if found is None and _is_surely_path(name):
        names = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "an empty folder"
        raise NameNotFoundError(op, "a model or knowledge base in that folder", names)
    return found  # a folder that merely has the name of a model hides nothing


def _existing(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if name and path.exists() else None
    except (OSError, RuntimeError, ValueError):  # too long, an unknown user, a NUL character
        return None


def _is_surely_path(name: str) -> bool:
    """Whether `name` can be nothing but a path; `owner/model` can be a name on the hub too."""
    if name.lower().endswith(_SUFFIXES) or os.path.isabs(name):
        return True
    return name.startswith((".", "~")) or "\\" in name or name.count("/") > 1


def _from_store(name: str, store: Store) -> Resolved | None:
    folded = name.lower()
    try:
        check_name(folded, "package")
        package = store.get(folded)
    except (PackageError, NameNotFoundError):
        return None
    folder = store.home / "packages" / package.name / package.version
    source = f"installed package {package.name} {package.version}"
    return Resolved("installed", folder, source, package)


def _from_wheels(op: str, name: str, store: Store) -> Resolved | None:
    known = find_known(name)
    if known is not None:
        path = locate(known[1], store.home / "cache")
        if path is not None:
            project = known[1].projects[0].partition("==")[0]
            return _renamed(classify(path, op), f"Python package {project}")
    point = plugins().get(name.lower())
    if point is None:
        return None
    return _renamed(classify(locate_plugin(point), op), f"entry point {point.value}")


def _from_hub_cache(op: str, name: str) -> Resolved | None:
    known = find_known(name)
    snapshot = find_snapshot(known[1].repo if known is not None else name)
    if snapshot is None:
        return None
    return _renamed(classify(snapshot, op), "the Hugging Face cache")


def _renamed(found: Resolved | None, source: str) -> Resolved | None:
    return None if found is None else Resolved(found.kind, found.path, source)


def _give_up(op: str, name: str, store: Store, what: str) -> Resolved:
    installed = store.list()
    fitting = [p.name for p in installed if p.manifest.kind in _WANTED[what]]
    known = find_known(name)
    if known is not None:
        advice = f"get it with `{known[1].install_command}`"
    else:
        offered = () if what == "knowledge base" else plugins()
        names = sorted({*fitting, *offered, *(n for n, m in KNOWN.items() if m.what == what)})
        near = difflib.get_close_matches(name.lower(), names, 3, 0.5)
        advice = "a package file is installed with `candle install FILE`"
        if names:
            advice += f"; {'near it' if near else 'known'}: {', '.join(near or names)}"
    looked = (
        f"looked for a path, in the store {store.home} ({len(installed)} installed), "
        f"in Python packages and in {cache_folder()}"
    )
    wanted = f"{'an' if what[0] in 'aeiou' else 'a'} {what} that is on this machine"
    raise NameNotFoundError(op, wanted, "none", f"{advice}; {looked}")
