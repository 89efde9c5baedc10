"""Helpers for tests of code that uses Candle: `assert_close` and `gradcheck`. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from .arguments import as_float, as_int, require_function
from .dtype import DType
from .errors import DTypeError
from .tensor import Tensor, Var, require_tensors

Function = Callable[..., Tensor]


def assert_close(got: Tensor, wanted: Any, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    """Raises AssertionError unless |got - wanted| <= atol + rtol |wanted| everywhere.

    `wanted` is a Tensor, nested lists or a number of the same shape; NaN equals NaN. The message
    names the worst element.
    """
    require_tensors("assert_close", got)
    rtol, atol = (as_float("assert_close", v, "a tolerance") for v in (rtol, atol))
    right = wanted if isinstance(wanted, Tensor) else Tensor(wanted, DType.F64)
    if got.shape != right.shape:
        raise AssertionError(f"shape {list(got.shape)}, wanted {list(right.shape)}")
    pairs = zip(_flat(got), _flat(right), strict=True)
    worst = max(
        ((_excess(a, b, rtol, atol), k, a, b) for k, (a, b) in enumerate(pairs)), default=None
    )
    if worst is not None and worst[0] > 0:
        _, k, a, b = worst
        raise AssertionError(f"at {_place(k, got.shape)}: {a!r}, wanted {b!r} (rtol {rtol:g})")


def gradcheck(
    function: Function,
    *inputs: Tensor,
    order: int = 1,
    epsilon: float = 1e-5,
    tolerance: float = 1e-6,
) -> None:
    """Compares the gradients of `function(*inputs)` with central differences.

    Inputs are f64; the function's result may have any shape. `order=2` checks the gradient of the
    gradient too. Raises AssertionError with the input, the element and both slopes.
    """
    require_function("gradcheck", function)
    require_tensors("gradcheck", *inputs)
    order = as_int("gradcheck", order, "an order of 1 or 2")
    epsilon = as_float("gradcheck", epsilon, "an epsilon")
    tolerance = as_float("gradcheck", tolerance, "a tolerance")
    if any(x.dtype is not DType.F64 for x in inputs):
        raise DTypeError("gradcheck", "inputs of f64", [str(x.dtype) for x in inputs])

    def scalar(*values: Tensor) -> Tensor:
        out = function(*values)
        require_tensors("gradcheck", out)
        return out.to_dtype(DType.F64).mul(_weights(out.shape)).sum()

    _check_slopes(scalar, inputs, epsilon, tolerance)
    if order > 1:
        gradcheck(
            _gradient_of(scalar), *inputs, order=order - 1, epsilon=epsilon, tolerance=tolerance
        )


def _gradient_of(scalar: Function) -> Function:
    """The function whose value is all gradients of a scalar one, joined; it can be recorded."""

    def function(*values: Tensor) -> Tensor:
        leaves = [x.add(0.0).retain_grad() if x.tracked else Var(x) for x in values]
        scalar(*leaves).backward(create_graph=True)
        for x in values:
            x.zero_grad()  # what came through: only the leaves are asked for
        found = [(x, x.grad()) for x in leaves]
        grads = [x.zeros_like() if g is None else g for x, g in found]
        return Tensor.cat([g.reshape((g.count,)) for g in grads])

    return function


def _check_slopes(
    scalar: Function, inputs: tuple[Tensor, ...], epsilon: float, tolerance: float
) -> None:
    variables = [Var(x) for x in inputs]
    out = scalar(*variables)
    if out.tracked:  # else it depends on none of them: all slopes are 0
        out.backward()
    for n, x in enumerate(inputs):
        grad = variables[n].grad()
        slopes = _flat(grad) if grad is not None else [0.0] * x.count
        for k, value in enumerate(_flat(x)):
            step = epsilon * max(1.0, abs(value))
            ends = [scalar(*_moved(inputs, n, k, by)).to_scalar() for by in (step, -step)]
            slope = (ends[0] - ends[1]) / (2 * step)
            if _excess(slopes[k], slope, tolerance, tolerance) > 0:
                where = f"input {n} at {_place(k, x.shape)}"
                raise AssertionError(f"{where}: gradient {slopes[k]!r}, by differences {slope!r}")


def _moved(inputs: tuple[Tensor, ...], n: int, k: int, by: float) -> list[Tensor]:
    """The inputs, element k of the n-th moved."""
    values = _flat(inputs[n])
    values[k] += by
    moved = Tensor(values, DType.F64).reshape(inputs[n].shape)
    return [moved if m == n else x for m, x in enumerate(inputs)]


def _weights(shape: tuple[int, ...]) -> Tensor:
    """Different weights for each element, so that wrong places show."""
    return Tensor.arange(math.prod(shape), dtype=DType.F64).mul(0.7).sin().add(1.5).reshape(shape)


def _flat(x: Tensor) -> list[Any]:
    values: list[Any] = x.detach().reshape((x.count,)).to_vec()
    return values


def _place(k: int, shape: tuple[int, ...]) -> list[int]:
    def digits() -> Iterator[int]:
        rest = k
        for n in reversed(shape):
            yield rest % n
            rest //= n

    return [*digits()][::-1]


def _excess(a: float, b: float, rtol: float, atol: float) -> float:
    """How far two numbers are beyond the tolerance; 0 or less within it."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) - (atol + rtol * abs(b))
