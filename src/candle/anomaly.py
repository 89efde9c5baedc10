"""Anomaly mode: which operation made the first NaN or infinity, and the line that asked for it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import op, tracing
from .errors import AnomalyError

Value = Any
_HERE = str(Path(__file__).resolve().parent)

# contexts open on any thread, tracers among them: one look at this is all that a result costs where
# there are none
watching: list[Any] = []


class _State(threading.local):
    def __init__(self) -> None:
        self.places: dict[int, str] | None = None  # by a result's id, while a context is open
        self.quiet = False  # while values are looked at, and in backward, which is checked apart


_state = _State()


class detect_anomaly:
    """Context in which every result is looked at: `with candle.detect_anomaly(): ...`.

    The first operation that makes a NaN or an infinity of finite inputs, or a gradient that is one
    of a finite gradient, raises AnomalyError: it names the operation, the element and the line. For
    this thread; slow.
    """

    def __enter__(self) -> None:
        self.before = _state.places
        _state.places = dict(self.before or {})
        watching.append(self)

    def __exit__(self, *_: object) -> None:
        watching.remove(self)
        _state.places = self.before


class quiet:
    """Context in which results are not looked at."""

    def __enter__(self) -> None:
        self.before = _state.quiet
        _state.quiet = True

    def __exit__(self, *_: object) -> None:
        _state.quiet = self.before


def check(out: Value, record: Any) -> None:
    """Looks at a result. Raises AnomalyError where it is the first that is not finite."""
    if tracing.current:
        tracing.current[0].saw(out, record)
    if _state.places is None or (_state.quiet and not out.tracked):
        return
    place = f"made at {line()}"
    if out.tracked:
        _state.places[out.id] = place
    if _state.quiet:
        return
    with quiet():
        got = _oddity(out)
        if got is not None and all(_oddity(x) is None for x in record.inputs):
            raise AnomalyError(op.describe(record), "finite values", got, place)


def check_gradients(out: Value, record: Any, grad: Value, given: Iterable[Value | None]) -> None:
    """Looks at the gradients of a record's inputs. Raises AnomalyError likewise."""
    if _state.places is None or _oddity(grad) is not None:
        return
    for n, (x, g) in enumerate(zip(record.inputs, given, strict=True)):
        got = _oddity(g) if g is not None and x.tracked else None
        if got is not None:
            name, place = op.describe(record), _state.places.get(out.id, "made before the context")
            wanted = f"a finite gradient of input {n}"
            raise AnomalyError(f"backward of {name}", wanted, got, place)


def _oddity(x: Value) -> str | None:
    """The first element that is not finite and where it is, or None."""
    if not x.dtype.is_float or not x.count:
        return None
    x = x.detach()
    if math.isfinite(x.abs().max().to_scalar()):
        return None
    flat = x.reshape((x.count,)).to_vec()
    at = next(k for k, value in enumerate(flat) if not math.isfinite(value))
    value, places = flat[at], list[int]()
    for n in reversed(x.shape):
        at, place = divmod(at, n)
        places.insert(0, place)
    return f"{value} at {places} of {list(x.shape)}"


def line() -> str:
    """The nearest line of code outside of this package that is running."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
