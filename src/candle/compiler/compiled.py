"""Compiled: a function as a plan, called like the function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .. import tracing
from .._native import plans, status_error
from ..errors import ShapeError, TraceError
from ..storage import Storage, View, new_view
from ..tensor import Tensor
from . import tree
from .graph import Buffer, Graph, Kind, Ref, Renewal
from .lower import Lowering
from .memory import Arena, arrange
from .passes import PASSES
from .trace import Trace, trace


def compile(fn: Callable[..., Any], *example_inputs: Any, **options: Any) -> Compiled:
    """`fn` as a plan for arguments of these shapes, dtypes and plain values.

    Of the examples only the sizes count, but for what `static` marks. Raises TraceError where `fn`
    asks for a tensor's values, draws random numbers, or keeps a tensor it made.
    """
    return Compiled(fn, trace(fn, example_inputs, options))


class Compiled:
    """A callable that runs a plan; `graph` and `arena` say what it consists of.

    One call at a time: others wait. Results are new, row-major tensors without a history.
    """

    def __init__(self, fn: Callable[..., Any], traced: Trace) -> None:
        self.fn = fn
        self.form, self.result = traced.form, traced.result
        self.graph = optimised(traced.graph)
        self.arena: Arena = arrange(self.graph)
        lowering = Lowering(self.graph, self.arena)
        self.plan = lowering.whole()
        self._seen = [(s, s.changed) for b in self.graph.buffers() for s in _constants_of(b)]
        self._bind(lowering.buffers)

    def _bind(self, buffers: list[Buffer]) -> None:
        self.bound = plans.Bound(self.plan)
        self.bound.bind()
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
        form = tree.flatten((args, options), tensors)
        if len(tensors) != len(self._inputs) or not tree.same(form, self.form):
            raise ShapeError("compiled function", self.form, form, "compile it for these too")
        for storage, changed in self._seen:
            if storage.changed != changed:
                hint = "compile it again after changing them"
                raise TraceError("compiled function", "weights as they were", "changed ones", hint)
        given = [_fitting(x, ref) for x, (_, ref) in zip(tensors, self._inputs, strict=True)]
        given += [_renewed(renewal) for renewal in self.graph.renewals]
        made = [new_view(ref.dtype, ref.shape) for _, ref in self._outputs]
        with self._lock:
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


def _fitting(x: Tensor, ref: Ref) -> View:
    if x.shape != ref.shape or x.dtype is not ref.dtype:
        wanted, got = f"{ref.dtype}{list(ref.shape)}", f"{x.dtype}{list(x.shape)}"
        raise ShapeError("compiled function", wanted, got, "compile it for these sizes too")
    return x.detach().contiguous().data


def optimised(graph: Graph) -> Graph:
    """The graph after all passes."""
    for run in PASSES:
        graph = run(graph)
    return graph
