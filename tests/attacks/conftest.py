"""Attacks must not cost memory either: each is opened under a watch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

LIMIT = 8 << 20  # bytes; every attack file is far smaller


@pytest.fixture
def watched() -> Iterator[Callable[..., Any]]:
    """Call a function; fail if it took more than LIMIT bytes."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        tracemalloc.start()
        try:
            return function(*arguments)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < LIMIT

    yield call
