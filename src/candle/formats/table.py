"""Where tensors lie in a file: the record, and the table that every weight format gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..dtype import DType
from ..errors import FormatError

MAX_RANK = 64  # more axes than any array library takes
MAX_BYTES = (1 << 63) - 1  # sizes and offsets are signed 64-bit in the C library


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: `shape`, and its bytes at `offset` (absolute) for `nbytes`.

    Row-major, but where `strides` (in elements, 0 or more) say how its elements lie.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    strides: tuple[int, ...] | None = None


class ForeignTensor(NamedTuple):
    """A tensor that is in a file, in a type that Candle has no `DType` for."""

    name: str
    type_name: str
    shape: tuple[int, ...]


class TensorTable(Mapping[str, TensorInfo]):
    """Name to `TensorInfo`, in the file's order.

    Every tensor of the file is a key. Asking for one of a type that Candle does not have raises
    an error that names both, as does walking the items: nothing is left out in silence.
    """

    __slots__ = ("_error", "_found", "_op", "_part")

    def __init__(
        self,
        op: str,
        tensors: Iterable[TensorInfo | ForeignTensor],
        error: type[FormatError],
        part: str = "",
    ) -> None:
        """`op` begins the errors, of class `error`; `part` is their hint if a name is absent."""
        self._op = op
        self._found = {t.name: t for t in tensors}
        self._error = error
        self._part = part

    def __getitem__(self, name: str) -> TensorInfo:
        found = self._found.get(name)
        if isinstance(found, TensorInfo):
            return found
        if found is None:
            raise self._error(self._op, *self._absent(name))
        expected = f"tensor {name!r} in a type that Candle has"
        raise self._error(self._op, expected, found.type_name)

    def _absent(self, name: str) -> tuple[str, str, str]:
        import difflib  # for this error only: it takes 3 ms to load

        near = difflib.get_close_matches(name, list(self._found)[:5000], 3)
        hint = self._part or (f"near it: {', '.join(near)}" if near else "")
        return f"a tensor named {name!r}", f"{len(self)} others", hint

    def get(self, name: str, default: Any = None, /) -> Any:
        """The tensor, or `default` where there is none. Raises if its type is foreign."""
        return self[name] if name in self._found else default

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"TensorTable({len(self)} tensors of {self._op})"

    @property
    def entries(self) -> tuple[TensorInfo | ForeignTensor, ...]:
        """All tensors, those of foreign types too."""
        return tuple(self._found.values())

    @property
    def foreign(self) -> dict[str, str]:
        """Name to type name of the tensors in types that Candle does not have."""
        pairs = self._found.items()
        return {name: t.type_name for name, t in pairs if isinstance(t, ForeignTensor)}


def count_elements(shape: Iterable[int], refuse: Callable[[str], FormatError]) -> int:
    """The product of `shape`, checked. Raises what `refuse` makes of a reason."""
    count = 1
    for axis, size in enumerate(shape):
        if axis >= MAX_RANK:
            raise refuse(f"more than {MAX_RANK} axes")
        count *= size
        if count > MAX_BYTES:
            raise refuse("more elements than 63 bits can count")
    return count
