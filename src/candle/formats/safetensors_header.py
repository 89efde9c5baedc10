"""The JSON header of safetensors, read by its own strict grammar.

A general JSON parser would first build whatever the header says (20 times its size in memory for
some), take numbers such as 1e3 and -0, keep the last of two equal keys, and recurse. This one
accepts exactly the two kinds of member a header may have and holds nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import JSONDecodeError, JSONDecoder
from typing import NamedTuple, NoReturn

from ..errors import SafetensorsError
from .table import MAX_BYTES, MAX_RANK

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+-]*")
_DECODE = JSONDecoder().raw_decode
_INTEGER = re.compile(r"0|[1-9][0-9]{0,18}")


class Entry(NamedTuple):
    """One tensor as the header states it; `begin` and `end` count from the end of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class HeaderParser:
    """One pass over the header's text: `metadata` and `entries`, in the order they stand."""

    def __init__(self, op: str, text: str) -> None:
        """Parse `text`. Raises SafetensorsError, its message beginning with `op`."""
        self._op = op
        self._text = text
        self._at = 0
        self.metadata: dict[str, str] = {}
        self.entries: dict[str, Entry] = {}
        self._has_metadata = False
        self._object("the header", self._member)
        self._skip()
        if self._at != len(text):
            self._refuse("nothing but spaces after the header's last brace")

    def _member(self, name: str) -> None:
        if name == "__metadata__":
            if self._has_metadata:
                self._refuse("each name once", "'__metadata__' twice")
            self._has_metadata = True
            self._object("'__metadata__'", self._metadata_member)
            return
        if name in self.entries:
            self._refuse("each name once", f"tensor {name!r} twice")
        self.entries[name] = self._tensor(name)

    def _metadata_member(self, key: str) -> None:
        if key in self.metadata:
            self._refuse("each metadata key once", f"{key!r} twice")
        self.metadata[key] = self._string(f"metadata {key!r}")

    def _tensor(self, name: str) -> Entry:
        dtypes: list[str] = []
        numbers: dict[str, tuple[int, ...]] = {}

        def member(key: str) -> None:
            what = f"{key!r} of tensor {name!r}"
            if key in numbers or (key == "dtype" and dtypes):
                self._refuse("each field once", f"{what} twice")
            if key == "dtype":
                dtypes.append(self._string(what))
            elif key in ("shape", "data_offsets"):
                numbers[key] = self._integers(what)
            else:
                self._refuse("only dtype, shape and data_offsets", what)

        self._object(f"tensor {name!r}", member)
        if not dtypes or len(numbers) != 2:
            self._refuse("dtype, shape and data_offsets", f"tensor {name!r} without one of them")
        offsets = numbers["data_offsets"]
        if len(offsets) != 2:
            self._refuse(f"2 data_offsets of tensor {name!r}", len(offsets))
        return Entry(name, dtypes[0], numbers["shape"], *offsets)

    def _object(self, what: str, member: Callable[[str], None]) -> None:
        """`{"key": value, ...}`; `member` reads the value of a key."""
        self._expect("{", what)
        if self._take("}"):
            return
        while True:
            key = self._string(f"a name in {what}")
            self._expect(":", what)
            member(key)
            if not self._take(","):
                return self._expect("}", what)

    def _integers(self, what: str) -> tuple[int, ...]:
        values: list[int] = []
        self._expect("[", what)
        if self._take("]"):
            return ()
        while True:
            values.append(self._integer(what))
            if len(values) > MAX_RANK:
                self._refuse(f"at most {MAX_RANK} numbers as {what}")
            if not self._take(","):
                self._expect("]", what)
                return tuple(values)

    def _integer(self, what: str) -> int:
        self._skip()
        number = _NUMBER.match(self._text, self._at)
        if number is None:
            self._refuse(f"an integer in {what}")
        text = number[0]
        if _INTEGER.fullmatch(text) is None or int(text) > MAX_BYTES:
            self._refuse(f"an integer from 0 to 2**63-1 in {what}", text[:40])
        self._at = number.end()
        return int(text)

    def _string(self, what: str) -> str:
        if not self._take('"'):
            self._refuse(f"a string as {what}")
        try:
            value, self._at = _DECODE(self._text, self._at - 1)
            text = str(value)
            text.encode()  # a lone surrogate is legal JSON and not text
        except (JSONDecodeError, UnicodeEncodeError) as error:
            raise SafetensorsError(self._op, f"a string as {what}", error) from None
        return text

    def _skip(self) -> None:
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at

    def _take(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            self._skip()
            if not self._text.startswith(character, self._at):
                return False
        self._at += 1
        return True

    def _expect(self, character: str, what: str) -> None:
        if not self._take(character):
            self._refuse(f"{character!r} in {what}")

    def _refuse(self, expected: str, got: object = "") -> NoReturn:
        near = self._text[self._at : self._at + 24]
        raise SafetensorsError(
            self._op,
            expected,
            got if got != "" else repr(near) if near else "the header's end",
            f"byte {8 + len(self._text[: self._at].encode())}",
        )
