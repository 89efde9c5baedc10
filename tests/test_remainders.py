"""`%` and `//` of floats: NumPy's values to the bit, on every instruction set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from candle import Tensor, Var, _native

_SIZES = (1, 0.1, 0.3, 3, 5, 7.5, 870144.9, 65504, 2.0**-24, 1e20, 1e38, 1e300, 5e-324, np.inf, 0.0)
_VALUES = np.array([*_SIZES, *(-x for x in _SIZES), np.nan])
LEFT, RIGHT = (m.ravel().copy() for m in np.meshgrid(_VALUES, _VALUES))
TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16}
MEANS: dict[str, Any] = {"rem": np.remainder, "floor_div": np.floor_divide}


@pytest.fixture(params=_native.isa_list())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _native.isa()
    _native.set_isa(request.param)
    yield request.param
    _native.set_isa(before)


def same_bits(a: Any, b: Any) -> bool:
    whole = f"u{a.itemsize}"
    return bool(((a.view(whole) == b.view(whole)) | (np.isnan(a) & np.isnan(b))).all())


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", TYPES)
def test_special_values_are_numpys(dtype: str, name: str) -> None:
    """870144.9 % 0.1 had the wrong sign, 5 % inf was NaN and 1 // 0.1 was 10."""
    with np.errstate(all="ignore"):
        a, b = LEFT.astype(TYPES[dtype]), RIGHT.astype(TYPES[dtype])
        wanted = MEANS[name](a, b)
    got = getattr(Tensor.from_numpy(a), name)(Tensor.from_numpy(b)).numpy()
    assert same_bits(got, wanted)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("name", MEANS)
def test_bf16_is_f32_rounded(name: str) -> None:
    a, b = (Tensor.from_numpy(x).to_dtype("bf16") for x in (LEFT, RIGHT))
    got = getattr(a, name)(b).to_dtype("f32").numpy()
    wide = getattr(a.to_dtype("f32"), name)(b.to_dtype("f32"))
    assert same_bits(got, wide.to_dtype("bf16").to_dtype("f32").numpy())


def test_the_slope_of_a_remainder_is_its_quotient() -> None:
    """a % b is a - b floor(a / b): the slopes are 1 and -floor(a / b), as it was computed."""
    a, b = Var([5.5, -5.5, 1.0], "f64"), Var([2.0, 2.0, 0.1], "f64")
    (a % b).sum().backward()
    assert a.grad().to_vec() == [1.0, 1.0, 1.0]
    assert b.grad().to_vec() == [-2.0, 3.0, -9.0]
