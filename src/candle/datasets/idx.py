"""idx files, plain or gzipped: the format of MNIST (http://yann.lecun.com/exdb/mnist).

Two zero bytes, a type, the number of axes, a big-endian u32 size for each, the elements big-endian.
"""

from __future__ import annotations

import array
import gzip
import os
import sys
import zlib
from typing import BinaryIO, cast

from ..dtype import DType
from ..errors import FormatError
from ..formats.paths import as_path, require_file
from ..shape import MAX_RANK, count_of
from ..tensor import Tensor

# type byte: dtype, and the array code by which elements of more than a byte are swapped
_TYPES = {
    0x08: (DType.U8, "B"),
    0x0C: (DType.I32, "i"),
    0x0D: (DType.F32, "f"),
    0x0E: (DType.F64, "d"),
}
_CHUNK = 1 << 20
_PACKED_MOST = 100  # times its size that a gzip file may unpack to: MNIST's are below 5
_PLAIN_MOST = 64 << 20  # bytes that any may


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The tensor of an idx file, gzipped or not by its content.

    Never reads or keeps more than the header promises and the file holds. A small gzip file that
    promises very much is refused. Raises FormatError, OptionError, OSError.
    """
    path = as_path(path, "read idx")
    name = path.name
    require_file(path, f"idx {name}")
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        if not packed:
            return _read(raw, name)
        try:
            most = max(_PLAIN_MOST, _PACKED_MOST * os.fstat(raw.fileno()).st_size)
            with gzip.GzipFile(fileobj=raw) as stream:
                return _read(cast(BinaryIO, stream), name, most)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"idx {name}", "a whole gzip file", str(error)) from error


def _read(stream: BinaryIO, name: str, most: int | None = None) -> Tensor:
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        wanted = "0 0, a type of 8 (u8), 12 (i32), 13 (f32) or 14 (f64), and a rank"
        raise FormatError(f"idx {name}", wanted, head.hex(" ") or "an empty file")
    (dtype, code), rank = _TYPES[head[2]], head[3]
    if rank > MAX_RANK:
        raise FormatError(f"idx {name}", f"at most {MAX_RANK} axes", rank)
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise FormatError(f"idx {name}", f"{4 * rank} bytes of sizes", len(sizes))
    shape = tuple(int.from_bytes(sizes[k : k + 4], "big") for k in range(0, 4 * rank, 4))
    need = count_of(shape) * dtype.size
    if most is not None and need > most:
        hint = "unpack it first if it is what you want"
        raise FormatError(f"idx {name}", f"at most {most:,} bytes in a gzip file", need, hint)
    body = _body(stream, name, need)
    if dtype.size > 1 and sys.byteorder == "little":
        swapped = array.array(code, bytes(body))
        swapped.byteswap()
        body = bytearray(swapped.tobytes())
    return Tensor.from_buffer(body, dtype, shape)


def _body(stream: BinaryIO, name: str, need: int) -> bytearray:
    """Exactly `need` bytes to the end of the stream, gathered as they come."""
    body = bytearray()
    while len(body) <= need:
        part = stream.read(min(_CHUNK, need + 1 - len(body)))
        if not part:
            break
        body += part
    if len(body) != need:
        got = f"{len(body):,}" if len(body) < need else "more"
        raise FormatError(f"idx {name}", f"{need:,} bytes of elements", got)
    return body
