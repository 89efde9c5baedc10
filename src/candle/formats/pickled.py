"""Pickles as data: the values of a checkpoint, with no code run and no way to ask for it.

Python's own `pickletools` reads the opcodes; this machine knows containers, numbers and texts, and
the few names that checkpoints use. Every other name is refused, with the name. Nothing is imported.
"""

from __future__ import annotations

import io
import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import FormatError

MOST_OPCODES = 20_000_000  # a checkpoint of a million tensors has less


class Name(NamedTuple):
    """A class or function that a pickle names."""

    module: str
    name: str


class Made(NamedTuple):
    """What a pickle would make by a call: `maker(*args)`, not called."""

    maker: Name
    args: tuple[Any, ...]


class Persistent(NamedTuple):
    """An object that lies outside of the pickle."""

    identity: Any


class Pickle:
    """Reads one pickle after another from a stream; `makers` are the names that may be called.

    Each is called with its arguments, as they are here; what it returns takes their place.
    """

    def __init__(self, stream: io.BytesIO, makers: Mapping[Name, Callable[..., Any]], op: str):
        self.stream, self.makers, self.op = stream, makers, op

    def load(self) -> Any:
        """The next value. Raises FormatError for what is malformed or not data."""
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of escapes in texts of old protocols
                return self._run()
        except (IndexError, KeyError, ValueError, TypeError, OverflowError) as error:
            if isinstance(error, FormatError):
                raise
            raise self._error("a whole pickle", f"{type(error).__name__}: {error}") from error

    def _run(self) -> Any:
        for count, (code, arg, _) in enumerate(pickletools.genops(self.stream)):
            if count > MOST_OPCODES:
                raise self._error(f"at most {MOST_OPCODES:,} opcodes", "more")
            if code.name == "STOP":
                return self.stack.pop()
            self._step(code.name, arg)
        raise self._error("a pickle that ends", "none")

    def _error(self, expected: str, got: str) -> FormatError:
        return FormatError(self.op, expected, got)

    def _step(self, code: str, arg: Any) -> None:
        if code in _PUSHES:
            self.stack.append(arg)
        elif code in _FIXED:
            self.stack.append(_FIXED[code]())
        elif code in ("PROTO", "FRAME"):
            pass
        elif code == "MARK":
            self.marks.append(self.stack)
            self.stack = []
        elif code in ("BINPUT", "LONG_BINPUT", "PUT"):
            self.memo[int(arg)] = self.stack[-1]
        elif code == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif code in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[int(arg)])
        else:
            act = _ACTS.get(code)
            if act is None:
                raise self._error("opcodes of plain data", code)
            act(self, arg)

    def _since_mark(self) -> list[Any]:
        found, self.stack = self.stack, self.marks.pop()
        return found

    def _tuple(self, _: Any) -> None:
        found = self._since_mark()
        self.stack.append(tuple(found))

    def _short_tuple(self, count: int) -> None:
        found = tuple(self.stack[-count:])
        if len(found) != count:
            raise IndexError("a tuple of what is not there")
        del self.stack[-count:]
        self.stack.append(found)

    def _appends(self, _: Any) -> None:
        found = self._since_mark()
        self._container(list).extend(found)

    def _append(self, _: Any) -> None:
        value = self.stack.pop()
        self._container(list).append(value)

    def _set_items(self, _: Any) -> None:
        found = self._since_mark()
        self._container(dict).update(zip(found[::2], found[1::2], strict=True))

    def _set_item(self, _: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._container(dict)[key] = value

    def _container(self, kind: type) -> Any:
        if type(self.stack[-1]) is not kind:
            raise self._error(f"a {kind.__name__} to fill", type(self.stack[-1]).__name__)
        return self.stack[-1]

    def _global(self, arg: str) -> None:
        self.stack.append(Name(*arg.split(" ", 1)))

    def _stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self._error("names of text", repr((module, name))[:80])
        self.stack.append(Name(module, name))

    def _persistent(self, _: Any) -> None:
        self.stack.append(Persistent(self.stack.pop()))

    def _reduce(self, _: Any) -> None:
        args, maker = self.stack.pop(), self.stack.pop()
        if not isinstance(maker, Name) or not isinstance(args, tuple):
            raise self._error("calls of names", type(maker).__name__)
        if maker not in self.makers:
            hint = "a state_dict has tensors, numbers and texts alone"
            raise FormatError(self.op, "names that checkpoints need", ".".join(maker), hint)
        self.stack.append(self.makers[maker](*args))

    def _build(self, _: Any) -> None:
        self.stack.pop()  # attributes of a container: a state_dict's versions of its modules
        if type(self.stack[-1]) is not dict:
            raise self._error("attributes of a dict alone", type(self.stack[-1]).__name__)

    def _dict(self, _: Any) -> None:
        found = self._since_mark()
        self.stack.append(dict(zip(found[::2], found[1::2], strict=True)))

    def _list(self, _: Any) -> None:
        found = self._since_mark()
        self.stack.append(found)

    def _pop(self, _: Any) -> None:
        self.stack.pop()


# opcodes that only push their argument
_PLAIN = ("int", "int_or_bool", "float", "str", "bytes", "bytes_or_str")
_PUSHES = frozenset(
    code.name
    for code in pickletools.opcodes
    if code.arg is not None and any(kind.name in _PLAIN for kind in code.stack_after)
)
_FIXED: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_ACTS: dict[str, Callable[[Pickle, Any], None]] = {
    "TUPLE": Pickle._tuple,
    "TUPLE1": lambda self, _: self._short_tuple(1),
    "TUPLE2": lambda self, _: self._short_tuple(2),
    "TUPLE3": lambda self, _: self._short_tuple(3),
    "LIST": Pickle._list,
    "DICT": Pickle._dict,
    "APPEND": Pickle._append,
    "APPENDS": Pickle._appends,
    "SETITEM": Pickle._set_item,
    "SETITEMS": Pickle._set_items,
    "GLOBAL": Pickle._global,
    "STACK_GLOBAL": Pickle._stack_global,
    "BINPERSID": Pickle._persistent,
    "REDUCE": Pickle._reduce,
    "BUILD": Pickle._build,
    "POP": Pickle._pop,
}
