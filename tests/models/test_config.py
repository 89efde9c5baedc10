"""Values of configuration files that would make every result NaN, or alike, are refused."""

from __future__ import annotations

import math

import pytest

from candle.errors import FormatError
from candle.models.config import epsilon, field


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 10**400, "1e-5", None, True])
def test_an_epsilon_is_finite_and_not_negative(bad: object) -> None:
    with pytest.raises(FormatError, match="eps"):
        epsilon({"eps": bad}, "eps")


def test_an_epsilon_may_be_zero_or_left_out() -> None:
    assert epsilon({"eps": 0}, "eps") == 0.0
    assert epsilon({}, "eps", 1e-12) == 1e-12


def test_an_integer_of_400_digits_is_no_float() -> None:
    with pytest.raises(FormatError, match="64 bits"):
        field({"base": 10**400}, "base", float)
