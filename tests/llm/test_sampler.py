"""Sampling: exact frequencies, the order of the cuts, and the same draws everywhere."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candle.errors import CandleError, OptionError
from candle.llm.philox import Random, philox4x32
from candle.llm.sampler import Sampler, SamplerOptions


class Scores:
    """Logits in a list; `looks` records how many tokens were asked for."""

    def __init__(self, values: Sequence[float], error: float = 0.0) -> None:
        self.values = list(values)
        self.order = sorted(range(len(values)), key=lambda i: (-values[i], i))
        self.looks: list[int] = []
        self._error = error

    @property
    def size(self) -> int:
        return len(self.values)

    def top(self, k: int) -> tuple[list[int], list[float]]:
        self.looks.append(k)
        return self.order[:k], [self.values[i] for i in self.order[:k]]

    def logsumexp(self, temperature: float) -> float:
        best = self.values[self.order[0]] / temperature
        total = math.fsum(math.exp(v / temperature - best) for v in self.values)
        return best + math.log(total) + self._error


def draws(values: Sequence[float], count: int, **options: Any) -> Counter[int]:
    sampler, scores = Sampler(SamplerOptions(**{"seed": 1, **options})), Scores(values)
    return Counter(sampler.pick(scores) for _ in range(count))


def softmax(values: Sequence[float], temperature: float) -> list[float]:
    weights = [math.exp((v - max(values)) / temperature) for v in values]
    return [w / sum(weights) for w in weights]


def chi_square(seen: Counter[int], expected: dict[int, float], count: int) -> float:
    """Standard deviations above the mean of the statistic; rare neighbours share a cell."""
    assert set(seen) <= {i for i, p in expected.items() if p > 0}
    cells = [[0.0, 0.0]]
    for i, p in expected.items():
        if cells[-1][1] >= 10:
            cells.append([0.0, 0.0])
        cells[-1][0] += seen[i]
        cells[-1][1] += p * count
    if cells[-1][1] < 10 and len(cells) > 1:
        last = cells.pop()
        cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
    free = len(cells) - 1
    statistic = sum((s - e) ** 2 / e for s, e in cells)
    return (statistic - free) / math.sqrt(2 * free)


def spread(size: int, scale: float, seed: int = 3) -> list[float]:
    dice = random.Random(seed)
    return [dice.gauss(0, scale) for _ in range(size)]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: Any, key: Any, words: Any) -> None:
    assert philox4x32(counter, key) == words


def test_doubles_are_even_and_never_one() -> None:
    generator = Random(42)
    numbers = [generator.double() for _ in range(20_000)]
    assert min(numbers) >= 0.0 and max(numbers) < 1.0 and len(set(numbers)) == 20_000
    tenths = Counter(int(n * 10) for n in numbers)
    assert chi_square(tenths, dict.fromkeys(range(10), 0.1), 20_000) < 4


def test_the_draws_of_a_seed_are_fixed() -> None:
    """ollama#586, llama.cpp#2838: these numbers may never change."""
    generator = Random(42)
    assert [round(generator.double(), 12) for _ in range(3)] == FIRST_OF_42
    values = spread(1000, 3.0)
    sampler = Sampler(SamplerOptions(temperature=0.7, seed=42))
    assert [sampler.pick(Scores(values)) for _ in range(12)] == PICKS_OF_42


FIRST_OF_42 = [0.468586518339, 0.340861549385, 0.327063381203]
PICKS_OF_42 = [947, 972, 972, 947, 715, 943, 715, 972, 383, 972, 972, 972]


def test_temperature_zero_is_greedy_with_the_lower_of_equal_ids() -> None:
    assert set(draws([1.0, 5.0, 2.0, 5.0], 50)) == {1}
    assert set(draws([1.0, 5.0, 2.0, 5.0], 50, temperature=1.0, top_k=1)) == {1}


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("scale", [0.1, 2.0, 6.0])
def test_plain_temperature_draws_from_the_whole_vocabulary(
    temperature: float, scale: float
) -> None:
    """tinygrad#4999: frequencies match the weights."""
    values = spread(700, scale)
    expected = dict(enumerate(softmax(values, temperature)))
    assert chi_square(draws(values, 4000, temperature=temperature), expected, 4000) < 4


@pytest.mark.parametrize("top_k", [2, 5, 64, 65, 600, 5000])
def test_top_k(top_k: int) -> None:
    values = spread(700, 1.0)
    kept = Scores(values).order[:top_k]
    expected = dict(zip(kept, softmax([values[i] for i in kept], 0.8), strict=True))
    seen = draws(values, 4000, temperature=0.8, top_k=top_k)
    assert chi_square(seen, expected, 4000) < 4


def reference(
    values: Sequence[float], temperature: float, k: int, p: float, m: float
) -> dict[int, float]:
    """The cuts as Hugging Face's documentation has them, one after another."""
    order = Scores(values).order[: k or len(values)]
    share = dict(zip(order, softmax([values[i] for i in order], temperature), strict=True))
    kept, total = [], 0.0
    for i in order:
        if total >= p and kept:
            break
        kept.append(i)
        total += share[i]
    kept = [i for i in kept if share[i] >= m * share[order[0]]]
    total = sum(share[i] for i in kept)
    return {i: share[i] / total for i in kept}


