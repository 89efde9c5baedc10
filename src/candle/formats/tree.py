"""Values that hold values: how much there is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import OptionError

MOST = 1_000_000  # values in one
DEEP = 128  # levels that are looked at; whoever walks the value itself refuses more


def refuse_huge(value: object, op: str) -> None:
    """Raises OptionError for a value with more than MOST values in it, counted as JSON writes them.

    Lists that share a list are small in memory and can be beyond all bounds when written out.
    """
    stack, count = [(value, 0)], 0
    while stack:
        found, depth = stack.pop()
        inner: Iterable[object] = ()
        if isinstance(found, Mapping):
            inner = found.values()
        elif isinstance(found, list | tuple | set | frozenset):
            inner = found
        if depth < DEEP:
            stack.extend((each, depth + 1) for each in inner)
        count += 1
        if count + len(stack) > MOST:
            raise OptionError(op, f"at most {MOST:,} values", "more")
