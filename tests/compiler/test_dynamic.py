"""Sizes that vary from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import candle
from candle import OptionError, ShapeError, Tensor, TraceError, functional
from candle.compiler import compile
from candle.compiler.size import Size, fitted

WEIGHT = candle.rand((8, 8), candle.Generator(3))
TABLE = candle.rand((40, 8), candle.Generator(4))


def attention(x: Tensor) -> Tensor:
    b, t, d = x.shape
    heads = functional.linear(x, WEIGHT).reshape((b, t, 2, d // 2))
    return functional.attention(heads, heads, heads).reshape((b, t, d)) + TABLE[:t]


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "elementwise": lambda x: (x * 2.0).relu() + x,
    "attention": attention,
    "reduce": lambda x: x.mean((0, 1)) + x.sum(1),
    "rows": lambda x: x.softmax(1).reshape((x.shape[0] * x.shape[1], 8)),
    "cat": lambda x: Tensor.cat([x, x.flip(1), x[:, 1:]], 1),
    "counted": lambda x: x + Tensor.arange(x.shape[1]).to_dtype("f32").reshape((-1, 1)),
    "transposed": lambda x: x.transpose(0, 1).matmul(
        WEIGHT.unsqueeze(0).expand((x.shape[1], 8, 8))
    ),
}


def bits(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.dtype, bytes(x.detach().contiguous().buffer())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_plan_serves_every_size(name: str) -> None:
    fn = FUNCTIONS[name]
    example = candle.randn((4, 9, 8), candle.Generator(1))
    compiled = compile(fn, example, dynamic={0: {0: "batch", 1: ("tokens", 1, 30)}})
    for shape in ((4, 9, 8), (1, 1, 8), (3, 30, 8), (2, 2, 8), (4, 9, 8)):
        x = candle.randn(shape, candle.Generator(2))
        assert bits(compiled(x)) == bits(fn(x)), shape


def test_a_whole_number_may_vary() -> None:
    compiled = compile(
        lambda x, n: x.narrow(0, n, 3) * 2.0, candle.rand((20, 2)), 5, dynamic={1: ("start", 0, 17)}
    )
    x = candle.rand((20, 2))
    for n in (0, 5, 17):
        assert bits(compiled(x, n)) == bits(x.narrow(0, n, 3) * 2.0)
    with pytest.raises(OptionError, match="start from 0 to 17"):
        compiled(x, 18)


def test_sizes_of_one_name_are_equal() -> None:
    a, b = candle.rand((4, 3)), candle.rand((4, 3))
    compiled = compile(lambda a, b: a + b, a, b, dynamic={0: {0: "n"}, 1: {0: "n"}})
    assert compiled(a[:2], b[:2]).shape == (2, 3)
    with pytest.raises(OptionError, match="one n"):
        compiled(a[:2], b[:3])
    with pytest.raises(OptionError, match="n from 1 to 4"):
        compiled(candle.rand((5, 3)), candle.rand((5, 3)))
    with pytest.raises(ShapeError):
        compiled(candle.rand((2, 4)), candle.rand((2, 4)))


def test_what_else_depends_on_a_size_is_refused_with_its_line() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * (1.0 / x.shape[0])

    def halved(x: Tensor) -> Tensor:
        return x[: x.shape[0] // 2]

    def branched(x: Tensor) -> Tensor:
        return x + 1.0 if x.shape[0] > 5 else x.relu() * 2.0

    found = {scaled: r"test_dynamic.py:\d+ in scaled", halved: "of .* a result"}
    for fn, said in {**found, branched: r"test_dynamic.py:\d+ in branched"}.items():
        with pytest.raises(TraceError, match=said):
            compile(fn, candle.rand((12, 2)), dynamic={0: {0: "n"}})


def test_results_that_are_not_tensors_do_not_vary() -> None:
    with pytest.raises(TraceError, match="result"):
        compile(lambda x: (x, x.shape[0]), candle.rand((12,)), dynamic={0: {0: "n"}})


@pytest.mark.parametrize(
    "dynamic",
    [{1: {0: "n"}}, {0: {2: "n"}}, {0: "n"}, {0: {0: ("n", 5, 2)}}, {"x": {0: "n"}}, {0: {0: 3}}],
)
def test_odd_descriptions_are_refused(dynamic: dict[Any, Any]) -> None:
    with pytest.raises(OptionError, match="dynamic"):
        compile(lambda x: x, candle.rand((3, 3)), dynamic=dynamic)


def test_equal_at_once_is_not_equal() -> None:
    n = Size.of({(1,): 1}, (64,))
    assert int(n) == 64 and n != 64 and n == Size.of({(1,): 1}, (64,))
    assert n * 2 + n == n * 3 and n - n == 0 and type(n - n) is int
    with pytest.raises(TraceError, match="division"):
        n // 2


def test_polynomials_are_found_only_where_there_are_some() -> None:
    points = [(9,), (2,), (3,), (5,), (7,)]
    assert fitted(points, [5] * 5) == 5
    assert fitted(points, [3 * p * p + 1 for (p,) in points]) == Size.of({(2,): 3, (0,): 1}, (9,))
    assert fitted(points, [p // 2 for (p,) in points]) is None
    assert fitted(points, [p * (p + 1) // 2 for (p,) in points]) is None
