"""Compiled: a function as a plan, called like the function."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import tracing
from .._native import plans, status_error
from ..errors import ShapeError, TraceError
from ..shape import Shape
from ..storage import Storage, View, new_view
from ..tensor import Tensor
from . import tree
from .dynamic import Dynamic, merged
from .graph import Buffer, Graph, Kind, Ref, Renewal
from .lower import Lowering
from .memory import Arena, arrange
from .passes import PASSES
from .size import value_at
from .trace import Trace, trace


def compile(
    fn: Callable[..., Any],
    *example_inputs: Any,
    dynamic: Mapping[Any, Any] | None = None,
    **options: Any,
) -> Compiled:
    """`fn` as a plan for arguments of these shapes, dtypes and plain values.

    `dynamic` names the sizes that may vary: `{0: {0: "batch"}}` is axis 0 of argument 0, from 1 up
    to the example's, `{0: {1: ("tokens", 1, 512)}}` one with bounds; a whole number may vary too.

    Of the examples only the sizes count, but for what `static` marks. Raises TraceError where `fn`
    asks for a tensor's values, draws random numbers, or keeps a tensor it made.
    """
    sizes = Dynamic(dynamic or {}, example_inputs, options)
    names, points = sizes.names, sizes.points()
    at = [sizes.at(example_inputs, options, dict(zip(names, p, strict=True))) for p in points]
    traces = [trace(fn, *given) for given in at]
    one = traces[0]
    if not all(tree.same(t.result, one.result) for t in traces):
        got = [t.result for t in traces]
        raise TraceError("compile", "a result that is the same at every size", got)
    graph = merged([t.graph for t in traces], points) if names else one.graph
    form = tree.flatten(sizes.hidden(example_inputs, options), [])
    return Compiled(fn, Trace(graph, form, one.result), sizes)


class Compiled:
    """A callable that runs a plan; `graph` and `arena` say what it consists of.

    One call at a time: others wait. Results are new, row-major tensors without a history.
    """

    def __init__(self, fn: Callable[..., Any], traced: Trace, dynamic: Dynamic) -> None:
        self.fn, self.dynamic = fn, dynamic
        self.form, self.result = traced.form, traced.result
        self.graph = optimised(traced.graph)
        self.arena: Arena = arrange(self.graph)
        lowering = Lowering(self.graph, self.arena, list(dynamic.symbols.values()))
        self.plan = lowering.whole()
        self._seen = [(s, s.changed) for b in self.graph.buffers() for s in _constants_of(b)]
        self._bind(lowering.buffers)

    def _bind(self, buffers: list[Buffer]) -> None:
        self.bound = plans.Bound(self.plan)
        self._now: tuple[int, ...] | None = None
        self._lock = threading.Lock()
        self._memory = Storage(self.arena.nbytes) if self.arena.nbytes else None
        numbers = {b: k for k, b in enumerate(buffers)}
        for buffer, k in numbers.items():
            if buffer.kind is Kind.TEMP and self._memory is not None:
                offset = self.arena.offsets.get(buffer, 0)
                self.bound.place(k, self._memory.address + offset)
            elif buffer.kind in (Kind.CONSTANT, Kind.STATE):
                self.bound.place(k, buffer.address)
        self._inputs = [(numbers[r.buffer], r) for r in self.graph.inputs]
        self._given = [k for k, _ in self._inputs]
        self._given += [numbers[r.ref.buffer] for r in self.graph.renewals]
        self._outputs = [(numbers[r.buffer], r) for r in self.graph.outputs]

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The function's result. Raises ShapeError for arguments that are not as the examples."""
        if tracing.current:
            return self.fn(*args, **options)
        tensors: list[Tensor] = []
        values = self.dynamic.values(args, options)
        form = tree.flatten(self.dynamic.hidden(args, options), tensors)
        if len(tensors) != len(self._inputs) or not tree.same(form, self.form):
            raise ShapeError("compiled function", self.form, form, "compile it for these too")
        for storage, changed in self._seen:
            if storage.changed != changed:
                hint = "compile it again after changing them"
                raise TraceError("compiled function", "weights as they were", "changed ones", hint)
        pairs = zip(tensors, self._inputs, strict=True)
        given = [_fitting(x, ref, values) for x, (_, ref) in pairs]
        given += [_renewed(renewal) for renewal in self.graph.renewals]
        made = [new_view(ref.dtype, _sizes(ref, values)) for _, ref in self._outputs]
        with self._lock:
            if values != self._now:
                self.bound.bind(values)
                self._now = values
            for view, k in zip(given, self._given, strict=True):
                self.bound.place(k, view.address)
            for view, (k, _) in zip(made, self._outputs, strict=True):
                self.bound.place(k, view.address)
            status, failed = self.bound.run()
        if status:
            raise self._refusal(status, failed)
        return tree.build(self.result, [Tensor.of_view(v) for v in made])

    def _refusal(self, status: int, failed: int) -> Exception:
        node = self.graph.nodes[failed]
        return status_error(plans.NAMES.index(node.op), status, [])


def _constants_of(buffer: Buffer) -> list[Storage]:
    if buffer.kind is not Kind.CONSTANT:
        return []
    return buffer.owner if isinstance(buffer.owner, list) else [buffer.owner]


def _renewed(renewal: Renewal) -> View:
    first, renewal.first = renewal.first, None
    return renewal.make() if first is None else first


def _sizes(ref: Ref, values: Sequence[int]) -> Shape:
    return tuple([value_at(n, values) for n in ref.shape]) if values else ref.shape


def _fitting(x: Tensor, ref: Ref, values: Sequence[int]) -> View:
    shape = _sizes(ref, values)
    if x.shape != shape or x.dtype is not ref.dtype:
        wanted, got = f"{ref.dtype}{list(shape)}", f"{x.dtype}{list(x.shape)}"
        raise ShapeError("compiled function", wanted, got, "compile it for these sizes too")
    return x.detach().contiguous().data


def optimised(graph: Graph) -> Graph:
    """The graph after all passes."""
    for run in PASSES:
        graph = run(graph)
    return graph
