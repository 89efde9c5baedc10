"""Exact search of rows: the kernel's top-k as Python lists, and the checks before it."""

from __future__ import annotations

import math

from ..errors import OptionError
from ..functional import nearest
from ..tensor import Tensor


def best_rows(
    queries: Tensor, vectors: Tensor, k: int, mask: Tensor | None = None
) -> list[list[tuple[float, int]]]:
    """For each query [m, d], up to `k` (score, row) of `vectors` [n, d], best first.

    Scores are dot products; equal ones stand in the order of rows. Rows where `mask` [n] is 0
    are not there. No query is NaN: see `refuse_nonfinite`.
    """
    count = min(k, int(vectors.shape[0]))
    if count == 0:
        return [[] for _ in range(int(queries.shape[0]))]
    scores, rows = nearest(queries, vectors, count, mask)
    return [
        [(score, row) for score, row in zip(*pair, strict=True) if row >= 0]
        for pair in zip(scores.to_vec(), rows.to_vec(), strict=True)
    ]


def refuse_nonfinite(op: str, vectors: Tensor) -> None:
    """Raises OptionError naming the first row of `vectors` [n, d] that holds NaN or infinity."""
    rows, columns = (int(n) for n in vectors.shape)
    values = vectors.contiguous().buffer().cast("B").cast("f")
    for row in range(rows):
        part = values[row * columns : (row + 1) * columns]
        # f32 values cannot overflow a double: the sum is finite if and only if all of them are
        if math.isfinite(sum(part)):
            continue
        column, value = next((c, v) for c, v in enumerate(part) if not math.isfinite(v))
        raise OptionError(op, "finite vectors", f"{value} in row {row}, column {column}")
