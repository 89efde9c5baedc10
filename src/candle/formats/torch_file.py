"""PyTorch checkpoints (`.pt`, `.pth`, `.bin`): tensors by name, mapped, with no code run.

Since 1.6 a ZIP of stored entries: `<name>/data.pkl`, and a storage each in `<name>/data/<key>`.
Before, pickles in a row: a magic number, a version, facts of the system, the value, the keys of the
storages; then for each of them its count of elements (8 bytes) and the elements. Either way tensors
are windows with strides on storages.
"""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass
from typing import Any

from ..dtype import DType
from ..errors import TorchFileError
from .mapped import Closing, MappedFile
from .pickled import Made, Name, Persistent, Pickle
from .sniff import HEAD, describe
from .table import ForeignTensor, TensorInfo, TensorTable, count_elements

MOST_DEPTH, MOST_ENTRIES = 16, 1_000_000
MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
_STORAGES: dict[str, tuple[int, DType | None]] = {  # bytes an element, ours
    "FloatStorage": (4, DType.F32),
    "DoubleStorage": (8, DType.F64),
    "HalfStorage": (2, DType.F16),
    "BFloat16Storage": (2, DType.BF16),
    "LongStorage": (8, DType.I64),
    "IntStorage": (4, DType.I32),
    "ByteStorage": (1, DType.U8),
    "BoolStorage": (1, DType.BOOL),
    "ShortStorage": (2, None),
    "CharStorage": (1, None),
}
_TENSORS = [Name("torch._utils", n) for n in ("_rebuild_tensor_v2", "_rebuild_parameter")]
_MAKERS = {
    _TENSORS[0]: lambda *args: Made(_TENSORS[0], args),
    _TENSORS[1]: lambda data, *_: data,
    Name("collections", "OrderedDict"): lambda *_: {},
}


@dataclass(frozen=True)
class _Storage:
    """Where a storage's elements lie in the file."""

    type_name: str
    offset: int
    count: int


class TorchFile(Closing):
    """One open checkpoint, mapped: `tensors`, and `data(name)` without a copy.

    Nested dictionaries of tensors have names with dots; `metadata` holds the plain values.
    """

    __slots__ = ("_file", "metadata", "path", "tensors")

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self.path = file.path
        op = f"torch file {file.path}"
        head = bytes(file.view(0, min(HEAD, file.size)))
        if head.startswith(b"PK"):
            value, storages = _read_zip(file, op)
        elif head[:1] == b"\x80":
            value, storages = _read_legacy(file, op)
        else:
            raise TorchFileError(op, "a PyTorch checkpoint", describe(head, file.size))
        walk = _Walk(storages, op)
        walk.visit(value)
        self.metadata = walk.plain
        self.tensors = TensorTable(op, walk.tensors, TorchFileError)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> TorchFile:
        """Map and check `path`. Raises TorchFileError, or OSError if it cannot be opened."""
        file = MappedFile(path)
        try:
            return TorchFile(file)
        except BaseException:
            file.close()
            raise

    def data(self, name: str) -> memoryview:
        """The bytes that tensor `name` lies in, in place, read-only."""
        info = self.tensors[name]
        return self._file.view(info.offset, info.nbytes)

    def close(self) -> None:
        """Give the file up."""
        self._file.close()


def _load(stream: io.BytesIO, op: str) -> Any:
    try:
        return Pickle(stream, _MAKERS, op).load()
    except TorchFileError:
        raise
    except ValueError as error:
        expected, got = getattr(error, "expected", "a pickle"), getattr(error, "got", str(error))
        raise TorchFileError(op, expected, got, getattr(error, "hint", "")) from error


def _read_zip(file: MappedFile, op: str) -> tuple[Any, dict[str, tuple[int, int]]]:
    """The value, and where each storage's bytes lie."""
    whole = file.view(0, file.size)
    try:
        with zipfile.ZipFile(_Window(whole)) as archive:
            entries = {info.filename: info for info in archive.infolist()}
            if len(entries) != len(archive.infolist()):
                raise TorchFileError(op, "entries of different names", "one twice")
            name = next((n for n in entries if n.endswith("/data.pkl")), None)
            if name is None:
                raise TorchFileError(op, "an entry data.pkl", sorted(entries)[:8])
            if any(i.compress_type for i in entries.values()):
                raise TorchFileError(op, "stored entries", "compressed ones")
            value = _load(io.BytesIO(archive.read(name)), op)
            order = entries.get(name.removesuffix("data.pkl") + "byteorder")
            if order is not None and archive.read(order) != b"little":
                raise TorchFileError(op, "little-endian data", archive.read(order)[:16])
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as error:
        raise TorchFileError(op, "a whole ZIP archive", str(error)) from error
    prefix = name.removesuffix("data.pkl") + "data/"
    places = {}
    for path, info in entries.items():
        if path.startswith(prefix):
            head = bytes(whole[info.header_offset + 26 : info.header_offset + 30])
            at = info.header_offset + 30 + int.from_bytes(head[:2], "little")
            at += int.from_bytes(head[2:], "little")
            if len(head) != 4 or at + info.file_size > file.size:
                raise TorchFileError(op, "entries within the file", path)
            places[path.removeprefix(prefix)] = (at, info.file_size)
    return value, places