@pytest.mark.parametrize("top_k", [0, 100])
@pytest.mark.parametrize(
    ("top_p", "min_p"), [(0.9, 0.0), (0.3, 0.0), (1.0, 0.05), (0.95, 0.2), (1e-9, 0)]
)
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_cuts_in_order(top_k: int, top_p: float, min_p: float, scale: float) -> None:
    values = spread(900, scale)
    expected = reference(values, 0.9, top_k, top_p, min_p)
    seen = draws(values, 3000, temperature=0.9, top_k=top_k, top_p=top_p, min_p=min_p)
    assert set(seen) <= set(expected)
    if len(expected) > 1:
        assert chi_square(seen, expected, 3000) < 4


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([-50.0, -3.0, -1.0, 0.0, 0.5, 2.0, 2.5, 30.0]), min_size=1, max_size=150
    ),
    st.sampled_from([0.01, 0.7, 1.0, 5.0]),
    st.integers(0, 160),
    st.sampled_from([1e-6, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    st.integers(0, 1 << 40),
)
def test_only_kept_tokens_are_drawn(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    options = SamplerOptions(temperature, top_k, top_p, min_p, seed)
    expected = reference(values, temperature, top_k, top_p * (1 + 1e-9), min_p * (1 - 1e-9))
    assert Sampler(options).pick(Scores(values)) in expected


def test_a_peaked_distribution_looks_at_64_tokens_only() -> None:
    scores = Scores([20.0, 19.0, *[-30.0] * 50_000])
    sampler = Sampler(SamplerOptions(temperature=1.0, seed=5))
    for _ in range(300):
        sampler.pick(scores)
    assert set(scores.looks) == {64}


def test_a_flat_distribution_looks_further_step_by_step() -> None:
    scores = Scores([0.0] * 10_000)
    seen = {Sampler(SamplerOptions(temperature=1.0, seed=s)).pick(scores) for s in range(40)}
    assert max(seen) > 4096 and set(scores.looks) <= {64, 512, 4096, 10_000}


@pytest.mark.parametrize("error", [3e-5, -3e-5, 50.0, -50.0, math.nan, math.inf, -math.inf])
def test_a_rounded_or_useless_logarithm_does_not_draw_the_unlikely(error: float) -> None:
    values = [*spread(200, 1.0), *[-30.0] * 800]
    sampler, scores = Sampler(SamplerOptions(temperature=1.0, seed=8)), Scores(values, error)
    seen = Counter(sampler.pick(scores) for _ in range(2000))
    assert max(seen) < 200
    assert chi_square(seen, dict(enumerate(softmax(values, 1.0))), 2000) < 4


@pytest.mark.parametrize("temperature", [1e-320, 1e-12, 1e-3, 1e300])
def test_extreme_temperatures(temperature: float) -> None:
    seen = draws([0.0, 10.0, 10.0, 9.0] + [9.0] * 200, 200, temperature=temperature)
    assert set(seen) == {1, 2} if temperature < 1 else len(seen) > 50


def test_masked_tokens_are_never_drawn() -> None:
    values = [-math.inf] * 500 + [0.0, 1.0] + [-math.inf] * 500
    assert set(draws(values, 300, temperature=5.0)) == {500, 501}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite(bad: float) -> None:
    with pytest.raises(CandleError, match="finite"):
        Sampler(SamplerOptions(temperature=1.0, seed=0)).pick(Scores([bad, bad]))


def test_the_seed_belongs_to_the_request() -> None:
    """llama.cpp#7052: requests side by side draw as they would alone."""
    values = spread(300, 1.0)
    alone = [Sampler(SamplerOptions(temperature=1.0, seed=s)) for s in (1, 2)]
    expected = [[sampler.pick(Scores(values)) for _ in range(20)] for sampler in alone]
    together = [Sampler(SamplerOptions(temperature=1.0, seed=s)) for s in (1, 2)]
    seen = [[sampler.pick(Scores(values)) for sampler in together] for _ in range(20)]
    assert [list(column) for column in zip(*seen, strict=True)] == expected
    assert expected[0] != expected[1]


def test_a_fresh_seed_is_told_and_can_be_repeated() -> None:
    values = spread(300, 1.0)
    first = Sampler(SamplerOptions(temperature=1.0))
    again = Sampler(SamplerOptions(temperature=1.0, seed=first.seed))
    assert [first.pick(Scores(values)) for _ in range(9)] == [
        again.pick(Scores(values)) for _ in range(9)
    ]
    assert first.seed != Sampler(SamplerOptions(temperature=1.0)).seed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("temperature", v) for v in (-0.1, math.nan, math.inf, "1", None, True)],
        *[("top_p", v) for v in (0, -1, 1.01, math.nan, "x", True, None)],
        *[("min_p", v) for v in (-0.1, 1.1, math.nan, [], False)],
        *[("top_k", v) for v in (-1, 1.0, "3", None, True, 1 << 40)],
        *[("seed", v) for v in (-1, 1 << 64, 1.5, "7", True)],
    ],
)
def test_bad_options_are_named(field: str, value: Any) -> None:
    with pytest.raises(OptionError, match=field):
        SamplerOptions(**{field: value})


def test_numpy_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    options = SamplerOptions(
        numpy.float32(0.5), numpy.int64(3), numpy.float64(0.9), seed=numpy.int64(3)
    )
    assert Sampler(options).pick(Scores([0.0, 9.0, 1.0, 2.0])) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_an_error_greedy_or_not(
    temperature: float, bad: float
) -> None:
    """An empty answer would be silence."""
    logits = Scores([bad, 1.0, 0.5])
    with pytest.raises(CandleError, match="finite"):
        Sampler(SamplerOptions(temperature=temperature, seed=1)).pick(logits)
