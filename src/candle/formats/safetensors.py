"""Safetensors: reading a mapped file or a folder of shards, and writing a file.

    8 bytes          length n of the header, unsigned, little-endian
    n bytes          JSON: {"__metadata__": {str: str}, name: {dtype, shape, data_offsets}, ...}
    the rest         the tensors, row-major, little-endian, in one run without holes

The format does not promise that tensors are aligned: a reader that needs it must look at
`TensorInfo.offset`.
"""

from __future__ import annotations

import os

from ..dtype import DType
from ..errors import SafetensorsError
from .mapped import Closing, MappedFile
from .safetensors_header import Entry, HeaderParser
from .sniff import HEAD, describe
from .table import ForeignTensor, TensorInfo, TensorTable, count_elements

MAX_HEADER = 100_000_000  # the reference implementation's limit too: a million small tensors

# name, bits an element, ours; in the reference implementation's order, by which it lays files out
TYPES: tuple[tuple[str, int, DType | None], ...] = (
    ("BOOL", 8, DType.BOOL),
    ("F4", 4, None),
    ("F6_E2M3", 6, None),
    ("F6_E3M2", 6, None),
    ("U8", 8, DType.U8),
    ("I8", 8, None),
    ("F8_E5M2", 8, None),
    ("F8_E4M3", 8, None),
    ("F8_E8M0", 8, None),
    ("F8_E4M3FNUZ", 8, None),
    ("F8_E5M2FNUZ", 8, None),
    ("I16", 16, None),
    ("U16", 16, None),
    ("F16", 16, DType.F16),
    ("BF16", 16, DType.BF16),
    ("I32", 32, DType.I32),
    ("U32", 32, DType.U32),
    ("F32", 32, DType.F32),
    ("C64", 64, None),
    ("F64", 64, DType.F64),
    ("I64", 64, DType.I64),
    ("U64", 64, None),
)
_BY_NAME = {name: (bits, dtype) for name, bits, dtype in TYPES}


class SafetensorsFile(Closing):
    """One open safetensors file, mapped: `tensors`, `metadata`, and `data(name)` without a copy.

    A context manager. Views stay valid after `close` (see MappedFile).
    """

    __slots__ = ("_file", "metadata", "path", "tensors")

    def __init__(self, file: MappedFile) -> None:
        """Read the header of a mapped file; every size in it is checked against the file's own."""
        self._file = file
        self.path = file.path
        self.metadata, self.tensors = _read_header(file)

    @staticmethod
    def open(path: str | os.PathLike[str]) -> SafetensorsFile:
        """Map and check `path`. Raises SafetensorsError, or OSError if it cannot be opened."""
        file = MappedFile(path)
        try:
            return SafetensorsFile(file)
        except BaseException:
            file.close()
            raise

    def data(self, name: str) -> memoryview:
        """The bytes of tensor `name`, in place, read-only. Raises SafetensorsError."""
        info = self.tensors[name]
        return self._file.view(info.offset, info.nbytes)

    def close(self) -> None:
        """Give the file up; safe to call twice."""
        self._file.close()


def _read_header(file: MappedFile) -> tuple[dict[str, str], TensorTable]:
    op = f"safetensors {file.path}"
    start = 8 + _header_length(op, file)
    raw = file.view(8, start - 8)
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise SafetensorsError(op, "a header in UTF-8", f"byte {8 + error.start} is not") from None
    header = HeaderParser(op, text)
    tensors = [_place(op, entry, start) for entry in header.entries.values()]
    _check_run(op, list(header.entries.values()), file.size - start)
    return header.metadata, TensorTable(op, tensors, SafetensorsError)


def _header_length(op: str, file: MappedFile) -> int:
    """The length of the JSON, once the file looks like one of ours at all."""
    head = file.head(HEAD)
    length = int.from_bytes(head[:8], "little")
    if len(head) < 10 or head[8:9] != b"{":
        raise SafetensorsError(op, "a safetensors file", describe(head, file.size))
    if length > MAX_HEADER:
        raise SafetensorsError(op, f"a header of at most {MAX_HEADER} bytes", f"{length}")
    if length > file.size - 8:
        raise SafetensorsError(
            op, f"a header of {length} bytes", f"{file.size - 8} bytes left", "the file is cut off"
        )
    return length


def _place(op: str, entry: Entry, start: int) -> TensorInfo | ForeignTensor:
    """One header entry with its size checked against its shape and type."""
    name, type_name, shape, begin, end = entry
    bits, dtype = _BY_NAME.get(type_name, (0, None))
    if not bits:
        raise SafetensorsError(op, f"a known dtype of tensor {name!r}", repr(type_name[:40]))

    def refuse(reason: str) -> SafetensorsError:
        return SafetensorsError(op, f"a countable shape of tensor {name!r}", reason)

    nbytes, odd_bits = divmod(count_elements(shape, refuse) * bits, 8)
    if odd_bits:
        raise SafetensorsError(op, f"whole bytes in tensor {name!r}", f"{type_name} {shape}")
    if end - begin != nbytes:
        raise SafetensorsError(
            op,
            f"{nbytes} bytes for tensor {name!r} ({type_name} {list(shape)})",
            f"data_offsets [{begin}, {end}]",
        )
    if dtype is None:
        return ForeignTensor(name, type_name, shape)
    return TensorInfo(name, dtype, shape, start + begin, nbytes)


def _check_run(op: str, entries: list[Entry], available: int) -> None:
    """The tensors must fill the rest of the file exactly: no overlap, hole, cut or rest."""
    at = 0
    for name, _, _, begin, end in sorted(entries, key=lambda e: (e.begin, e.end)):
        if begin != at:
            fault = "overlaps the tensor before it" if begin < at else "follows a hole"
            raise SafetensorsError(
                op, f"tensor {name!r} to begin at {at}", f"{begin}", f"it {fault}"
            )
        at = end
    if at > available:
        raise SafetensorsError(op, f"{at} bytes of tensors", available, "the file is cut off")
    if at < available:
        raise SafetensorsError(
            op, f"the end of the file after {at} bytes of tensors", f"{available - at} bytes more"
        )
