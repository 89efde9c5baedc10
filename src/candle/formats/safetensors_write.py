"""Writing a safetensors file, with the bytes that the reference implementation would write."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..dtype import DType
from ..errors import SafetensorsError
from .atomic import atomic_file
from .paths import as_path
from .safetensors import MAX_HEADER, TYPES
from .table import count_elements

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NAMES = {dtype: name for name, _, dtype in TYPES if dtype is not None}
_RANKS = {dtype: rank for rank, (_, _, dtype) in enumerate(TYPES)}

Source = tuple[DType, tuple[int, ...], "Buffer"]  # dtype, row-major shape, contiguous bytes


def save_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Source],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write `{name: (dtype, shape, bytes)}` to `path`, atomically.

    Tensors stand widest type first, then by name, and metadata by key, so the file depends on the
    contents alone. Raises SafetensorsError for a dtype that the format does not have, a buffer of
    the wrong length, or a name or metadata that is not text; OSError if the disk refuses.
    """
    path = as_path(path, "save safetensors")
    op = f"save {path}"
    header: dict[str, object] = {}
    if metadata is not None:
        header["__metadata__"] = _check_metadata(op, metadata)
    buffers: list[memoryview] = []
    at = 0
    for name in sorted(tensors, key=lambda n: (-_rank(op, n, tensors[n][0]), n)):
        dtype, shape, source = tensors[name]
        buffers.append(_check_tensor(op, name, dtype, shape, source))
        end = at + buffers[-1].nbytes
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    _write(path, _encode(op, header), buffers)


def _rank(op: str, name: str, dtype: DType) -> int:
    if dtype not in _NAMES:
        kinds = ", ".join(str(d) for d in _NAMES)
        raise SafetensorsError(op, f"tensor {name!r} in one of {kinds}", dtype, "dequantize() it")
    return _RANKS[dtype]


def _check_metadata(op: str, metadata: Mapping[str, str]) -> dict[str, str]:
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise SafetensorsError(op, "metadata of text to text", f"{key!r}: {value!r}")
    return dict(sorted(metadata.items()))


def _check_tensor(
    op: str, name: str, dtype: DType, shape: tuple[int, ...], source: Buffer
) -> memoryview:
    if name == "__metadata__":
        raise SafetensorsError(op, "another tensor name", repr(name), "the format reserves it")
    if any(size < 0 for size in shape):
        raise SafetensorsError(op, f"sizes of at least 0 in tensor {name!r}", list(shape))

    def refuse(reason: str) -> SafetensorsError:
        return SafetensorsError(op, f"a countable shape of tensor {name!r}", reason)

    expected = dtype.nbytes(count_elements(shape, refuse))
    view = memoryview(source)
    if not view.c_contiguous or view.nbytes != expected:
        raise SafetensorsError(
            op, f"{expected} contiguous bytes for tensor {name!r}", f"{view.nbytes} bytes"
        )
    return view.cast("B") if view.nbytes else memoryview(b"")


def _encode(op: str, header: dict[str, object]) -> bytes:
    try:
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise SafetensorsError(op, "names and metadata that are text", str(error)) from None
    text += b" " * (-len(text) % 8)  # so that the tensors start at a multiple of 8
    if len(text) > MAX_HEADER:
        raise SafetensorsError(op, f"a header of at most {MAX_HEADER} bytes", len(text))
    return text


def _write(path: str | os.PathLike[str], header: bytes, buffers: list[memoryview]) -> None:
    with atomic_file(path) as stream:
        stream.write(len(header).to_bytes(8, "little"))
        stream.write(header)
        for buffer in buffers:
            stream.write(buffer)
