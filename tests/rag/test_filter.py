"""Filters on metadata."""

from __future__ import annotations

from typing import Any

import pytest

from candle.errors import OptionError
from candle.rag.filter import compile_filter

BOOK = {"year": 2020, "lang": "en", "tags": ["a"], "draft": True, "note": None, "price": 9.5}


@pytest.mark.parametrize(
    "filter, holds",
    [
        ({}, True),
        ({"year": 2020}, True),
        ({"year": 2020.0}, True),
        ({"year": "2020"}, False),
        ({"year": 2021}, False),
        ({"lang": "en", "year": 2020}, True),
        ({"lang": "en", "year": 2021}, False),
        ({"draft": True}, True),
        ({"draft": 1}, False),
        ({"note": None}, True),
        ({"absent": None}, False),
        ({"tags": ["a"]}, True),
        ({"tags": "a"}, False),
        ({"year": {"$eq": 2020}}, True),
        ({"year": {"$ne": 2020}}, False),
        ({"absent": {"$ne": 1}}, True),
        ({"year": {"$in": [1999, 2020]}}, True),
        ({"year": {"$in": []}}, False),
        ({"year": {"$nin": [1999]}}, True),
        ({"absent": {"$nin": [1]}}, True),
        ({"draft": {"$in": [1]}}, False),
        ({"tags": {"$in": [["a"], "b"]}}, True),
        ({"year": {"$gte": 2020, "$lt": 2021}}, True),
        ({"year": {"$gt": 2020}}, False),
        ({"year": {"$lte": 2020}}, True),
        ({"price": {"$gt": 9}}, True),
        ({"lang": {"$gte": "de"}}, True),
        ({"lang": {"$gte": 1}}, False),
        ({"draft": {"$gte": 0}}, False),
        ({"absent": {"$lt": 5}}, False),
    ],
)
def test_conditions(filter: dict[str, Any], holds: bool) -> None:
    assert compile_filter(filter)(BOOK) is holds


@pytest.mark.parametrize(
    "filter, wanted",
    [
        ("lang = en", "a mapping"),
        (["lang"], "a mapping"),
        ({1: 2}, "keys that are metadata names"),
        ({"$or": []}, "keys that are metadata names"),
        ({"year": {}}, "a value or operators, got an empty mapping"),
        ({"year": {"$regex": "x"}}, r"one of \$eq"),
        ({"year": {"gte": 5}}, r"one of \$eq"),
        ({"year": {"$in": 5}}, "a list of values, got int"),
        ({"year": {"$in": "abc"}}, "a list of values, got str"),
        ({"year": {"$gte": None}}, "a number or a string"),
        ({"year": {"$gte": True}}, "a number or a string"),
        ({"year": {"$lt": float("nan")}}, "a number or a string"),
        ({"year": object()}, "what JSON can hold"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(filter: Any, wanted: str) -> None:
    with pytest.raises(OptionError, match=wanted):
        compile_filter(filter)


def test_fifty_thousand_values_are_no_limit() -> None:
    """haystack#588 (R22)."""
    keep = compile_filter({"year": {"$in": list(range(50_000))}})
    assert keep({"year": 49_999}) and not keep({"year": 50_000})
