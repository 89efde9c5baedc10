"""Runs the records of losses: what rows of logits cost against class targets, and the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _native, op
from .dtype import DType
from .errors import DTypeError, OptionError, RangeError, ShapeError
from .launch import call, params
from .storage import View, new_view

Views = Sequence[View]

_CROSS_ENTROPY, _GRAD = map(_native.op_id, ("cross_entropy", "cross_entropy_grad"))


def _check(logits: View, targets: View, weight: View | None) -> None:
    name = "cross_entropy"
    if logits.dtype not in (DType.F32, DType.F64):
        raise DTypeError(name, "logits of f32 or f64", logits.dtype, "to_dtype() casts")
    if targets.dtype is not DType.I64:
        raise DTypeError(name, "targets of i64", targets.dtype, "to_dtype() casts")
    if logits.layout.rank != 2 or logits.layout.shape[1] == 0:
        raise ShapeError(name, "logits of [rows, classes]", list(logits.layout.shape))
    if targets.layout.shape != logits.layout.shape[:1]:
        wanted = f"targets of {list(logits.layout.shape[:1])}"
        raise ShapeError(name, wanted, list(targets.layout.shape))
    if weight is None:
        return
    if weight.layout.shape != logits.layout.shape[1:]:
        wanted = f"a weight of {list(logits.layout.shape[1:])}"
        raise ShapeError(name, wanted, list(weight.layout.shape))
    if weight.dtype is not logits.dtype:
        raise DTypeError(name, f"a weight of {logits.dtype}", weight.dtype)


def _params(record: Any) -> bytes:
    if not 0.0 <= record.smoothing <= 1.0:
        raise OptionError("cross_entropy", "label_smoothing in [0, 1]", record.smoothing)
    return params(record.ignored, record.reduction.value, f=(record.smoothing,))


def _launch(op_id: int, views: Sequence[View | None], record: Any) -> None:
    try:
        call(op_id, views, _params(record))
    except RangeError as error:
        logits, targets = record.inputs[0].data, record.inputs[1].data
        raise stray("cross_entropy", logits.layout.shape[1], targets, record.ignored) from error


def stray(name: str, classes: int, targets: View, ignored: int) -> RangeError:
    """Names row and value of the first i64 target that is neither a class nor ignored."""
    stride = targets.layout.strides[0]
    cell = targets.with_layout((1,), None)
    for row in range(targets.layout.shape[0]):
        at = View(cell.storage, targets.offset + 8 * row * stride, cell.layout)
        value = int.from_bytes(at.bytes(), "little", signed=True)
        if value != ignored and not 0 <= value < classes:
            break
    wanted = f"targets in [0, {classes}) or {ignored}, which is ignored"
    return RangeError(name, wanted, f"{value} in row {row}")


def _cross_entropy(record: op.CrossEntropy, views: Views) -> View:
    logits, targets = views[:2]
    weight = views[2] if len(views) > 2 else None
    _check(logits, targets, weight)
    shape = targets.layout.shape if record.reduction is op.Reduction.NONE else ()
    out = new_view(logits.dtype, shape)
    _launch(_CROSS_ENTROPY, [out, logits, targets, weight], record)
    return out


def _cross_entropy_grad(record: op.CrossEntropyGrad, views: Views) -> View:
    logits, targets, g = views[:3]
    weight = views[3] if len(views) > 3 else None
    _check(logits, targets, weight)
    out = new_view(logits.dtype, logits.layout.shape)
    _launch(_GRAD, [out, logits, targets, weight, g], record)
    return out


RUNNERS: dict[type, Callable[[Any, Views], Any]] = {
    op.CrossEntropy: _cross_entropy,
    op.CrossEntropyGrad: _cross_entropy_grad,
}
