"""What the engine tells whoever traces it; nothing while nobody does.

`current` holds the tracer of the thread that traces, at most one: `compiler.trace` puts it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol


class Tracer(Protocol):
    """Hears of memory and of looks at values; each method may be called by any thread.

    `thread` is the one whose steps it takes.
    """

    thread: int

    def allocated(self, address: int, nbytes: int) -> None:
        """New memory of the pool."""

    def owned(self, storage: Any) -> None:
        """A storage on memory of another owner, or one that is changed in place."""

    def saw(self, out: Any, record: Any) -> None:
        """A result, and the record it came from."""

    def pause(self) -> None:
        """From now on steps are run, and nothing is told, until `resume`."""

    def resume(self) -> None:
        """Ends a pause."""

    def renewed(self, make: Callable[[], Any]) -> Any:
        """A view that `make` makes again before each run."""

    def evaluate(self) -> None:
        """Gives every tensor of the trace so far the value that the examples lead to."""

    def looked_at(self, view: Any) -> None:
        """The bytes of a view are handed out. Raises TraceError where they are not there."""


current: list[Tracer] = []


def mine() -> Tracer | None:
    """The tracer of this thread, if it traces."""
    return next((t for t in current if t.thread == threading.get_ident()), None)


def renewed(make: Callable[[], Any]) -> Any:
    """What `make` answers; where this thread traces, every run calls it again for a view.

    For numbers that Python counts from step to step.
    """
    tracer = mine()
    return make() if tracer is None else tracer.renewed(make)


class outside:
    """Context whose steps are run although a trace is on: for what outlives the traced call.

    On threads that do not trace, it does nothing.
    """

    def __enter__(self) -> None:
        self.paused = mine()
        if self.paused is not None:
            self.paused.pause()

    def __exit__(self, *_: object) -> None:
        if self.paused is not None:
            self.paused.resume()
