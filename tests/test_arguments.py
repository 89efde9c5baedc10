"""Arguments of the wrong kind or size: our own errors, nothing of struct or the C library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import candle
from candle import CandleError, Tensor
from candle import functional as F

MATRIX = Tensor([[1.0, 2.0], [3.0, 4.0]])

REFUSED: dict[str, Callable[[], Any]] = {
    "fill with an integer no float holds": lambda: Tensor.full(2, 10**400),
    "fill with None": lambda: Tensor.full(2, None),  # type: ignore[arg-type]
    "zeros of a block type": lambda: Tensor.zeros(32, "q4_k"),
    "arange of a block type": lambda: Tensor.arange(32, dtype="q8_0"),
    "arange without end": lambda: Tensor.arange(0, 1e300, 1e-300),
    "arange of 400 digits": lambda: Tensor.arange(10**400),
    "topk of half": lambda: MATRIX.topk(1.5),  # type: ignore[arg-type]
    "a list for indices": lambda: MATRIX.index_select([1]),  # type: ignore[arg-type]
    "no weight": lambda: F.linear(MATRIX, None),  # type: ignore[arg-type]
    "a text to join": lambda: Tensor.cat([MATRIX, "x"]),  # type: ignore[list-item]
    "adding 400 digits": lambda: MATRIX.add(10**400),
    "a step of 70 bits": lambda: MATRIX[:: 2**70],
    "rope of a scalar": lambda: F.rope(Tensor(1.0), Tensor([1], "i32")),
    "half a correction": lambda: MATRIX.var(correction=1.5),  # type: ignore[arg-type]
    "nine axes": lambda: Tensor.zeros([1] * 8).index_select(Tensor([[0]])),
    "a position of 70 bits": lambda: F.attention(
        Tensor.zeros((1, 1, 1, 2)),
        Tensor.zeros((1, 1, 1, 2)),
        Tensor.zeros((1, 1, 1, 2)),
        position=2**70,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused_with_an_error_of_ours(name: str) -> None:
    with pytest.raises(CandleError):
        REFUSED[name]()


def test_half_precision_is_normalised_in_f32() -> None:
    """An epsilon of 1e-12 is zero in f16: a zero row would give NaN."""
    for dtype in ("f16", "bf16"):
        rows = Tensor([[0.0, 0.0], [3.0, 4.0]], dtype)
        assert F.normalize(rows).to_dtype("f32").to_vec()[0] == [0.0, 0.0]


def test_silu_goes_to_zero_in_every_float_type() -> None:
    for dtype in (candle.DType.F32, candle.DType.F64):
        assert Tensor([float("-inf"), -1e4], dtype).silu().to_vec() == [0.0, 0.0]
