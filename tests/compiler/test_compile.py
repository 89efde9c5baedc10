"""A compiled function answers what the function answers, and says so where it cannot."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import candle
from candle import ShapeError, Tensor, TraceError, Var, functional, nn
from candle.compiler import Compiled, compile, tree
from candle.optim import SGD, Adam, AdamW, Optimizer


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and a.dtype is b.dtype and bytes_of(a) == bytes_of(b)


def bytes_of(x: Tensor) -> bytes:
    return bytes(x.detach().contiguous().buffer())


WEIGHT = candle.rand((6, 4), candle.Generator(3))
FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "elementwise": lambda x: (x * 2.0 + 1.0).relu() / 3.0,
    "linear": lambda x: functional.linear(x, WEIGHT),
    "softmax": lambda x: x.softmax(-1),
    "reduce": lambda x: x.sum(0) + x.max(0),
    "views": lambda x: x.transpose(0, 1)[1:, ::2] + 1.0,
    "cat and pad": lambda x: functional.pad(Tensor.cat([x, x * 2.0], 1), [(1, 1), (0, 2)]),
    "in order": lambda x: x.cumsum(1).flip(0),
    "two results": lambda x: (x + 1.0, {"twice": x * 2.0, "n": 3}),
    "the argument itself": lambda x: [x, x],
    "a constant": lambda x: WEIGHT,
    "made by Python": lambda x: x[:, :2] + Tensor([1.5, -2.0]),
    "casts": lambda x: x.to_dtype("f16").to_dtype("i32"),
    "sorted": lambda x: x.sort(1),
    "no elements": lambda x: x[:0].sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_compiled_function_gives_the_bits_of_the_function(name: str) -> None:
    fn = FUNCTIONS[name]
    x, other = (candle.randn((5, 4), candle.Generator(k)) for k in (1, 2))
    compiled = compile(fn, x)
    for given in (x, other):
        wanted, got = [list[Tensor](), list[Tensor]()]
        form = tree.flatten(fn(given), wanted)
        assert tree.same(tree.flatten(compiled(given), got), form)
        assert len(wanted) == len(got) and all(map(same, wanted, got))


def test_the_examples_are_neither_read_nor_changed() -> None:
    x = Tensor.ones((2, 2))
    compiled = compile(lambda a: a * 3.0, x)
    assert compiled(x).to_vec() == [[3.0, 3.0], [3.0, 3.0]]
    assert x.to_vec() == [[1.0, 1.0], [1.0, 1.0]]


OPTIMIZERS: dict[str, Callable[[list[Var]], Optimizer]] = {
    "sgd": lambda p: SGD(p, 0.1),
    "momentum": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "schedule": lambda p: SGD(p, lambda k: 0.1 / (k + 1)),
    "adam": lambda p: Adam(p, 0.01),
    "adamw": lambda p: AdamW(p, lambda k: 0.01 * (k + 1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_that_of_eager_mode(name: str) -> None:
    def run(compiled: bool) -> tuple[list[float], bytes, dict[str, Any]]:
        candle.manual_seed(0)
        net = nn.Sequential(nn.Linear.new(4, 8), nn.Linear.new(8, 3))
        optimizer = OPTIMIZERS[name](net.parameters())
        x, y = candle.randn((16, 4)), Tensor.arange(16).rem(3)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = functional.cross_entropy(net(x), y)
            optimizer.backward_step(loss)
            return loss

        call: Callable[..., Tensor] = compile(step, x, y) if compiled else step
        losses = [float(call(x, y).item()) for _ in range(5)]
        state = {k: v.to_vec() for k, v in optimizer.state_dict().items()}
        return losses, b"".join(bytes_of(p) for p in net.parameters()), state

    assert run(True) == run(False)


def test_the_learning_rate_may_change_between_runs() -> None:
    w = Var(Tensor([1.0]))
    optimizer = SGD([w], 1.0)
    step = compile(lambda x: optimizer.backward_step((w * x).sum()), Tensor([1.0]))
    step(Tensor([1.0]))
    optimizer.lr = 0.0
    step(Tensor([1.0]))
    assert w.to_vec() == [0.0]


def test_a_first_step_that_differs_from_the_others_is_refused() -> None:
    w = Var(Tensor([1.0]))
    optimizer = SGD([w], 1.0, momentum=0.5, dampening=0.5)
    with pytest.raises(TraceError, match="dampening"):
        compile(lambda x: optimizer.backward_step((w * x).sum()), Tensor([1.0]))


def test_a_loaded_state_serves_a_compiled_step() -> None:
    w = Var(Tensor([1.0]))
    optimizer = SGD([w], 1.0, momentum=0.5)
    step = compile(lambda x: optimizer.backward_step((w * x).sum()), Tensor([1.0]))
    step(Tensor([1.0]))
    optimizer.load_state_dict({"steps": Tensor(7), "momentum.0": Tensor([10.0])})
    step(Tensor([1.0]))
    assert w.to_vec() == [-6.0] and optimizer.steps == 8


def test_gradients_that_a_trace_leaves_have_no_values_and_go() -> None:
    w = Var(Tensor([1.0, 2.0]))

    def loss(x: Tensor) -> Tensor:
        y = (w * x).sum()
        y.backward()
        return y

    assert compile(loss, Tensor([1.0, 1.0]))(Tensor([2.0, 3.0])).item() == 8.0
    assert w.grad() is None


@pytest.mark.parametrize("ask", [Tensor.item, bool, float, Tensor.to_vec, Tensor.numpy, repr])
def test_a_branch_on_a_tensors_data_shows_the_line(ask: Callable[[Tensor], Any]) -> None:
    def branch(x: Tensor) -> Tensor:
        return x if ask(x.sum() > 0.0) else -x

    with pytest.raises(TraceError, match=r"test_compile.py:\d+ in branch.*static"):
        compile(branch, Tensor([1.0, 2.0]))


def test_random_numbers_are_refused_not_frozen() -> None:
    with pytest.raises(TraceError, match="random"):
        compile(lambda x: x + candle.rand((2,)), Tensor([1.0, 2.0]))


def test_a_function_that_keeps_a_tensor_is_refused() -> None:
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x * 2.0)
        return kept[-1]

    with pytest.raises(TraceError, match="kept"):
        compile(keep, Tensor([1.0]))


def test_a_number_first_met_in_a_trace_is_right_afterwards() -> None:
    compile(lambda x: x * 123.25, Tensor([1.0]))
    assert (Tensor([2.0]) * 123.25).to_vec() == [246.5]


def test_an_error_in_the_function_leaves_the_engine_as_it_was() -> None:
    with pytest.raises(ShapeError):
        compile(lambda x: x.reshape((3,)), Tensor([1.0, 2.0]))
    assert (Tensor([1.0]) + Tensor([2.0])).item() == 3.0
    assert compile(lambda x: x + x, Tensor([1.0]))(Tensor([4.0])).item() == 8.0


@pytest.mark.parametrize(
    "given", [(Tensor([1.0]),), (Tensor([1, 2]),), (), (Tensor([1.0, 2.0]), 3)]
)
def test_other_arguments_are_refused(given: tuple[Any, ...]) -> None:
    with pytest.raises(ShapeError, match="compiled function"):
        compile(lambda x: x + x, Tensor([1.0, 2.0]))(*given)


def test_changed_weights_are_noticed() -> None:
    w = Var(Tensor([1.0, 2.0]))
    compiled = compile(lambda x: x * w.detach(), Tensor([1.0, 1.0]))
    w.set(Tensor([5.0, 5.0]))
    with pytest.raises(TraceError, match="changed"):
        compiled(Tensor([1.0, 1.0]))


def test_errors_of_a_run_name_the_operation() -> None:
    compiled = compile(lambda x, i: x[i], Tensor([1.0, 2.0]), Tensor([0, 1]))
    with pytest.raises(candle.RangeError, match="take"):
        compiled(Tensor([1.0, 2.0]), Tensor([0, 2]))
    assert compiled(Tensor([1.0, 2.0]), Tensor([1, 0])).to_vec() == [2.0, 1.0]


def test_calls_from_several_threads_do_not_meet() -> None:
    compiled = compile(lambda x: (x * 2.0).cumsum(0) + x, candle.rand((500,)))
    wrong: list[int] = []

    def call(k: int) -> None:
        x = Tensor.full((500,), k)
        want = bytes_of((x * 2.0).cumsum(0) + x)
        wrong.extend(k for _ in range(50) if bytes_of(compiled(x)) != want)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_constants_are_folded_and_equal_steps_are_one() -> None:
    compiled = compile(lambda x: (x + WEIGHT[0] * 2.0) * (x + WEIGHT[0] * 2.0), candle.rand((4,)))
    assert [n.op for n in compiled.graph.nodes] == ["add", "mul"]


def test_temporaries_share_memory() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(10):
            x = x.softmax(-1).cumsum(0)
        return x

    compiled = compile(chain, candle.rand((64, 64)))
    assert compiled.arena.nbytes == compiled.arena.bound <= 3 * 64 * 64 * 4


def test_a_compiled_function_can_be_traced_itself() -> None:
    inner = compile(lambda x: x * 2.0, Tensor([1.0]))
    outer = compile(lambda x: inner(x) + 1.0, Tensor([1.0]))
    assert isinstance(outer, Compiled) and outer(Tensor([3.0])).item() == 7.0
