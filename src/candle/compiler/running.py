"""Running: a plan with its memory, called with tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._native import plans
from ..dtype import DType
from ..errors import ShapeError
from ..shape import Shape
from ..storage import Storage, View, new_view
from ..tensor import Tensor
from . import tree
from .dynamic import Dynamic
from .size import value_at

WHAT = "compiled function"


@dataclass(frozen=True)
class End:
    """An input or an output: its number among the plan's buffers, its dtype and its shape."""

    buffer: int
    dtype: DType
    shape: Shape

    def sizes(self, values: Sequence[int]) -> Shape:
        """The shape for values of the symbols."""
        return tuple([value_at(n, values) for n in self.shape]) if values else self.shape


class Runner:
    """A callable that runs a plan. One call at a time: others wait.

    `form` and `result` are those of arguments and result (tree.py); `arena` maps the buffers of
    the arena to their offsets, `fixed` the constants and states to their addresses.
    """

    def __init__(
        self,
        bound: plans.Bound,
        forms: tuple[Any, Any],
        ends: tuple[list[End], list[End]],
        dynamic: Dynamic,
        arena: Mapping[int, int],
        fixed: Mapping[int, int],
    ) -> None:
        self.bound, self.dynamic = bound, dynamic
        self.form, self.result = forms
        self.inputs, self.outputs = ends
        self._now: tuple[int, ...] | None = None
        self._lock = threading.Lock()
        self._tensors_alone = self.form == ((tree.LEAF,) * len(self.inputs), {})
        self._memory = Storage(self.bound.arena_bytes) if self.bound.arena_bytes else None
        for number, offset in arena.items():
            if self._memory is not None:
                self.bound.place(number, self._memory.address + offset)
        for number, address in fixed.items():
            self.bound.place(number, address)

    def tensors(self, args: Sequence[Any], options: Mapping[str, Any]) -> list[Tensor]:
        """The arguments' tensors. Raises ShapeError for others than in the example."""
        alone = self._tensors_alone and not options and len(args) == len(self.inputs)
        if alone and all([isinstance(x, Tensor) for x in args]):
            return list(args)
        found: list[Tensor] = []
        form = tree.flatten(self.dynamic.hidden(args, options), found)
        if len(found) != len(self.inputs) or not tree.same(form, self.form):
            raise ShapeError(WHAT, self.form, form, "compile it for these too")
        return found

    def run(
        self,
        tensors: Sequence[Tensor],
        values: tuple[int, ...],
        more: Sequence[tuple[int, View]],
        refused: Callable[[int, int], Exception],
    ) -> Any:
        """The result; `more` are inputs that no argument gives. `refused`: of (status, step)."""
        pairs = zip(tensors, self.inputs, strict=True)
        given = [(end.buffer, self.fitting(x, end, values)) for x, end in pairs]
        made = [(end.buffer, self.room(end, values)) for end in self.outputs]
        with self._lock:
            if values != self._now:
                self._now = None  # where these are refused, the tables are of no values
                self.bound.bind(values)
                self._now = values
            for number, view in (*given, *more, *made):
                self.bound.place(number, view.address)
            status, failed = self.bound.run()
        if status:
            raise refused(status, failed)
        return tree.build(self.result, [Tensor.of_view(view) for _, view in made])

    def fitting(self, x: Tensor, end: End, values: Sequence[int]) -> View:
        """An argument's memory, row-major. Raises ShapeError where it is of another shape."""
        shape = end.sizes(values)
        if x.shape != shape or x.dtype is not end.dtype:
            wanted, got = f"{end.dtype}{list(shape)}", f"{x.dtype}{list(x.shape)}"
            raise ShapeError(WHAT, wanted, got, "compile it for these sizes too")
        return x.detach().contiguous().data

    def room(self, end: End, values: Sequence[int]) -> View:
        """New memory for a result."""
        return new_view(end.dtype, end.sizes(values))
