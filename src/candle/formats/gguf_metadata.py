"""The key-value part of a GGUF file: walked once at open, long arrays decoded when asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from ..errors import GgufError
from .gguf_types import ARRAY, BOOL, STR, VALUE_TYPES

MAX_PAIRS = 1 << 18
MAX_DEPTH = 4  # arrays of arrays; no known file has any

_U64 = struct.Struct("<Q").unpack_from
_U32 = struct.Struct("<I").unpack_from

_INTS = frozenset(("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"))
_KINDS = {
    "int": _INTS,
    "float": frozenset(("f32", "f64")),
    "bool": frozenset(("bool",)),
    "str": frozenset(("str",)),
}


class Cursor:
    """A place in the file's bytes that moves forward; every step is checked against the end."""

    __slots__ = ("at", "data", "op", "size")

    def __init__(self, op: str, data: memoryview) -> None:
        self.op = op
        self.data = data
        self.size = len(data)
        self.at = 0

    def left(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.at

    def skip(self, nbytes: int, what: str) -> int:
        """Step over `nbytes` bytes; the place before them."""
        if nbytes > self.left():
            self.refuse(f"{nbytes} bytes of {what}", f"{self.left()} left", "the file is cut off")
        start = self.at
        self.at += nbytes
        return start

    def u32(self, what: str) -> int:
        """An unsigned 32-bit number."""
        return int(_U32(self.data, self.skip(4, what))[0])

    def u64(self, what: str) -> int:
        """An unsigned 64-bit number."""
        return int(_U64(self.data, self.skip(8, what))[0])

    def string(self, what: str) -> str:
        """A length and that many bytes of UTF-8."""
        length = self.u64(f"the length of {what}")
        start = self.skip(length, what)
        try:
            return str(self.data[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            self.refuse(f"UTF-8 in {what}", f"byte {start + error.start}")

    def refuse(self, expected: str, got: object, hint: str = "") -> NoReturn:
        """Raise the error of this file."""
        raise GgufError(self.op, expected, got, hint or f"byte {self.at}")


class _Array(NamedTuple):
    """An array that is still bytes."""

    kind: int
    length: int
    start: int
    depth: int

    @property
    def type_name(self) -> str:
        return f"array[{VALUE_TYPES[self.kind][0]}]"


class GgufMetadata(Mapping[str, Any]):
    """Key to value: int, float, bool, str, or a list of them (decoded at the first access)."""

    __slots__ = ("_data", "_names", "_op", "_values")

    def __init__(self, cursor: Cursor, count: int) -> None:
        """Read `count` pairs at the cursor. Raises GgufError."""
        self._op = cursor.op
        self._values: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for _ in range(count):
            self._read_pair(cursor)
        self._data = cursor.data

    def _read_pair(self, cursor: Cursor) -> None:
        key = cursor.string("a metadata key")
        if key in self._names:
            cursor.refuse("each metadata key once", f"{key!r} twice")
        kind = cursor.u32(f"the type of {key!r}")
        value = _read_value(cursor, kind, key)
        self._values[key] = value
        is_array = isinstance(value, _Array)
        self._names[key] = value.type_name if is_array else VALUE_TYPES[kind][0]

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if isinstance(value, _Array):
            # a cursor of its own: several threads may ask at once
            value = self._values[key] = _decode(Cursor(self._op, self._data), value, key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __repr__(self) -> str:
        return f"GgufMetadata({len(self)} keys of {self._op})"

    def type_name(self, key: str) -> str:
        """The type that the file states: "u32", "str", "array[f32]"."""
        return self._names[key]

    def count(self, key: str) -> int:
        """How many elements the array `key` has, without decoding it."""
        value = self._values[key]
        return value.length if isinstance(value, _Array) else len(value)

    def require(self, key: str, kind: str) -> Any:
        """The value of `key`, which must be of `kind`: int, float, bool, str, or list[...] of one.

        Raises GgufError if the key is absent or of another type: nothing is converted.
        """
        if key not in self._values:
            import difflib  # for this error only: it takes 3 ms to load

            near = difflib.get_close_matches(key, list(self._values), 3)
            hint = f"near it: {', '.join(near)}" if near else ""
            raise GgufError(self._op, f"metadata {key!r} ({kind})", "none", hint)
        self.check(key, kind)
        return self[key]

    def optional(self, key: str, kind: str, default: Any = None) -> Any:
        """As `require`, but `default` where the key is absent."""
        return self.require(key, kind) if key in self._values else default

    def check(self, key: str, kind: str) -> None:
        """Raise GgufError unless the type of `key` is of `kind`, as in `require`."""
        name = self._names[key]
        inner = kind.removeprefix("list[").removesuffix("]")
        allowed = {f"array[{n}]" if inner != kind else n for n in _KINDS[inner]}
        if name not in allowed:
            raise GgufError(self._op, f"metadata {key!r} of type {kind}", name)


def _read_value(cursor: Cursor, kind: int, key: str) -> Any:
    if kind == STR:
        return cursor.string(f"metadata {key!r}")
    if kind == ARRAY:
        return _read_array(cursor, key, 0)
    if kind == BOOL:
        start = cursor.skip(1, f"metadata {key!r}")
        return _decode_bools(cursor, start, 1, key)[0]
    if kind not in VALUE_TYPES:
        cursor.refuse(f"a known type of metadata {key!r}", f"number {kind}")
    fmt = struct.Struct("<" + VALUE_TYPES[kind][1])
    return fmt.unpack_from(cursor.data, cursor.skip(fmt.size, f"metadata {key!r}"))[0]


def _read_array(cursor: Cursor, key: str, depth: int) -> _Array:
    """Step over an array, keeping where it lies."""
    if depth >= MAX_DEPTH:
        cursor.refuse(f"at most {MAX_DEPTH} arrays in each other in metadata {key!r}", "more")
    kind = cursor.u32(f"the element type of {key!r}")
    count = cursor.u64(f"the length of {key!r}")
    array = _Array(kind, count, cursor.at, depth)
    if kind not in VALUE_TYPES:
        cursor.refuse(f"a known element type of metadata {key!r}", f"number {kind}")
    smallest = {STR: 8, ARRAY: 12, BOOL: 1}.get(kind) or struct.calcsize("<" + VALUE_TYPES[kind][1])
    if count > cursor.left() // smallest:
        cursor.refuse(f"{count} elements of metadata {key!r}", f"{cursor.left()} bytes left")
    if kind == STR:
        _skip_strings(cursor, count, key)
    elif kind == ARRAY:
        for _ in range(count):
            _read_array(cursor, key, depth + 1)
    else:
        cursor.skip(count * smallest, f"metadata {key!r}")
    return array


def _skip_strings(cursor: Cursor, count: int, key: str) -> None:
    """Hot: a vocabulary has hundreds of thousands."""
    data, at, last = cursor.data, cursor.at, cursor.size - 8
    for index in range(count):
        if at > last:
            cursor.refuse(f"{count} strings of metadata {key!r}", f"{index}", "the file is cut off")
        at += 8 + _U64(data, at)[0]
    if at > cursor.size:
        cursor.refuse(f"{count} strings of metadata {key!r}", f"{count - 1}", "the file is cut off")
    cursor.at = at


def _decode(cursor: Cursor, array: _Array, key: str) -> list[Any]:
    cursor.at = array.start
    if array.kind == STR:
        return _decode_strings(cursor, array, key)
    if array.kind == BOOL:
        return _decode_bools(cursor, array.start, array.length, key)
    if array.kind == ARRAY:
        inner = []
        for _ in range(array.length):
            child = _read_array(cursor, key, array.depth + 1)
            after = cursor.at
            inner.append(_decode(cursor, child, key))
            cursor.at = after
        return inner
    fmt = f"<{array.length}{VALUE_TYPES[array.kind][1]}"
    return list(struct.unpack_from(fmt, cursor.data, array.start))


def _decode_strings(cursor: Cursor, array: _Array, key: str) -> list[str]:
    data, at = cursor.data, array.start
    found: list[str] = []
    for index in range(array.length):
        start = at + 8
        at = start + _U64(data, at)[0]
        try:
            found.append(str(data[start:at], "utf-8"))
        except UnicodeDecodeError as error:
            cursor.refuse(f"UTF-8 in element {index} of metadata {key!r}", error.reason)
    return found


def _decode_bools(cursor: Cursor, start: int, count: int, key: str) -> list[bool]:
    raw = bytes(cursor.data[start : start + count])
    if raw.translate(None, b"\x00\x01"):
        cursor.refuse(f"0 or 1 as a bool in metadata {key!r}", "another byte")
    return [byte == 1 for byte in raw]
