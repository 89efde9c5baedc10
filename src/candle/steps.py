"""One step of an optimiser on one variable, in place: the kernels of `optim.c`.

Views are contiguous, of one shape and f32 or f64; `numbers` is f64, made once for all variables of
a step. The storages that change say so, and records that saw them notice.
"""

from __future__ import annotations

import array

from . import _native
from .dtype import DType
from .errors import OptionError
from .launch import call, params
from .storage import View, new_view

_SGD, _ADAM = map(_native.op_id, ("sgd_step", "adam_step"))


def numbers(values: list[float]) -> View:
    """What a step's formula needs, as the kernels read it."""
    made = new_view(DType.F64, (len(values),))
    made.bytes()[:] = array.array("d", values).tobytes()
    return made


def sgd(
    value: View, moving: View | None, grad: View, given: View, *, first: bool, nesterov: bool
) -> None:
    """d = grad + decay * value; moving = momentum * moving + (1 - dampening) * d, at `first` d;
    value -= rate * (moving, or d + momentum * moving where `nesterov`).

    `given`: rate, momentum, 1 - dampening, decay.
    """
    _change(value)
    if moving is not None:
        moving.storage.mark_changed()
    call(_SGD, [value, moving, grad, given], params(first, nesterov))


def adam(value: View, mean: View, square: View, grad: View, given: View) -> None:
    """value *= keep; d = grad + decay * value; mean = first * mean + (1 - first) * d; square the
    same of d * d by `second`; value -= rate * mean / (sqrt(square) * root + epsilon).

    `given`: rate, first, 1 - first, second, 1 - second, root, epsilon, decay, keep.
    """
    _change(value)
    for state in (mean, square):
        state.storage.mark_changed()
    call(_ADAM, [value, mean, square, grad, given])


def _change(value: View) -> None:
    if not value.storage.writable:
        raise OptionError("optimizer", "writable memory", "a read-only map or buffer")
    value.storage.mark_changed()
