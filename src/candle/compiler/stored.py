"""Stored: a compiled function as one file: plan, constants, and how arguments map to buffers.

docs/reference/plan-format.md has the format. Constants are used in place, from the mapped file.
Nothing in a file is trusted: C checks every rule of the plan, this module what it cannot know.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._native import Layout, plans, status_error
from ..dtype import DType
from ..eager import copy_into
from ..errors import FormatError, TraceError
from ..formats.atomic import atomic_file
from ..formats.mapped import MappedFile
from ..shape import MAX_RANK, Shape, row_major, stored_bytes
from ..storage import Storage, View, new_view
from ..tensor import Tensor
from . import forms
from .dynamic import Dynamic
from .graph import Kind
from .lower import PlanTables
from .running import End, Runner
from .size import Size, Symbol, value_at

if TYPE_CHECKING:
    from .compiled import Compiled

MAGIC, VERSION, PAGE = b"CDLFILE\0", 1, 4096
_HEAD = struct.Struct("<8sIIQQQQQQ")  # then plan, facts, constants: (offset, bytes) each
MOST_FACTS = 1 << 20


def save_plan(compiled: Compiled, path: str | os.PathLike[str]) -> None:
    """Writes a compiled function; `Compiled.save` says more."""
    buffers = compiled.graph.buffers()
    if compiled.graph.renewals or any(b.kind is Kind.STATE for b in buffers):
        raise TraceError("save", "a function of its arguments alone", "one that keeps a state")
    facts = json.dumps(_facts(compiled), ensure_ascii=False, allow_nan=False).encode()
    plan = bytes(compiled.plan)
    constants = [b for b in buffers if b.kind is Kind.CONSTANT]
    at = _HEAD.size
    start = _rounded(at + _rounded(len(plan), 8) + len(facts), PAGE)
    nbytes = sum(_rounded(b.nbytes, 64) for b in constants)
    sizes = (at, len(plan), at + _rounded(len(plan), 8), len(facts), start, nbytes)
    with atomic_file(path) as out:
        out.write(_HEAD.pack(MAGIC, VERSION, _HEAD.size, *sizes))
        out.write(plan.ljust(_rounded(len(plan), 8), b"\0") + facts)
        out.write(bytes(start - out.tell()))
        for buffer in constants:
            out.write(plans.memory(buffer.address, buffer.nbytes))
            out.write(bytes(-buffer.nbytes % 64))


def load_plan(path: str | os.PathLike[str]) -> Stored:
    """A function that `Compiled.save` wrote, ready to be called.

    Its weights are read from the mapped file, which must not be changed meanwhile. Raises
    FormatError where the file breaks a rule, OptionError and OSError where it cannot be opened.
    """
    return Stored(MappedFile(path))


class Stored(Runner):
    """A function from a file, whose map lives as long as it does."""

    def __init__(self, file: MappedFile) -> None:
        self.op = f"load {file.path}"
        plan, facts, constants = _sections(file, self.op)
        tables = PlanTables(plans.Bound(plan).plan)  # C has checked it
        try:
            found = json.loads(bytes(facts))
            self._read(found, tables)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise FormatError(self.op, "facts that fit the plan", _short(error)) from error
        self._file, self._constants = file, Storage.of_buffer(constants)[0]
        fixed = {}
        for number, (kind, nbytes, offset) in enumerate(tables.buffers):
            if kind == Kind.CONSTANT.value:
                if offset + nbytes > len(constants):
                    raise FormatError(self.op, "constants within the file", number)
                fixed[number] = self._constants.address + offset
        arena = {k: b[2] for k, b in enumerate(tables.buffers) if b[0] == Kind.TEMP.value}
        self.names = tables.names
        super().__init__(plan, self._forms, self._ends, self._sizes, arena, fixed)

    def _read(self, facts: dict[str, Any], tables: PlanTables) -> None:
        symbols = {name: Symbol(name, least, most) for name, least, most in facts["symbols"]}
        if [(s.least, s.most) for s in symbols.values()] != tables.symbols:
            raise ValueError("symbols other than the plan's")
        places = {(_key(key), axis): name for key, axis, name in facts["places"]}
        if not set(places.values()) <= symbols.keys():
            raise ValueError("places of unknown symbols")
        self._sizes = Dynamic.of(places, symbols)
        self._forms = forms.decoded(facts["form"]), forms.decoded(facts["result"])
        most = tuple(s.most for s in symbols.values())
        inputs, outputs = ([_end(e, most) for e in facts[k]] for k in ("inputs", "outputs"))
        _check_ends(inputs, Kind.INPUT, self._forms[0], most, tables)
        _check_ends(outputs, Kind.OUTPUT, self._forms[1], most, tables)
        self._ends = inputs, outputs

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The function's result. Raises ShapeError for arguments that are not as the examples."""
        values = self.dynamic.values(args, options)
        return self.run(self.tensors(args, options), values, (), self._refusal)

    def fitting(self, x: Tensor, end: End, values: Sequence[int]) -> View:
        """An argument's memory; where sizes vary, a copy with room for the greatest."""
        view = super().fitting(x, end, values)
        if not values:
            return view
        copy = self.room(end, values)
        copy_into(copy, view)
        return copy

    def room(self, end: End, values: Sequence[int]) -> View:
        """Memory of the greatest sizes: what a plan from outside may touch does not shrink."""
        most = [s.most for s in self.dynamic.symbols.values()]
        whole, shape = new_view(end.dtype, end.sizes(most)), end.sizes(values)
        return View(whole.storage, whole.offset, Layout.of(end.dtype, shape, row_major(shape)))

    def _refusal(self, status: int, failed: int) -> Exception:
        return status_error(plans.NAMES.index(self.names[failed]), status, [])


