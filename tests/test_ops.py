"""Every operation against its meaning in NumPy float64: all dtypes, layouts and ISAs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from candle import Tensor, _native
from support.case import LAYOUTS, Case, build, values_of
from support.cases import CASES

NAMES = [c.name for c in CASES]


def run(case: Case, dtype: str, layout: str) -> tuple[list[Tensor], list[Any]]:
    """What a case gives and what it should, as lists of outputs."""
    seed = zlib.crc32(case.name.encode())
    tensors, arrays = build(case, dtype, layout, np.random.default_rng(seed))
    got = case.run(*tensors)
    with np.errstate(all="ignore"):
        want = case.means(*arrays)
    return (
        [*got] if isinstance(got, tuple) else [got],
        [*want] if isinstance(want, tuple) else [want],
    )


def check(case: Case, dtype: str, got: list[Tensor], want: list[Any]) -> None:
    for made, meant in zip(got, want, strict=True):
        assert made.shape == np.shape(meant)
        values, exact = values_of(made), np.asarray(meant, np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(values - exact) / (1 + np.abs(exact))
        same = (values == exact) | (np.isnan(values) & np.isnan(exact))
        worst = np.max(np.where(same, 0.0, error), initial=0.0)
        assert worst <= case.tolerance(dtype), f"{case.name} {dtype}: error {worst:.2e}"


def test_case_names_are_different() -> None:
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_means_what_the_oracle_says(case: Case) -> None:
    for dtype in case.dtypes:
        for layout in LAYOUTS:
            check(case, dtype, *run(case, dtype, layout))


@pytest.fixture
def isa() -> Iterator[None]:
    before = _native.isa()
    yield
    _native.set_isa(before)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_all_instruction_sets_agree(case: Case, isa: None) -> None:
    for name in _native.isa_list():
        _native.set_isa(name)
        for dtype in case.dtypes:
            check(case, dtype, *run(case, dtype, "row-major"))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_view_gives_the_bits_of_its_copy(case: Case) -> None:
    """pytorch#1246, candle PR 3765 (T09, T15): strides change nothing but the order in memory."""
    for dtype in case.dtypes:
        plain = [values_of(t) for t in run(case, dtype, "row-major")[0]]
        for layout in LAYOUTS:
            made = [values_of(t) for t in run(case, dtype, layout)[0]]
            for a, b in zip(plain, made, strict=True):
                np.testing.assert_array_equal(a, b, f"{case.name} {dtype} {layout}")
