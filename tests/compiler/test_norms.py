"""Batch norms go into the convolution before them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import candle
from candle import Tensor, functional, nn
from candle.compiler import compile
from candle.compiler.passes import fold_constants, fold_norms, share_common
from candle.compiler.trace import trace
from candle.testing import assert_close

X = candle.randn((2, 4, 9, 9), candle.Generator(1))
W = candle.randn((6, 4, 3, 3), candle.Generator(2))
C = candle.rand((6, 1, 1), candle.Generator(3)) + 0.5


def ops(fn: Callable[[Tensor], Tensor]) -> list[str]:
    graph = fold_constants(trace(fn, (X,), {}).graph)
    return [n.op for n in fold_norms(graph).nodes]


def norm() -> nn.BatchNorm2d:
    draw = candle.Generator(4)
    rows = [candle.rand((6,), draw) + 0.5 for _ in range(4)]
    made = nn.BatchNorm2d(*rows)
    made.eval()
    return made


NORM = norm()

FOLDED: dict[str, Callable[[Tensor], Tensor]] = {
    "batch norm": lambda x: NORM(functional.conv2d(x, W)),
    "with a bias": lambda x: NORM(functional.conv2d(x, W, C.reshape((6,)))),
    "a scalar": lambda x: functional.conv2d(x, W) * 3.0 - 1.0,
    "from the right": lambda x: C + C * functional.conv2d(x, W),
    "divided": lambda x: functional.conv2d(x, W) / C,
    "depthwise": lambda x: functional.conv2d(x, W[:4, :1], groups=4) * C[:4],
}
LEFT: dict[str, Callable[[Tensor], Tensor]] = {
    "by pixel": lambda x: functional.conv2d(x, W) * candle.Tensor.arange(7).to_dtype("f32"),
    "subtracted from": lambda x: C - functional.conv2d(x, W),
    "read twice": lambda x: functional.conv2d(x, W) * C + functional.conv2d(x, W),
    "by the input": lambda x: functional.conv2d(x, W[:4]) * x[:, :, 1:8, 1:8],
    "squared": lambda x: (lambda y: y * y)(functional.conv2d(x, W)),
}


@pytest.mark.parametrize("name", FOLDED)
def test_constants_a_channel_are_folded(name: str) -> None:
    fn = FOLDED[name]
    assert ops(fn) == ["conv2d"]
    assert_close(compile(fn, X)(X), fn(X).to_vec(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_a_constant_a_channel_stays(name: str) -> None:
    fn = LEFT[name]
    graph = share_common(trace(fn, (X,), {}).graph)
    before = [n.op for n in graph.nodes]
    assert [n.op for n in fold_norms(graph).nodes] == before
    assert_close(compile(fn, X)(X), fn(X).to_vec(), rtol=1e-5, atol=1e-5)


def test_the_weights_of_the_model_are_not_changed() -> None:
    before = bytes(W.buffer())
    compile(FOLDED["batch norm"], X)
    assert bytes(W.buffer()) == before


def test_a_result_that_is_asked_for_is_not_folded() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional.conv2d(x, W)
        return y, y * C

    graph = trace(both, (X,), {}).graph
    assert [n.op for n in fold_norms(graph).nodes] == ["conv2d", "mul"]