def _check_ends(
    ends: list[End], kind: Kind, form: Any, most: tuple[int, ...], tables: PlanTables
) -> None:
    """Each buffer of a kind is one end, of its size, and a tensor of the form."""
    wanted = [k for k, b in enumerate(tables.buffers) if b[0] == kind.value]
    if sorted(e.buffer for e in ends) != wanted or forms.leaves(form) != len(ends):
        raise ValueError(f"other {kind.name.lower()}s than the plan's")
    for end in ends:
        if stored_bytes(end.dtype, end.sizes(most)) != tables.buffers[end.buffer][1]:
            raise ValueError(f"a size other than that of buffer {end.buffer}")
    if any(b[0] == Kind.STATE.value for b in tables.buffers):
        raise ValueError("a state")


def _facts(compiled: Compiled) -> dict[str, Any]:
    dynamic = compiled.dynamic
    inputs, outputs = (
        [[e.buffer, str(e.dtype), [_terms(n) for n in e.shape]] for e in ends]
        for ends in (compiled.inputs, compiled.outputs)
    )
    return {
        "symbols": [[s.name, s.least, s.most] for s in dynamic.symbols.values()],
        "places": [[key, axis, name] for (key, axis), name in dynamic.places.items()],
        "inputs": inputs,
        "outputs": outputs,
        "form": forms.encoded(compiled.form),
        "result": forms.encoded(compiled.result),
    }


def _terms(size: int) -> Any:
    """A size as a number, or as its terms."""
    if isinstance(size, Size):
        return [[factor, *powers] for powers, factor in size.terms.items()]
    return int(size)


def _size(found: Any, most: tuple[int, ...]) -> int:
    if isinstance(found, list):
        terms = {tuple(_whole(p, 8) for p in powers): _whole(f) for f, *powers in found}
        if any(len(powers) != len(most) for powers in terms):
            raise ValueError("terms of other symbols")
        return Size.of(terms, most)
    return _whole(found)


def _whole(found: Any, most: int = 1 << 40) -> int:
    if type(found) is not int or not -most <= found <= most:
        raise ValueError(f"a whole number of at most {most}, got {_short(found)}")
    return found


def _end(found: Any, most: tuple[int, ...]) -> End:
    number, dtype, shape = found
    sizes: Shape = tuple(_size(n, most) for n in shape)
    if len(sizes) > MAX_RANK or any(value_at(n, most) < 0 for n in sizes):
        raise ValueError("a shape of up to 8 sizes from 0")
    return End(_whole(number), DType.of(dtype), sizes)


def _key(found: Any) -> int | str:
    if type(found) not in (int, str):
        raise ValueError("an argument by number or name")
    return found  # type: ignore[no-any-return]


def _sections(file: MappedFile, op: str) -> tuple[memoryview, memoryview, memoryview]:
    head = file.head(_HEAD.size)
    if head[:8] != MAGIC:
        raise FormatError(op, "a stored plan", f"{file.size} bytes that begin with {head[:8]!r}")
    if len(head) < _HEAD.size:
        raise FormatError(op, f"a header of {_HEAD.size} bytes", len(head))
    _, version, size, *places = _HEAD.unpack(head)
    if (version, size) != (VERSION, _HEAD.size):
        raise FormatError(op, f"version {VERSION} of the format", version)
    starts, sizes = places[::2], places[1::2]
    in_order = starts[0] == _HEAD.size and all(
        start + n <= after
        for start, n, after in zip(starts, sizes, [*starts[1:], file.size], strict=True)
    )
    whole = starts[2] + sizes[2] == file.size and starts[2] % PAGE == starts[0] % 8 == 0
    if not in_order or not whole or sizes[1] > MOST_FACTS:
        raise FormatError(op, "plan, facts and constants, one after another", places)
    return tuple(file.view(a, n) for a, n in zip(starts, sizes, strict=True))  # type: ignore[return-value]


def _rounded(nbytes: int, to: int) -> int:
    return -(-nbytes // to) * to


def _short(found: object) -> str:
    return str(found)[:120]
