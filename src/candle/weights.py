"""Tensors from files, by name: safetensors, GGUF, PyTorch. Mapped, nothing is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from . import formats
from .arguments import require
from .dtype import DType
from .errors import FormatError, OptionError, ShapeError
from .formats import GgufFile, SafetensorsFile, SafetensorsFolder, TorchFile, open_folder
from .formats.paths import as_path
from .shape import Shape, as_shape
from .tensor import Tensor

Source = SafetensorsFile | SafetensorsFolder | GgufFile | TorchFile
_SOURCES = (SafetensorsFile, SafetensorsFolder, GgufFile, TorchFile)


class Weights:
    """Named tensors of one model. `pp("a")` gives the names below "a."; a context manager.

    Tensors are views of the mapped file and keep it open; `close()` is for when none is in use.
    """

    def __init__(self, source: Source, prefix: str = "") -> None:
        require("Weights", "an open file or folder of tensors", _SOURCES, source)
        require("Weights", "a prefix of text", str, prefix)
        self.source = source
        self.prefix = prefix

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Weights:
        """Opens a safetensors, `.gguf` or PyTorch file (`.pt`, `.pth`, `.bin`), or a folder of
        safetensors. Raises FormatError.
        """
        where = as_path(path, "open weights")
        if where.is_dir():
            return Weights(open_folder(where))
        if where.suffix == ".gguf":
            return Weights.open_gguf(where)
        if where.suffix in (".pt", ".pth", ".bin"):
            return Weights(TorchFile.open(where))
        return Weights(SafetensorsFile.open(where))

    @staticmethod
    def open_gguf(path: str | os.PathLike[str]) -> Weights:
        """Opens a GGUF file of any name. Raises GgufError."""
        return Weights(GgufFile.open(path))

    def pp(self, *names: str | int) -> Weights:
        """The weights below these names: `w.pp("layer", 3)` has the prefix "layer.3."."""
        return Weights(self.source, self.prefix + "".join(f"{n}." for n in names))

    def _full(self, name: str) -> str:
        require("weights", "a name of text", str, name)
        return self.prefix + name

    def __contains__(self, name: str) -> bool:
        return self._full(name) in self.source.tensors

    def __iter__(self) -> Iterator[str]:
        n = len(self.prefix)
        return (name[n:] for name in self.source.tensors if name.startswith(self.prefix))

    def get(self, name: str, shape: Shape | None = None) -> Tensor:
        """The tensor of that name. Raises FormatError if absent, ShapeError for another shape."""
        full = self._full(name)
        info = self.source.tensors[full]
        if shape is not None:
            wanted = as_shape(f"weights {full}", shape)
            if info.shape != wanted:
                raise ShapeError(f"weights {full}", list(wanted), list(info.shape))
        if info.strides is None:
            return Tensor.from_buffer(self.source.data(full), info.dtype, info.shape)
        count = info.nbytes // info.dtype.size
        flat = Tensor.from_buffer(self.source.data(full), info.dtype, count)
        return Tensor.of_view(flat.data.with_layout(info.shape, info.strides))

    def find(self, name: str, shape: Shape | None = None) -> Tensor | None:
        """The tensor of that name, or None if there is none."""
        return self.get(name, shape) if name in self else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the file says of itself."""
        return self.source.metadata

    def close(self) -> None:
        """Closes the file. Tensors made from it must not be used any more."""
        self.source.close()

    def __enter__(self) -> Weights:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """All tensors of a file or folder, mapped. Raises FormatError, OptionError, OSError."""
    weights = Weights.open(path)
    if isinstance(weights.source, GgufFile):
        raise FormatError(f"load_safetensors {path}", "a safetensors file", "GGUF")
    return {name: weights.get(name) for name in weights}


def save_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors to a safetensors file, whole or not at all. Raises OptionError, OSError."""
    if not isinstance(tensors, Mapping):
        raise OptionError("save_safetensors", "tensors by name", type(tensors).__name__)
    if metadata is not None and not isinstance(metadata, Mapping):
        raise OptionError("save_safetensors metadata", "texts by name", type(metadata).__name__)
    entries: dict[str, tuple[DType, Shape, memoryview]] = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            got = f"{type(name).__name__}: {type(tensor).__name__}"
            raise OptionError("save_safetensors", "a Tensor under a name", got)
        whole = tensor.contiguous()
        entries[name] = (whole.dtype, whole.shape, whole.buffer())
    formats.save_safetensors(path, entries, dict(metadata or {}))
