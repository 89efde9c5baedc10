"""Trace: a function's steps, written down instead of run, as a graph.

The function runs on tensors whose memory is never written. Native calls go to a tape; every storage
made meanwhile has an address of its own, so the tape tells which step wrote what another reads.
Memory that was there before is a constant, or a state where a step changes it. What Python itself
writes (`Tensor([1, 2])`) is there, and a constant too.
"""

from __future__ import annotations

import bisect
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

from .. import anomaly, eager, tracing
from .._native import plans, status_error
from ..errors import TraceError
from ..storage import Storage, View, distinct_memory, new_view
from ..tensor import Tensor
from . import tree
from .graph import Graph, Kind, Node, Renewal
from .regions import Owner, Regions, block_at, owner_of

_RANDOM = ("uniform", "normal")


class Trace:
    """What a run of the function left: its graph, and the forms of arguments and result."""

    def __init__(self, graph: Graph, form: Any, result: Any) -> None:
        self.graph, self.form, self.result = graph, form, result


def trace(fn: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Trace:
    """The graph of `fn(*args, **options)`.

    Raises TraceError where the function asks for values, draws random numbers, or is being traced
    already on another thread.
    """
    tensors: list[Tensor] = []
    form = tree.flatten((args, options), tensors)
    tracer = Tracer()
    graph, result = tracer.run(fn, form, tensors)
    tracer.check_kept()
    return Trace(graph, form, result)


class Tracer:
    """Hears of everything that a function does on this thread, while it is the context."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.made: list[tuple[int, int]] = []  # (address, bytes) of memory from the pool, sorted
        self.owners: list[Owner] = []  # of memory that steps may see
        self.keepers: list[Any] = []  # results and records: nothing they hold is freed meanwhile
        self.steps: list[tuple[plans.RawStep, str, str]] = []  # with label and place
        self.examples: list[tuple[View, Tensor]] = []  # of inputs that have no values yet
        self.evaluated = 0  # steps
        self.renewals: list[tuple[Callable[[], View], View]] = []
        self.unknown: set[int] = set()  # storages, by address, whose values no one knows

    def __enter__(self) -> Tracer:
        if tracing.current:
            raise TraceError("compile", "one trace at a time", "another in progress")
        self.memory, self.tape = distinct_memory(), plans.Tape()
        self.memory.__enter__()
        tracing.current.append(self)
        anomaly.watching.append(self)
        self.tape.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.tape.__exit__()
        anomaly.watching.remove(self)
        tracing.current.remove(self)
        self.memory.__exit__()

    def run(
        self, fn: Callable[..., Any], form: Any, examples: Sequence[Tensor]
    ) -> tuple[Graph, Any]:
        """The graph of the function on arguments of this form, and the form of its result."""
        with self:
            inputs = [self.input(x) for x in examples]
            args, options = tree.build(form, [*inputs])
            results: list[Tensor] = []
            result = tree.flatten(fn(*args, **options), results)
            graph = self.graph(inputs, results)
            self.forget_gradients()
        return graph, result

    def forget_gradients(self) -> None:
        """Takes from Vars the gradients that the trace left: they have no values."""
        for _, record in self.keepers:
            for x in record.inputs:
                grad = x.grad()
                if grad is not None and grad.data.storage.address in self.unknown:
                    x.zero_grad()

    def check_kept(self) -> None:
        """Raises TraceError where the function keeps a tensor that has no values."""
        self.keepers.clear()
        self.owners.clear()
        kept = self._alive()
        if kept and gc.collect() >= 0:
            kept = self._alive()
        for step, _, place in self.steps:
            for view in step.views[: plans.WRITES[step.op]]:
                if view.address in kept:
                    got = f"a tensor made at {place}"
                    raise TraceError(
                        "compile", "nothing kept from the call", got, "return it instead"
                    )

    def _alive(self) -> set[int]:
        freed = {block.memory[0] for block in self.memory.hoard.kept}
        return {address for address, _ in self.made if address in self.unknown} - freed

    # -- what the engine tells ---------------------------------------------------------------------

    def allocated(self, address: int, nbytes: int) -> None:
        """New memory of the pool."""
        bisect.insort(self.made, (address, nbytes))

    def pause(self) -> None:
        """From now on steps are run; memory counts as there before."""
        self.read("")
        self.tape.stop()
        tracing.current.remove(self)

    def resume(self) -> None:
        """Ends a pause."""
        tracing.current.append(self)
        self.tape.start()

    def owned(self, storage: Storage) -> None:
        """A storage on memory of another owner, or changed in place."""
        self.owners.append((storage, storage.address, storage.address + 1))

    def saw(self, out: Any, record: Any) -> None:
        """A result, and the record it came from: the steps that were new are that record's."""
        if threading.get_ident() != self.thread:
            return
        self.keepers.append((out, record))
        self.owners += [owner_of(x.data) for x in record.inputs]
        self.read(type(record).__name__)

    def renewed(self, make: Callable[[], View]) -> View:
        """A view that `make` makes again before each run; this one is for the first."""
        with tracing.outside():
            view = make()
        self.owners.append(owner_of(view))
        self.renewals.append((make, view))
        return view

    def looked_at(self, view: View) -> None:
        """Bytes are handed out: fine for what Python writes, or for what was there before."""
        if threading.get_ident() != self.thread:
            return
        self.read("")
        self.owners.append(owner_of(view))
        if {view.address, view.storage.address} & self.unknown:
            got = f"its values asked for at {anomaly.line()}"
            hint = "candle.static(value) fixes it at trace time; where() chooses by element"
            raise TraceError("compile", "a tensor's values to stay unknown", got, hint)

    # -- the tape ----------------------------------------------------------------------------------

    def input(self, example: Tensor) -> Tensor:
        """An argument: memory that nobody writes, but to evaluate."""
        view = new_view(example.dtype, example.shape)
        self.unknown.add(view.storage.address)
        self.examples.append((view, example))
        return Tensor.of_view(view)

    def evaluate(self) -> None:
        """Runs the steps so far. Raises TraceError where one changes what was there before."""
        self.read("")
        with tracing.outside():
            while self.examples:
                view, example = self.examples.pop()
                eager.copy_into(view, example.data)
            for step, _, place in self.steps[self.evaluated :]:
                self._evaluate(step, place)
        self.evaluated = len(self.steps)

    def _evaluate(self, step: plans.RawStep, place: str) -> None:
        for view in step.views[: plans.WRITES[step.op]]:
            if view.address and block_at(self.made, view.address) is None:
                got = f"a change in place at {place} before it"
                raise TraceError("static", "values that looking does not change", got)
        if status := plans.run(step):
            raise status_error(step.op, status, [])

    def read(self, label: str) -> None:
        """Takes the new steps from the tape; `label` names what asked for them."""
        place = ""
        for step in self.tape.new():
            place = place or anomaly.line()
            name = plans.NAMES[step.op]
            if name in _RANDOM:
                hint = "draw outside and pass the numbers in"
                raise TraceError("compile", "no random numbers", f"{name} at {place}", hint)
            self.steps.append((step, label or name, place))
            for view in step.views[: plans.WRITES[step.op]]:
                self.unknown.add(self._start(view.address))

    def _start(self, address: int) -> int:
        """Where the memory begins that an address lies in."""
        at = block_at(self.made, address)
        return address if at is None else self.made[at][0]

    # -- the graph ---------------------------------------------------------------------------------

    def graph(self, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> Graph:
        """All steps as nodes on buffers."""
        self.read("")
        self.owners += [owner_of(x.data) for x in results]
        memory = Regions(self.steps, self.made, self.owners)
        renewals: list[Renewal] = []
        nodes = [_node(memory, *found) for found in self.steps]
        given = [memory.of_view(x.data) for x in inputs]
        for k, ref in enumerate(given):
            ref.buffer.kind, ref.buffer.name = Kind.INPUT, f"input {k}"
            ref.buffer.nbytes = ref.nbytes
        for k, (make, view) in enumerate(self.renewals):
            ref = memory.of_view(view)
            ref.buffer.kind, ref.buffer.name = Kind.INPUT, f"number {k}"
            renewals.append(Renewal(make, view, ref))
        asked = [memory.of_view(x.data) for x in results]
        graph = Graph(nodes, given, asked, renewals)
        memory.settle(graph)
        return graph


def _node(memory: Regions, step: plans.RawStep, label: str, place: str) -> Node:
    refs = [memory.ref(v) for v in step.views]
    writes = plans.WRITES[step.op]
    outs, ins = tuple(refs[:writes]), tuple(refs[writes:])
    return Node(plans.NAMES[step.op], outs, ins, step.ints, step.floats, label, place)
