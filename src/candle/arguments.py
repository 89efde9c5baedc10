"""What arguments may be: a checker for each kind. What they raise says what was given, and is ours.

Numbers may be of any library; a value of another kind is never taken for what it is not.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .errors import CandleError, DTypeError, OptionError

T = TypeVar("T")
_SHOWN = 80


def shown(value: object) -> str:
    """A value for an error: its repr, cut short; its type where that cannot be had."""
    try:
        text = repr(value)
    except Exception:  # an integer of 5000 digits, or what the class itself raises
        return type(value).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def as_int(op: str, value: int, wanted: str = "an integer") -> int:
    """One integer. Raises DTypeError for anything else."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise DTypeError(op, wanted, shown(value)) from error


def as_float(op: str, value: float, wanted: str = "a number") -> float:
    """A float of any real number. Raises DTypeError, and OptionError for one that is too large."""
    if value.__class__ is float:
        return value
    if not isinstance(value, numbers.Real):
        raise DTypeError(op, wanted, shown(value))
    try:
        return float(value)
    except (OverflowError, ValueError) as error:
        raise OptionError(op, f"{wanted} that a float holds", shown(value)) from error


def as_flag(op: str, value: object) -> bool:
    """Whether a value counts as true. Raises DTypeError for one that does not say, as an array."""
    if value.__class__ is bool:
        return value
    try:
        return bool(value)
    except CandleError:
        raise
    except Exception as error:
        raise DTypeError(op, "True or False", shown(value)) from error


def as_list(op: str, values: Iterable[T], wanted: str) -> list[T]:
    """The items of any iterable. Raises OptionError for what is none."""
    if not isinstance(values, Iterable):
        raise OptionError(op, wanted, shown(values))
    return list(values)


def one_of(op: str, what: str, value: str, known: Mapping[str, T]) -> T:
    """What a name stands for. Raises OptionError with all names."""
    if not isinstance(value, str) or value not in known:
        *others, last = known
        names = f"{', '.join(others)} or {last}" if others else last
        raise OptionError(op, f"a {what} of {names}", shown(value))
    return known[value]


def require(op: str, wanted: str, kinds: type | tuple[type, ...], *values: object) -> None:
    """Raises OptionError unless all values are of these classes."""
    for value in values:
        if not isinstance(value, kinds):
            raise OptionError(op, wanted, shown(value))


def require_function(op: str, value: Callable[..., Any], wanted: str = "a function") -> None:
    """Raises OptionError unless it can be called."""
    if not callable(value):
        raise OptionError(op, wanted, shown(value))
