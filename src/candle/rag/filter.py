"""Filters on metadata: `{"year": {"$gte": 2020}, "lang": "en"}` to a test of one document.

All conditions must hold. A condition is a value (equality) or a mapping of operators. Values of
different kinds are never equal and never ordered: 1 is not "1", and true is not 1. A key that a
document lacks satisfies only `$ne` and `$nin`.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import OptionError
from ..formats.tree import refuse_huge

Test = Callable[[Any], bool]
Predicate = Callable[[Mapping[str, Any]], bool]
_MISSING = object()
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_ORDERS)


def compile_filter(filter: Mapping[str, Any]) -> Predicate:
    """A test of a document's metadata. Raises OptionError for a filter that makes no sense."""
    if not isinstance(filter, Mapping):
        raise OptionError("filter", "a mapping of metadata keys", type(filter).__name__)
    refuse_huge(filter, "filter")
    tests = [(_key(key), _condition(f"filter[{key!r}]", want)) for key, want in filter.items()]

    def matches(metadata: Mapping[str, Any]) -> bool:
        return all(test(metadata.get(key, _MISSING)) for key, test in tests)

    return matches


def _key(key: object) -> str:
    if not isinstance(key, str) or key.startswith("$"):
        raise OptionError("filter", "keys that are metadata names", repr(key))
    return key


def _condition(where: str, want: Any) -> Test:
    if not isinstance(want, Mapping):
        return _equal(where, want)
    if not want:
        raise OptionError(where, "a value or operators", "an empty mapping")
    for name in want:
        if name not in _OPERATORS:
            raise OptionError(where, f"one of {' '.join(_OPERATORS)}", repr(name))
    tests = [_operator(f"{where}[{name!r}]", name, value) for name, value in want.items()]
    return lambda value: all(test(value) for test in tests)


def _operator(where: str, name: str, want: Any) -> Test:
    if name in _ORDERS:
        return _ordered(where, _ORDERS[name], want)
    inside = _one_of(where, want) if name in ("$in", "$nin") else _equal(where, want)
    return inside if name in ("$eq", "$in") else lambda value: not inside(value)


def _equal(where: str, want: Any) -> Test:
    wanted = _canonical(where, want)
    return lambda value: value is not _MISSING and _canonical(where, value) == wanted


def _one_of(where: str, want: Any) -> Test:
    if not isinstance(want, (list, tuple, set, frozenset)):
        raise OptionError(where, "a list of values", type(want).__name__)
    wanted = {_canonical(where, item) for item in want}
    return lambda value: value is not _MISSING and _canonical(where, value) in wanted


def _ordered(where: str, holds: Callable[[Any, Any], bool], want: Any) -> Test:
    kind = _order_kind(want)
    if kind is None or want != want:
        raise OptionError(where, "a number or a string", repr(want))
    return lambda value: _order_kind(value) == kind and holds(value, want)


def _order_kind(value: object) -> str | None:
    if isinstance(value, str):
        return "string"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "number"
    return None


def _canonical(where: str, value: Any) -> object:
    """A hashable form in which equal JSON values, and only those, are equal."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return ("number", value)
    try:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise OptionError(where, "what JSON can hold", repr(value)) from None
    return ("json", text)