class _Window(io.RawIOBase):
    """A map as a file, for zipfile: it reads what it needs."""

    def __init__(self, whole: memoryview) -> None:
        self.whole, self.at = whole, 0

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = max(0, offset + (0, self.at, len(self.whole))[whence])
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int | None = -1) -> bytes:
        end = len(self.whole) if size is None or size < 0 else self.at + size
        found = bytes(self.whole[self.at : end])
        self.at += len(found)
        return found


def _read_legacy(file: MappedFile, op: str) -> tuple[Any, dict[str, tuple[int, int]]]:
    stream = io.BytesIO(file.view(0, file.size))
    magic, version, system = (_load(stream, op) for _ in range(3))
    little = isinstance(system, dict) and system.get("little_endian", True)
    if magic != MAGIC or version != VERSION or not little:
        raise TorchFileError(op, "a checkpoint of little-endian data", "another pickle")
    value, keys = _load(stream, op), _load(stream, op)
    if not isinstance(keys, list) or not all(isinstance(k, str) for k in keys):
        raise TorchFileError(op, "keys of storages", type(keys).__name__)
    sizes = {k: size for k, size in _storage_sizes(value, {})}
    places, at = {}, stream.tell()
    for key in keys:
        count = int.from_bytes(file.view(at, 8), "little") if at + 8 <= file.size else -1
        nbytes = count * sizes.get(key, 1)
        if count < 0 or key not in sizes or at + 8 + nbytes > file.size:
            raise TorchFileError(op, f"storage {key} within the file", f"{count} elements at {at}")
        places[key] = (at + 8, nbytes)
        at += 8 + nbytes
    return value, places


def _storage_sizes(value: Any, seen: dict[int, bool]) -> Any:
    """(key, bytes an element) of every storage that a value names."""
    for made in _made_in(value, seen):
        storage = made.args[0] if made.args else None
        if isinstance(storage, Persistent):
            key, kind, _ = _parts(storage, "torch file")
            yield key, _STORAGES[kind][0]


def _made_in(value: Any, seen: dict[int, bool]) -> Any:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Made):
            yield one
        elif isinstance(one, dict | list | tuple) and not seen.setdefault(id(one), False):
            seen[id(one)] = True
            todo += one.values() if isinstance(one, dict) else one


def _parts(storage: Persistent, op: str) -> tuple[str, str, int]:
    """(key, type, elements) of ("storage", type, key, device, elements[, view])."""
    match storage.identity:
        case ("storage", Name("torch", kind), str() as key, str(), int() as count, *rest):
            if kind in _STORAGES and 0 <= count < 1 << 62 and rest in ([], [None]):
                return key, kind, count
    wanted = f"storages of {', '.join(sorted(_STORAGES))}"
    kind = type(storage.identity).__name__
    raise TorchFileError(op, wanted, f"a {kind} that says otherwise")


class _Walk:
    """Tensors and plain values of nested dictionaries, by names with dots."""

    def __init__(self, places: dict[str, tuple[int, int]], op: str) -> None:
        self.places, self.op, self.visits = places, op, 0
        self.tensors: list[TensorInfo | ForeignTensor] = []
        self.plain: dict[str, Any] = {}

    def visit(self, value: Any, name: str = "", depth: int = 0) -> None:
        self.visits += 1
        if depth > MOST_DEPTH or self.visits > MOST_ENTRIES:
            wanted = f"up to {MOST_ENTRIES:,} entries, nested up to {MOST_DEPTH} deep"
            raise TorchFileError(self.op, wanted, f"more, at {name[:80]!r}")
        if isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str | int):
                    raise TorchFileError(self.op, "names of text", type(key).__name__)
                self.visit(item, f"{name}.{key}" if name else str(key), depth + 1)
        elif isinstance(value, Made):
            self.tensors.append(_tensor(value, name or "tensor", self.places, self.op))
        else:
            self.plain[name] = value


def _tensor(
    made: Made, name: str, places: dict[str, tuple[int, int]], op: str
) -> TensorInfo | ForeignTensor:
    match made.args:
        case (Persistent() as storage, int() as start, tuple() as shape, tuple() as strides, *_):
            pass
        case _:
            wanted = f"{name}: a storage, an offset, sizes and strides"
            raise TorchFileError(op, wanted, f"{len(made.args)} others")
    key, kind, _ = _parts(storage, op)
    if key not in places:
        raise TorchFileError(op, f"{name}: a storage that is there", key[:80])
    sizes = (*shape, *strides, start)
    plain = all(type(n) is int and 0 <= n < 1 << 62 for n in sizes)
    if not plain or len(shape) != len(strides):
        raise TorchFileError(op, f"{name}: sizes and strides of 0 or more", f"{len(sizes)} numbers")
    count = count_elements(shape, lambda why: TorchFileError(op, f"{name}: a shape", why))
    size, dtype = _STORAGES[kind]
    if dtype is None:
        return ForeignTensor(name, kind, shape)
    reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if count else 0
    at, nbytes = places[key]
    if (start + reach) * size > nbytes:
        got = f"{start + reach} of {nbytes // size}"
        raise TorchFileError(op, f"{name}: elements within its storage", got)
    return TensorInfo(name, dtype, shape, at + start * size, reach * size, strides)
