"""Checkpointing: the same gradients as without, of a graph that backward makes again."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from candle import Generator, Tensor, Var, checkpoint, manual_seed, nn, no_grad, storage
from candle.errors import CandleError, GradientError


def network(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    return x.matmul(w).tanh().matmul(v).tanh()


def values(checked: bool) -> list[Any]:
    """Two layers that share a Var, with a Var that only the functions know."""
    x, w, v = (
        Var(Tensor.arange(4).to_dtype("f32").reshape((2, 2)).mul(s)) for s in (0.1, 0.2, 0.3)
    )
    hidden = w.mul(2.0)  # captured, with a history of its own

    def layer(y: Tensor) -> Tensor:
        return network(y, hidden, v)

    y = x
    for _ in range(3):
        y = checkpoint(layer, y) if checked else layer(y)
    y.sqr().sum().backward()
    return [y.to_vec(), *(t.grad().to_vec() for t in (x, w, v))]


def test_gradients_are_those_without_a_checkpoint() -> None:
    assert values(checked=True) == values(checked=False)


def test_no_intermediate_result_is_kept() -> None:
    seen: list[Any] = []

    def function(x: Tensor) -> Tensor:
        inner = x.mul(2.0)
        seen.append(weakref.ref(inner))
        return inner.mul(3.0)

    x = Var([1.0])
    y = checkpoint(function, x)
    gc.collect()
    assert seen[0]() is None
    y.backward()
    assert (x.grad().to_vec(), len(seen)) == ([6.0], 2)


@pytest.mark.parametrize("own", [False, True])
def test_dropout_draws_the_same_again(own: bool) -> None:
    """The zeros of the forward pass are those of the gradient; later draws are not disturbed."""
    source = Generator(5) if own else None
    manual_seed(5)
    drop = nn.Dropout(0.5, source)
    x = Var(Tensor.ones((1000,)))
    y = checkpoint(drop, x, generators=[source] if source else [])
    after = drop(x).to_vec()
    y.sum().backward()
    assert x.grad().to_vec() == y.to_vec()
    assert drop(x).to_vec() != after


def test_data_that_is_not_tracked_leads_to_captured_parameters() -> None:
    w = Var([2.0])
    checkpoint(lambda x: x.mul(w), Tensor([3.0])).backward()
    assert w.grad().to_vec() == [3.0]
    with no_grad():
        assert not checkpoint(lambda x: x.mul(w), Tensor([3.0])).tracked


def test_nested_and_again() -> None:
    x = Var([0.5])

    def inner(y: Tensor) -> Tensor:
        return y.sin()

    y = checkpoint(lambda y: checkpoint(inner, y).mul(y), x)
    y.backward(retain_graph=True)
    first = x.grad().to_scalar()
    y.backward()
    assert x.grad().to_scalar() == 2 * first
    with pytest.raises(GradientError, match="used up"):
        y.backward()


def test_a_parameter_changed_in_between_is_told() -> None:
    """A saved input that changed is an error, also where only the function knows it."""
    x, w = Var([1.0]), Var([2.0])
    y = checkpoint(lambda x: x.mul(w), x)
    w.set(Tensor([5.0]))
    with pytest.raises(GradientError, match="checkpoint saw"):
        y.backward()


def test_identity_and_constants() -> None:
    x = Var([1.0])
    checkpoint(lambda y: y, x).add(x).backward()
    assert x.grad().to_vec() == [2.0]
    y = checkpoint(lambda: Tensor([4.0]))
    y.mul(x).backward()
    assert x.grad().to_vec() == [6.0]


def test_a_function_that_makes_something_else_is_told() -> None:
    sizes = iter([2, 3])
    y = checkpoint(lambda x: x.expand((next(sizes),)), Var([1.0]))
    with pytest.raises(GradientError, match=r"f32\[2\] again, got f32\[3\]"):
        y.sum().backward()


@pytest.mark.parametrize(
    "call",
    [
        lambda: checkpoint(None, Tensor([1.0])),
        lambda: checkpoint(lambda x: x, 1.0),
        lambda: checkpoint(lambda x: (x, x), Tensor([1.0])),
        lambda: checkpoint(lambda x: x.eq(x), Tensor([1.0])),
        lambda: checkpoint(lambda x: x, Tensor([1.0]), generators=[3]),
    ],
)
def test_wrong_arguments_are_told(call: Any) -> None:
    with pytest.raises(CandleError, match="checkpoint"):
        call()


def test_a_deep_chain_takes_a_part_of_the_memory() -> None:
    """32 layers, kept one in four: the blocks in use are less than half."""

    def block(x: Tensor) -> Tensor:
        for _ in range(8):
            x = x.mul(1.01).tanh()
        return x

    def in_use(checked: bool) -> int:
        storage.empty_pool()
        x = Var(Tensor.ones((1 << 16,)))
        y: Tensor = x
        for _ in range(4):
            y = checkpoint(block, y) if checked else block(y)
        found = [o for o in gc.get_objects() if type(o) is storage.Storage]
        return len(found)

    gc.collect()
    assert in_use(True) < in_use(False) - 50
