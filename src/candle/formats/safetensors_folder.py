"""A model folder in the Hugging Face layout: one safetensors file, or shards with an index."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ..errors import SafetensorsError
from .mapped import Closing
from .paths import as_path
from .safetensors import SafetensorsFile
from .table import TensorTable

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
MAX_INDEX = 100_000_000


class SafetensorsFolder(Closing):
    """The tensors of one or several files in one table, with the face of SafetensorsFile.

    `TensorInfo.offset` counts within the tensor's own file; `data` knows which that is.
    """

    __slots__ = ("_file_of", "files", "metadata", "path", "tensors")

    def __init__(self, path: Path, files: Sequence[SafetensorsFile]) -> None:
        """Join open files. Raises SafetensorsError where two hold a tensor of the same name."""
        op = f"safetensors folder {path}"
        self.path = path
        self.files = tuple(files)
        self.metadata: dict[str, str] = {}
        self._file_of: dict[str, SafetensorsFile] = {}
        for file in files:
            self.metadata.update(file.metadata)
            for name in file.tensors:
                other = self._file_of.setdefault(name, file)
                if other is not file:
                    both = f"{other.path.name} and {file.path.name}"
                    raise SafetensorsError(op, f"tensor {name!r} in one file", both)
        entries = [entry for file in files for entry in file.tensors.entries]
        self.tensors = TensorTable(op, entries, SafetensorsError)

    def data(self, name: str) -> memoryview:
        """The bytes of tensor `name`, in place, read-only. Raises SafetensorsError."""
        info = self.tensors[name]
        return self._file_of[info.name].data(info.name)

    def close(self) -> None:
        """Give all files up; safe to call twice."""
        for file in self.files:
            file.close()


def open_folder(path: str | os.PathLike[str]) -> SafetensorsFolder:
    """Open a folder's weights: the shards of its index, else model.safetensors, else the one file.

    Raises SafetensorsError, also where there is a choice of files: it names them.
    """
    folder = as_path(path, "open a folder")
    op = f"safetensors folder {folder}"
    index = folder / INDEX
    if not index.is_file():
        return _open_all(folder, [_only_file(op, folder)])
    weight_map = _read_index(op, index)
    names = sorted(set(weight_map.values()))
    absent = [name for name in names if not (folder / name).is_file()]
    if absent:
        raise SafetensorsError(op, f"{len(names)} shards", f"no {', '.join(absent[:5])}")
    opened = _open_all(folder, [folder / name for name in names])
    try:
        _compare(op, weight_map, opened)
    except BaseException:
        opened.close()
        raise
    return opened


def _open_all(folder: Path, paths: list[Path]) -> SafetensorsFolder:
    with ExitStack() as undo:
        files = [undo.enter_context(SafetensorsFile.open(path)) for path in paths]
        joined = SafetensorsFolder(folder, files)
        undo.pop_all()
    return joined


def _only_file(op: str, folder: Path) -> Path:
    single = folder / SINGLE
    if single.is_file():
        return single
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        names = ", ".join(sorted(p.name for p in folder.iterdir())[:8]) or "an empty folder"
        raise SafetensorsError(op, f"{INDEX}, {SINGLE} or one other .safetensors file", names)
    if len(found) > 1:
        names = ", ".join(p.name for p in found)
        raise SafetensorsError(op, f"one .safetensors file, or {INDEX}", names, "open one by path")
    return found[0]


def _read_index(op: str, path: Path) -> dict[str, str]:
    """The index's tensor name -> file name, each a plain name within the folder."""
    if path.stat().st_size > MAX_INDEX:
        raise SafetensorsError(op, f"an index of at most {MAX_INDEX} bytes", path.stat().st_size)
    try:
        index = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise SafetensorsError(op, f"JSON in {path.name}", str(error)) from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise SafetensorsError(op, f"a weight_map in {path.name}", "none")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not _is_plain(name):
            raise SafetensorsError(
                op, f"the name of a .safetensors file in this folder for {tensor!r}", repr(name)
            )
    return weight_map


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same key twice in an object")
    return found


def _is_plain(name: str) -> bool:
    return name.endswith(".safetensors") and not set(name) & set('/\\:\0"') and name[:1] != "."


def _compare(op: str, weight_map: dict[str, str], opened: SafetensorsFolder) -> None:
    """Index and shards must agree in both directions."""
    actual = {name: file.path.name for file in opened.files for name in file.tensors}
    for name in weight_map.keys() | actual.keys():
        stated, found = weight_map.get(name, "no file"), actual.get(name, "no file")
        if stated != found:
            raise SafetensorsError(op, f"tensor {name!r} in {stated}, as the index says", found)
