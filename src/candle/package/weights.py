"""`weights.json` and `weights.bin`: the tensors of a package, each aligned to 64 bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..dtype import DType
from ..errors import DTypeError, PackageError
from ..formats.table import MAX_BYTES, MAX_RANK, TensorInfo, TensorTable, count_elements
from .format import ALIGNMENT

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from .writer import Source

INDEX = "weights.json"
DATA = "weights.bin"
MAX_INDEX = 8 << 20  # 80,000 tensors; as Python objects the worst text takes 20 times its size
MAX_NAME = 500
_KEYS = {"name", "dtype", "shape", "offset", "nbytes"}


def weight_entries(
    tensors: Mapping[str, tuple[DType, tuple[int, ...], Buffer]],
) -> dict[str, Source]:
    """The two entries of `{name: (dtype, shape, bytes)}`, for `write_package`.

    Tensors stand in the order of their names. Nothing is copied: the buffers must stay as they are
    until the package is written. Raises PackageError.
    """
    rows: list[dict[str, Any]] = []
    pieces: list[Buffer] = []
    offset = 0
    for name in sorted(tensors):
        dtype, shape, source = tensors[name]
        view = memoryview(source)
        _check_name("weights", name)
        size = _nbytes(f"weights {name!r}", dtype, shape)
        if not view.c_contiguous or view.nbytes != size:
            raise PackageError(f"weights {name!r}", f"{size} contiguous bytes", view.nbytes)
        row = (name, dtype.label, list(shape), offset, size)
        rows.append(dict(zip(("name", "dtype", "shape", "offset", "nbytes"), row, strict=True)))
        pieces += [view, bytes(-size % ALIGNMENT)]
        offset += size + -size % ALIGNMENT
    index = json.dumps({"format": 1, "tensors": rows}, separators=(",", ":"))
    return {INDEX: index.encode(), DATA: pieces}


def read_weights(index: Buffer, data_size: int, op: str = "weights") -> TensorTable:
    """The table of `weights.json`; offsets count within `weights.bin`, of `data_size` bytes.

    Raises PackageError, its message beginning with `op`, for anything that is not as
    `weight_entries` writes it: order, alignment, sizes, overlap, padding.
    """
    rows = _load(op, memoryview(index))
    tensors: list[TensorInfo] = []
    at = 0
    for row in rows:
        info = _parse(op, row)
        if tensors and info.name <= tensors[-1].name:
            _refuse(op, "names in their order, each once", info.name)
        if info.offset != at:
            _refuse(op, f"tensor {info.name!r} at {at}", info.offset)
        tensors.append(info)
        at += info.nbytes + -info.nbytes % ALIGNMENT
    if at != data_size:
        _refuse(op, f"{at} bytes in {DATA}", data_size)
    return TensorTable(op, tensors, PackageError)


def _load(op: str, index: memoryview) -> list[Any]:
    if index.nbytes > MAX_INDEX:
        _refuse(op, f"at most {MAX_INDEX} bytes of {INDEX}", index.nbytes)
    try:
        found = json.loads(bytes(index), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        _refuse(op, f"JSON in {INDEX}", error)
    if not isinstance(found, dict) or found.keys() != {"format", "tensors"}:
        _refuse(op, f"format and tensors in {INDEX}", "other keys")
    if type(found["format"]) is not int or found["format"] != 1:
        _refuse(op, f"{INDEX} of format 1", found["format"])
    if not isinstance(found["tensors"], list):
        _refuse(op, f"a list of tensors in {INDEX}", type(found["tensors"]).__name__)
    return found["tensors"]


def _parse(op: str, row: object) -> TensorInfo:
    if not isinstance(row, dict) or row.keys() != _KEYS:
        _refuse(op, f"{', '.join(sorted(_KEYS))} of each tensor", repr(row)[:120])
    name, shape, offset, nbytes = row["name"], row["shape"], row["offset"], row["nbytes"]
    _check_name(op, name)
    if not isinstance(shape, list) or len(shape) > MAX_RANK:
        _refuse(op, f"a shape of at most {MAX_RANK} sizes of tensor {name!r}", repr(shape)[:120])
    for number in (*shape, offset, nbytes):
        if type(number) is not int or not 0 <= number <= MAX_BYTES:
            _refuse(op, f"numbers from 0 to 2**63-1 of tensor {name!r}", repr(number)[:120])
    try:
        dtype = DType.of(row["dtype"]) if isinstance(row["dtype"], str) else None
    except DTypeError:
        dtype = None
    if dtype is None:
        _refuse(op, f"a known dtype of tensor {name!r}", repr(row["dtype"])[:120])
    if nbytes != _nbytes(f"{op}, tensor {name!r}", dtype, tuple(shape)):
        _refuse(op, f"the bytes of {dtype} {shape} for tensor {name!r}", nbytes)
    return TensorInfo(name, dtype, tuple(shape), offset, nbytes)


def _check_name(op: str, name: object) -> None:
    fits = isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
    if not fits:
        _refuse(op, f"a name of 1 to {MAX_NAME} printable characters", repr(name)[:120])


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("the same key twice in an object")
    return found


def _nbytes(op: str, dtype: DType, shape: tuple[int, ...]) -> int:
    def refuse(reason: str) -> PackageError:
        return PackageError(op, "a countable shape", reason)

    count = count_elements(shape, refuse)
    if dtype is DType.F32X16 and len(shape) == 2:  # whole panels of 16 rows
        count += -shape[0] % 16 * shape[1]
    if (shape[-1] if shape else 1) % dtype.block:
        raise PackageError(op, f"rows of whole {dtype} blocks", list(shape))
    nbytes = count // dtype.block * dtype.size
    if nbytes > MAX_BYTES:
        raise refuse("more bytes than 63 bits can count")
    return nbytes


def _refuse(op: str, expected: object, got: object) -> NoReturn:
    raise PackageError(op, expected, got)
