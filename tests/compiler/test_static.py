"""static: values that a trace looks at and fixes."""

from __future__ import annotations

import pytest

import candle
from candle import Tensor, TraceError, Var
from candle.compiler import compile, static


def test_a_marked_branch_is_that_of_the_examples() -> None:
    def branch(x: Tensor) -> Tensor:
        return x * 2.0 if static((x + 1.0).sum() > 0.0) else -x

    up, down = (compile(branch, Tensor([v, v])) for v in (1.0, -3.0))
    assert up(Tensor([-5.0, 1.0])).to_vec() == [-10.0, 2.0]
    assert down(Tensor([-5.0, 1.0])).to_vec() == [5.0, -1.0]


def test_a_marked_function_may_look_and_gives_constants() -> None:
    @static
    def scale(x: Tensor) -> Tensor:
        return Tensor([1.0 / float(x.max().item())])

    compiled = compile(lambda x: (x + 0.0) * scale(x), Tensor([1.0, 4.0]))
    assert compiled(Tensor([8.0, 16.0])).to_vec() == [2.0, 4.0]
    assert [n.op for n in compiled.graph.nodes] == ["add", "mul"]


def test_outside_of_a_trace_values_are_what_they_are() -> None:
    assert static(Tensor([1.5]).sum()) == 1.5 and static(3) == 3
    assert static(lambda n: n + 1)(2) == 3


def test_marked_values_do_not_hide_unmarked_ones() -> None:
    def branch(x: Tensor) -> Tensor:
        return x if static(x.sum() > 0.0) and (x.max() > 0.0) else -x

    with pytest.raises(TraceError, match="static"):
        compile(branch, Tensor([1.0]))


def test_to_look_after_a_change_in_place_is_refused() -> None:
    w = Var(Tensor([1.0]))

    def change(x: Tensor) -> Tensor:
        w.set(x * 2.0)
        return x if static(x.sum() > 0.0) else -x

    with pytest.raises(TraceError, match="change"):
        compile(change, Tensor([1.0]))
    assert w.item() == 1.0


def test_it_is_public() -> None:
    assert candle.static is static and candle.compile is compile
