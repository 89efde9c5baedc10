"""Forms as JSON: tuples, lists, dictionaries, tensors and plain values, each with its kind."""

from __future__ import annotations

import math
from typing import Any

from ..errors import TraceError
from .tree import LEAF

_PLAIN = (bool, int, float, str, type(None))


def encoded(form: Any) -> Any:
    """A form for `json.dumps`. Raises TraceError for what is none of these."""
    if form is LEAF:
        return ["tensor"]
    if type(form) in (tuple, list):
        return [type(form).__name__, [encoded(v) for v in form]]
    if type(form) is dict and all(type(k) is str for k in form):
        return ["dict", [[k, encoded(v)] for k, v in form.items()]]
    finite = type(form) is not float or math.isfinite(form)
    if type(form) in _PLAIN and finite:
        return ["value", form]
    wanted = "tensors and plain values, in tuples, lists and dictionaries"
    raise TraceError("save", wanted, type(form).__name__)


def decoded(found: Any) -> Any:
    """The form again. Raises ValueError for anything else."""
    kind, *rest = found
    if kind == "tensor" and not rest:
        return LEAF
    (inner,) = rest
    if kind == "value" and type(inner) in _PLAIN:
        return inner
    if kind in ("tuple", "list"):
        made = [decoded(v) for v in inner]
        return tuple(made) if kind == "tuple" else made
    if kind == "dict" and all(type(k) is str for k, _ in inner):
        return {k: decoded(v) for k, v in inner}
    raise ValueError(f"a form, got {str(kind)[:40]}")


def leaves(form: Any) -> int:
    """How many tensors it has."""
    if form is LEAF:
        return 1
    if isinstance(form, tuple | list):
        return sum(leaves(v) for v in form)
    return sum(leaves(v) for v in form.values()) if isinstance(form, dict) else 0
