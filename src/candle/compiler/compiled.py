"""Compiled: a function as a plan, called like the function."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import tracing
from .._native import plans, status_error
from ..errors import OptionError, TraceError
from ..storage import Storage, View
from . import tree
from .dynamic import Dynamic, merged
from .graph import Buffer, Graph, Kind, Renewal
from .lower import Lowering
from .memory import Arena, arrange
from .passes import PASSES
from .running import WHAT, End, Runner
from .stored import save_plan
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
    if not callable(fn):
        raise OptionError("compile", "a function", type(fn).__name__)
    if not isinstance(dynamic, Mapping | None):
        wanted = "sizes by argument, such as {0: {0: 'batch'}}"
        raise OptionError("compile dynamic", wanted, type(dynamic).__name__)
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


class Compiled(Runner):
    """A callable that runs a plan; `graph` and `arena` say what it consists of.

    One call at a time: others wait. Results are new, row-major tensors without a history.
    """

    def __init__(self, fn: Callable[..., Any], traced: Trace, dynamic: Dynamic) -> None:
        self.fn = fn
        self.graph = optimised(traced.graph)
        self.arena: Arena = arrange(self.graph)
        lowering = Lowering(self.graph, self.arena, list(dynamic.symbols.values()))
        self._seen = [(s, s.changed) for b in self.graph.buffers() for s in _constants_of(b)]
        numbers = {b: k for k, b in enumerate(lowering.buffers)}
        arena = {numbers[b]: self.arena.offsets.get(b, 0) for b in numbers if b.kind is Kind.TEMP}
        fixed = {k: b.address for b, k in numbers.items() if b.kind in (Kind.CONSTANT, Kind.STATE)}
        inputs, outputs = (
            [End(numbers[r.buffer], r.dtype, r.shape) for r in refs]
            for refs in (self.graph.inputs, self.graph.outputs)
        )
        self._renewed = [numbers[r.ref.buffer] for r in self.graph.renewals]
        forms = traced.form, traced.result
        bound = plans.Bound(lowering.whole())
        super().__init__(bound, forms, (inputs, outputs), dynamic, arena, fixed)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The function's result. Raises ShapeError for arguments that are not as the examples."""
        if tracing.current:
            return self.fn(*args, **options)
        values = self.dynamic.values(args, options)
        tensors = self.tensors(args, options)
        for storage, changed in self._seen:
            if storage.changed != changed:
                hint = "compile it again after changing them"
                raise TraceError(WHAT, "weights as they were", "changed ones", hint)
        pairs = zip(self._renewed, self.graph.renewals, strict=True)
        more = [(number, _renewed(renewal)) for number, renewal in pairs]
        return self.run(tensors, values, more, self._refusal)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan with its constants as one file, for `candle.load_plan`.

        Raises TraceError for what a file cannot hold: a training step, or arguments other than
        tensors and plain values.
        """
        save_plan(self, path)

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


def optimised(graph: Graph) -> Graph:
    """The graph after all passes."""
    for run in PASSES:
        graph = run(graph)
    return graph
