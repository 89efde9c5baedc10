"""Arguments and results as a flat list of tensors, and the form that puts them together again."""

from __future__ import annotations

from typing import Any

from ..errors import TraceError
from ..tensor import Tensor


class Leaf:
    """The place of a tensor in a form."""

    def __repr__(self) -> str:
        return "tensor"


LEAF = Leaf()


def flatten(value: Any, tensors: list[Tensor]) -> Any:
    """The form of a value; its tensors are appended, in order."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return LEAF
    if type(value) in (tuple, list):
        return type(value)(flatten(v, tensors) for v in value)
    if isinstance(value, tuple):  # a named one
        return type(value)(*(flatten(v, tensors) for v in value))
    if type(value) is dict:
        return {k: flatten(v, tensors) for k, v in value.items()}
    return value


def build(form: Any, tensors: list[Tensor]) -> Any:
    """The value of a form; its tensors are taken from the list, in order."""
    if form is LEAF:
        return tensors.pop(0)
    if type(form) in (tuple, list):
        return type(form)(build(v, tensors) for v in form)
    if isinstance(form, tuple):
        return type(form)(*(build(v, tensors) for v in form))
    if type(form) is dict:
        return {k: build(v, tensors) for k, v in form.items()}
    return form


def same(form: Any, other: Any) -> bool:
    """Whether two forms are equal, their values fixed at trace time among them."""
    if type(form) is not type(other):
        return False
    if isinstance(form, tuple | list):
        return len(form) == len(other) and all(map(same, form, other))
    if type(form) is dict:
        return form.keys() == other.keys() and all(same(v, other[k]) for k, v in form.items())
    try:
        return form is other or bool(form == other)
    except (TypeError, ValueError) as error:
        hint = "pass tensors, or plain values that can be compared"
        raise TraceError("compile", "arguments that compare", type(form).__name__, hint) from error
