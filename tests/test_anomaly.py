"""Anomaly mode names the operation that made the first NaN or infinity, and the line."""

from __future__ import annotations

import threading

import pytest

from candle import Tensor, Var, checkpoint, detect_anomaly
from candle import functional as F
from candle.errors import AnomalyError


def test_the_first_operation_and_its_line_are_named() -> None:
    x = Var([[1.0, 2.0], [3.0, 0.0]])
    with detect_anomaly(), pytest.raises(AnomalyError) as caught:
        x.add(1.0)
        x.mul(2.0).log()
    assert caught.value.op == "Unary([2, 2], kind=UnaryKind.LOG)"
    assert "got -inf at [1, 1] of [2, 2]" in str(caught.value)
    assert "test_anomaly.py" in str(caught.value)
    assert "in test_the_first_operation_and_its_line_are_named" in str(caught.value)


def test_backward_names_the_operation_of_the_forward_pass() -> None:
    """sqrt of 0 is finite, its slope is not."""
    x = Var([4.0, 0.0])
    with detect_anomaly():
        y = x.sqrt()  # here
        with pytest.raises(FloatingPointError) as caught:
            y.sum().backward()
    text = str(caught.value)
    assert text.startswith("backward of Unary([2], kind=UnaryKind.SQRT): expected a finite")
    assert "got inf at [1] of [2]" in text and "test_anomaly.py" in text


def test_what_came_in_is_not_blamed_on_an_operation() -> None:
    """Scores masked with -inf are an input; so is a NaN in the data."""
    x = Var([[1.0, float("nan")]])
    with detect_anomaly():
        x.mul(2.0).sum().backward()
        seen = Tensor([[True, False]])
        F.softmax(seen.where_cond(Var([[1.0, 2.0]]), float("-inf"))).sum().backward()


def test_overflow_of_half_precision_is_found() -> None:
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"Binary.*MUL.*inf at \[0\]"):
        Tensor([300.0], "f16").mul(300.0)


def test_gradients_of_gradients_are_checked_too() -> None:
    x = Var([0.0])
    with detect_anomaly(), pytest.raises(AnomalyError, match="backward of"):
        x.pow(1.5).backward(create_graph=True)
        grad = x.grad()
        assert grad is not None
        grad.sum().backward()


def test_a_checkpoint_is_looked_into() -> None:
    x = Var([0.0])
    with (
        detect_anomaly(),
        pytest.raises(AnomalyError, match=r"SQRT.*test_anomaly.py:\d+ in <lambda>"),
    ):
        checkpoint(lambda x: x.sqrt(), x).backward()


def test_nothing_is_looked_at_afterwards_or_on_other_threads() -> None:
    found = []
    with detect_anomaly():
        thread = threading.Thread(target=lambda: found.append(Tensor([0.0]).log().to_vec()))
        thread.start()
        thread.join()
    assert found == [[float("-inf")]]
    assert Tensor([0.0]).log().to_vec() == [float("-inf")]


def test_contexts_nest() -> None:
    x = Var([0.0])
    with detect_anomaly():
        y = x.sqrt()
        with detect_anomaly():
            pass
        with pytest.raises(AnomalyError, match="test_contexts_nest"):
            y.backward()
