"""Which token comes next: greedy, or drawn with temperature, top-k, top-p and min-p.

The order is that of Hugging Face's generation: logits are divided by the temperature; top-k keeps
the k best; top-p keeps the fewest of those whose probabilities (among the k) reach p; min-p drops
what is less likely than min_p times the best; then one token is drawn. Tokens are ordered by logit,
equal ones by id. The whole vocabulary takes part unless it is cut: the best 64 tokens are looked at
first, and more only where the number drawn lies beyond them.
"""

from __future__ import annotations

import math
import numbers
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from ..errors import CandleError, OptionError
from .philox import Random

_FIRST_LOOK = 64
_NEXT_LOOK = 8  # times as many
_NEGLIGIBLE = 2.0**-60
_LARGEST = 700.0  # exp of more has no double
_ROUNDED = 0.999  # a logarithm in single precision may be off by so much


class Logits(Protocol):
    """The scores of one position, as the sampler asks for them.

    size: the number of tokens. top: the k best ids and their logits, falling, equal ones by id.
    logsumexp: log of the sum of exp(logit / t).
    """

    @property
    def size(self) -> int: ...
    def top(self, k: int) -> tuple[Sequence[int], Sequence[float]]: ...
    def logsumexp(self, temperature: float) -> float: ...


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """Checked settings; OptionError names the field.

    temperature: 0 is greedy. top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    seed: 0 to 2**64 - 1, or None for a fresh one.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, "a number of 0 or more")
        _check_number("top_p", self.top_p, "a number above 0, up to 1", above=0.0, most=1.0)
        _check_number("min_p", self.min_p, "a number from 0 to 1", most=1.0)
        check_whole("top_k", self.top_k, (1 << 31) - 1)
        if self.seed is not None:
            check_whole("seed", self.seed, (1 << 64) - 1)


class Sampler:
    """Draws the tokens of one request. `seed` is the one in use, so a fresh one can be repeated."""

    def __init__(self, options: SamplerOptions) -> None:
        self.options = options
        fresh = int.from_bytes(os.urandom(8), "little")
        self.seed = fresh if options.seed is None else int(options.seed)
        self._random = Random(self.seed)

    def pick(self, logits: Logits) -> int:
        """The next token. Raises CandleError if the best logits are not finite."""
        options = self.options
        if options.temperature == 0.0 or options.top_k == 1 or logits.size == 1:
            return _greedy(logits)
        head = _Head(logits, float(options.temperature), options.top_k)
        kept = _kept(head, options)
        drawn = self._random.double()
        if kept is None:
            return head.at(drawn, head.total())
        return head.at(drawn, head.sums[kept - 1], kept)


def _greedy(logits: Logits) -> int:
    """The best token. A NaN counts as the greatest, so one anywhere shows here."""
    ids, values = logits.top(1)
    if not math.isfinite(values[0]):
        raise CandleError("sample", "finite logits", values[0])
    return ids[0]


class _Head:
    """The best tokens, as many as were needed so far.

    weights: exp((logit - best) / temperature); sums: their running sums.
    """

    def __init__(self, logits: Logits, temperature: float, top_k: int) -> None:
        self._logits = logits
        self._temperature = temperature
        self._limit = min(top_k or logits.size, logits.size)
        self._cut = self._limit < logits.size
        self._look(_FIRST_LOOK)

    @property
    def complete(self) -> bool:
        """Whether every token that may be drawn is here."""
        return len(self.ids) >= self._limit

    def widen(self) -> None:
        """Looks at more tokens."""
        self._look(len(self.ids) * _NEXT_LOOK)

    def total(self) -> float:
        """The sum of all weights, in units of the best one's."""
        while self._cut and not self.complete:
            self.widen()
        left = (self._limit - len(self.ids)) * self.weights[-1]
        if left <= self.sums[-1] * _NEGLIGIBLE:
            return self.sums[-1]
        scale = self._best / self._temperature
        total = math.exp(min(self._logits.logsumexp(self._temperature) - scale, _LARGEST))
        if total >= self.sums[-1] * _ROUNDED:
            return max(total, self.sums[-1])
        while not self.complete:  # at this temperature the given logarithm has no digits left
            self.widen()
        return self.sums[-1]

    def reach(self, target: float) -> int:
        """How many of the best tokens have that sum of weights; all, if none has."""
        while self.sums[-1] < target and not self.complete:
            self.widen()
        return min(bisect_left(self.sums, target) + 1, len(self.sums))

    def heavier(self, least: float) -> int:
        """How many tokens have at least that weight."""
        while self.weights[-1] >= least and not self.complete:
            self.widen()
        return bisect_right(self.weights, -least, key=lambda weight: -weight)

    def at(self, fraction: float, total: float, kept: int | None = None) -> int:
        """The token in whose share of the running sum that fraction of `total` lies."""
        while kept is None and self.sums[-1] <= fraction * total and not self.complete:
            self.widen()
        if kept is None and self.complete:
            total = self.sums[-1]  # exact, where the given one is a rounded logarithm
        place = bisect_right(self.sums, fraction * total)
        return self.ids[min(place, bisect_left(self.sums, total))]

    def _look(self, count: int) -> None:
        ids, logits = self._logits.top(min(count, self._limit))
        self.ids = ids
        self._best = logits[0]
        if not math.isfinite(self._best) or any(map(math.isnan, logits)):
            raise CandleError("sample", "finite logits", self._best)
        self.weights = [math.exp((logit - self._best) / self._temperature) for logit in logits]
        self.sums = list(accumulate(self.weights))


def _kept(head: _Head, options: SamplerOptions) -> int | None:
    """How many of the best tokens may be drawn; None for all of them."""
    kept = None
    if options.top_p < 1.0:
        kept = head.reach(options.top_p * head.total())
    if options.min_p > 0.0:
        heavier = head.heavier(float(options.min_p))
        kept = heavier if kept is None else min(kept, heavier)
    return kept


def _check_number(
    name: str, value: object, expected: str, above: float = -math.inf, most: float = math.inf
) -> None:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = _as_float(value)
        if math.isfinite(number) and max(0.0, above) <= number <= most and number > above:
            return
    raise OptionError(name, expected, value)


def _as_float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number, or a fraction, beyond every double
        return math.inf


def check_whole(name: str, value: object, most: int) -> None:
    """Raises OptionError naming the field, unless `value` is an integer from 0 to `most`."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 0 <= int(value) <= most:  # type: ignore[call-overload]
        raise OptionError(name, f"a whole number from 0 to {most}", value)
