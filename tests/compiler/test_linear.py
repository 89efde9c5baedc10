"""Products of constant weights: packed, with their activation, to the same bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import candle
from candle import Tensor, functional, nn
from candle.compiler import Compiled, compile

X = candle.randn((3, 5, 24), candle.Generator(1))
LAYER = nn.Linear.new(24, 10)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu,
    "gelu": Tensor.gelu,
    "silu": Tensor.silu,
    "gelu by tanh": lambda x: x.gelu(True),
}


def ops(compiled: Compiled) -> list[str]:
    return [n.op for n in compiled.graph.nodes]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_a_part_of_the_product(name: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return ACTIVATIONS[name](LAYER(x)) * 2.0

    compiled = compile(fn, X)
    assert ops(compiled) == ["linear", "mul"]
    weight = compiled.graph.nodes[0].ins[1]
    assert weight is not None and weight.dtype is candle.DType.F32X16
    assert bytes(compiled(X).buffer()) == bytes(fn(X).detach().contiguous().buffer())


def test_a_result_that_others_read_keeps_its_own_step() -> None:
    def fn(x: Tensor) -> Tensor:
        y = LAYER(x)
        return y.relu() + y

    compiled = compile(fn, X)
    assert ops(compiled) == ["linear", "relu", "add"]
    assert bytes(compiled(X).buffer()) == bytes(fn(X).detach().contiguous().buffer())


def test_weights_that_are_no_constants_are_not_packed() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return functional.linear(x, w)

    w = candle.randn((7, 24), candle.Generator(2))
    compiled = compile(fn, X, w)
    assert bytes(compiled(X, w).buffer()) == bytes(fn(X, w).contiguous().buffer())
