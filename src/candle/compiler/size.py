"""Size: an integer that depends on symbols, as a polynomial; its value is the greatest one.

Passes compute with it as with any integer. It is equal to another only where both are the same
polynomial, so that sizes that happen to be equal once are not taken for equal; order is by value.
What a polynomial cannot hold (division) raises TraceError; `int(size)` is the value alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NoReturn

from ..errors import OptionError, TraceError

Powers = tuple[int, ...]  # of each symbol
MOST_DEGREE = 3


@dataclass(frozen=True)
class Symbol:
    """A size from `least` to `most`, by its name."""

    name: str
    least: int
    most: int

    def __post_init__(self) -> None:
        plain = isinstance(self.name, str) and self.name.isidentifier()
        if not plain or not 0 <= self.least <= self.most:
            raise OptionError("dynamic", "a name, and 0 <= least <= most", self)


class Size(int):
    """`terms`: factor by the powers of the symbols; `most`: the symbols' greatest values."""

    terms: dict[Powers, int]
    most: tuple[int, ...]

    @staticmethod
    def of(terms: Mapping[Powers, int], most: Sequence[int]) -> int:
        """The integer of these terms; a plain one where no symbol is in them."""
        left = {powers: factor for powers, factor in terms.items() if factor}
        if not any(any(powers) for powers in left):
            return sum(left.values())
        made = Size(evaluate(left, most))
        made.terms, made.most = left, tuple(most)
        return made

    def at(self, values: Sequence[int]) -> int:
        """The value for values of the symbols."""
        return evaluate(self.terms, values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _terms_of(self, other: int) -> dict[Powers, int]:
        if isinstance(other, Size):
            return other.terms
        return {(0,) * len(self.most): int(other)}

    def __add__(self, other: int) -> int:
        terms = dict(self.terms)
        for powers, factor in self._terms_of(other).items():
            terms[powers] = terms.get(powers, 0) + factor
        return Size.of(terms, self.most)

    def __mul__(self, other: int) -> int:
        terms: dict[Powers, int] = {}
        pairs = product(self.terms.items(), self._terms_of(other).items())
        for (a, factor), (b, by) in pairs:
            powers = tuple(x + y for x, y in zip(a, b, strict=True))
            terms[powers] = terms.get(powers, 0) + factor * by
        return Size.of(terms, self.most)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> int:
        return self * -1

    def __sub__(self, other: int) -> int:
        return self + -other

    def __rsub__(self, other: int) -> int:
        return -self + other

    def _refuse(self, *_: Any) -> NoReturn:
        raise TraceError("compile", "sums and products of dynamic sizes", f"a division of {self!r}")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = _refuse
    __truediv__ = __rtruediv__ = _refuse

    def __repr__(self) -> str:
        return f"Size({int(self)}, {self.terms})"


def evaluate(terms: Mapping[Powers, int], values: Sequence[int]) -> int:
    """A polynomial's value."""
    total = 0
    for powers, factor in terms.items():
        for value, power in zip(values, powers, strict=True):
            factor *= value**power
        total += factor
    return total


def value_at(size: int, values: Sequence[int]) -> int:
    """The value of a size, or of a plain integer."""
    return size.at(values) if isinstance(size, Size) else size


def fitted(points: Sequence[tuple[int, ...]], seen: Sequence[int]) -> int | None:
    """The polynomial of least degree through all points, the first being that of `most`.

    None where there is none of `MOST_DEGREE` with whole factors, or where points leave it open.
    """
    if len(set(seen)) == 1:
        return seen[0]
    for degree in range(1, MOST_DEGREE + 1):
        basis = [p for p in product(range(degree + 1), repeat=len(points[0])) if sum(p) <= degree]
        rows = [[_monomial(p, point) for p in basis] for point in points]
        found = _solved(rows, seen)
        if found is not None:
            whole = all(f.denominator == 1 for f in found)
            terms = {p: int(f) for p, f in zip(basis, found, strict=True)}
            return Size.of(terms, points[0]) if whole else None
    return None


def _monomial(powers: Powers, point: Sequence[int]) -> int:
    made = 1
    for value, power in zip(point, powers, strict=True):
        made *= value**power
    return made


def _solved(rows: Sequence[Sequence[int]], seen: Sequence[int]) -> list[Fraction] | None:
    """The one solution of an overdetermined system, or None."""
    table = [[Fraction(x) for x in (*row, value)] for row, value in zip(rows, seen, strict=True)]
    width = len(rows[0])
    for column in range(width):
        pivot = next((r for r in range(column, len(table)) if table[r][column]), None)
        if pivot is None:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        head = table[column]
        for r, row in enumerate(table):
            if r != column and row[column]:
                by = row[column] / head[column]
                table[r] = [x - by * y for x, y in zip(row, head, strict=True)]
    if any(row[width] for row in table[width:]):
        return None
    return [table[r][width] / table[r][r] for r in range(width)]
