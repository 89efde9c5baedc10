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
    plan = bytes(compiled.bound.plan)
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
        op = f"load {file.path}"
        plan, facts, constants = _sections(file, op)
        bound = plans.Bound(plan)
        tables = PlanTables(plan)  # C has checked it
        try:
            forms_, ends, dynamic = _read(json.loads(bytes(facts)), tables)
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise FormatError(op, "facts that fit the plan", _short(error)) from error
        self._file, self._constants = file, Storage.of_buffer(constants)[0]
        fixed = {}
        for number, nbytes, offset in tables.of_kind(Kind.CONSTANT):
            if offset + nbytes > len(constants):
                raise FormatError(op, "constants within the file", number)
            fixed[number] = self._constants.address + offset
        arena = {number: offset for number, _, offset in tables.of_kind(Kind.TEMP)}
        self.names = tables.names
        super().__init__(bound, forms_, ends, dynamic, arena, fixed)

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
        if not values:
            return super().room(end, values)
        most, shape = [s.most for s in self.dynamic.symbols.values()], end.sizes(values)
        whole = new_view(end.dtype, end.sizes(most))
        if min(shape, default=0) < 0 or stored_bytes(end.dtype, shape) > whole.layout.nbytes:
            wanted = f"sizes of at most {list(whole.layout.shape)}, as the file tells"
            raise FormatError("stored plan", wanted, list(shape))
        return View(whole.storage, whole.offset, Layout.of(end.dtype, shape, row_major(shape)))

    def _refusal(self, status: int, failed: int) -> Exception:
        return status_error(plans.NAMES.index(self.names[failed]), status, [])


def _read(
    facts: dict[str, Any], tables: PlanTables
) -> tuple[tuple[Any, Any], tuple[list[End], list[End]], Dynamic]:
    """The forms, the ends and the sizes that vary. Raises ValueError and its like."""
    symbols = {name: Symbol(name, least, most) for name, least, most in facts["symbols"]}
    if [(s.least, s.most) for s in symbols.values()] != tables.symbols:
        raise ValueError("symbols other than the plan's")
    places = {(_key(key), axis): name for key, axis, name in facts["places"]}
    if not set(places.values()) <= symbols.keys() or tables.of_kind(Kind.STATE):
        raise ValueError("places of unknown symbols, or a state")
    form, result = (forms.decoded(facts[k]) for k in ("form", "result"))
    most = tuple(s.most for s in symbols.values())
    inputs, outputs = ([_end(e, most) for e in facts[k]] for k in ("inputs", "outputs"))
    _check_ends(inputs, form, most, tables.of_kind(Kind.INPUT))
    _check_ends(outputs, result, most, tables.of_kind(Kind.OUTPUT))
    return (form, result), (inputs, outputs), Dynamic.of(places, symbols)


def _check_ends(
    ends: list[End], form: Any, most: tuple[int, ...], buffers: list[tuple[int, int, int]]
) -> None:
    """Each buffer is one end, of its size, and a tensor of the form."""
    told = sorted((e.buffer, stored_bytes(e.dtype, e.sizes(most))) for e in ends)
    if told != [(number, nbytes) for number, nbytes, _ in buffers]:
        raise ValueError("inputs or outputs other than the plan's")
    if forms.leaves(form) != len(ends):
        raise ValueError("a form of other tensors")


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
