"""Steps of optimisers, in place: each element by its formula, in the dtype and in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import EARGS, EDTYPE, ESHAPE, set_threads, step
from harness import run as call

LENGTHS = [0, 1, 7, 16, 33, 100_003]
DTYPES = [np.float32, np.float64]
Array = Any


def draw(n: int, dtype: Any) -> list[Array]:
    rng = np.random.default_rng(n)
    return [rng.standard_normal(n).astype(dtype) for _ in range(3)]


def sgd_by_numpy(
    value: Array, m: Array | None, g: Array, c: list[float], first: bool, nesterov: bool
) -> None:
    rate, momentum, share, decay = (value.dtype.type(x) for x in c)
    d = g + value * decay if decay else g
    if m is not None:
        m[:] = d if first else m * momentum + d * share
        d = d + m * momentum if nesterov else m
    value -= d * rate


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("kind", ["plain", "momentum", "first", "nesterov"])
def test_sgd_has_the_bits_of_its_formula(
    each_isa: str, dtype: Any, n: int, decay: float, kind: str
) -> None:
    value, moving, grad = draw(n, dtype)
    m = None if kind == "plain" else moving
    numbers, flags = [0.1, 0.9, 0.7, decay], (kind == "first", kind == "nesterov")
    want, want_m = value.copy(), None if m is None else m.copy()
    sgd_by_numpy(want, want_m, grad, numbers, *flags)
    call("sgd_step", value, m, grad, np.array(numbers), i=flags)
    np.testing.assert_array_equal(value, want)
    if m is not None:
        np.testing.assert_array_equal(m, want_m)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize(("decay", "keep"), [(0.0, 1.0), (0.1, 1.0), (0.0, 0.99)])
def test_adam_has_the_bits_of_its_formula(
    each_isa: str, dtype: Any, n: int, decay: float, keep: float
) -> None:
    value, mean, grad = draw(n, dtype)
    square = np.abs(mean[::-1]).copy()
    numbers = [0.01, 0.9, 0.1, 0.999, 0.001, 1.7, 1e-8, decay, keep]
    c = [dtype(x) for x in numbers]
    kept = value * c[8]
    d = grad + kept * c[7] if decay else grad
    want_mean, want_square = mean * c[1] + d * c[2], square * c[3] + d * d * c[4]
    want = kept - want_mean / (np.sqrt(want_square) * c[5] + c[6]) * c[0]
    call("adam_step", value, mean, square, grad, np.array(numbers))
    np.testing.assert_array_equal(mean, want_mean)
    np.testing.assert_array_equal(square, want_square)
    np.testing.assert_array_equal(value, want)


def test_threads_change_no_bit() -> None:
    results = []
    for count in (1, 2, 5):
        value, moving, grad = draw(300_001, np.float32)
        set_threads(count)
        call("sgd_step", value, moving, grad, np.array([0.1, 0.9, 1.0, 0.01]))
        results.append(value)
    set_threads(2)
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_views_that_do_not_fit_are_refused(each_isa: str) -> None:
    value, m, grad = draw(8, np.float32)
    numbers = np.array([0.1, 0.9, 1.0, 0.0])
    assert step("sgd_step", value, m, grad) == EARGS
    assert step("sgd_step", value, None, grad, numbers) == 0
    assert step("sgd_step", value, m[:7].copy(), grad, numbers) == ESHAPE
    assert step("sgd_step", value[::2], m[:4].copy(), grad[:4].copy(), numbers) == ESHAPE
    assert step("sgd_step", value, m, grad, numbers[:3].copy()) == ESHAPE
    assert step("sgd_step", value, m, grad.astype(np.float64), numbers) == EDTYPE
    assert step("sgd_step", value, m, grad, numbers.astype(np.float32)) == EDTYPE
    half = value.astype(np.float16)
    assert step("sgd_step", half, None, half, numbers) == EDTYPE
    assert step("adam_step", value, None, m, grad, np.ones(9)) != 0
    assert step("adam_step", value, m, grad, grad, numbers) == ESHAPE
