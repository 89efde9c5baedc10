"""Every test of native/ that asks for `each_isa` runs once per instruction set of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import harness
import pytest


@pytest.fixture(params=harness.ISAS)
def each_isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """The ISA that the kernels use during the test."""
    harness.set_isa(request.param)
    yield request.param
    harness.set_isa(harness.ISAS[-1])
