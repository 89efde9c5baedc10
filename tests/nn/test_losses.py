"""Losses against PyTorch's recorded results; they never broadcast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from candle import DType, OptionError, ShapeError, Tensor, Var
from candle import functional as F
from candle.testing import assert_close, gradcheck

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "training.npz")


def golden(name: str) -> Tensor:
    return Tensor.from_numpy(np.array(GOLDEN[name], order="C"))


@pytest.mark.parametrize("kind", ["plain", "pos", "weight"])
def test_bce_agrees_with_pytorch(kind: str) -> None:
    """At 0 too, where |x| and max(x, 0) have no slope of their own."""
    x, heavy = Var(golden("bce.x")), golden("bce.heavy")
    options = {"plain": {}, "pos": {"pos_weight": heavy}, "weight": {"weight": heavy}}[kind]
    loss = F.bce_with_logits(x, golden("bce.t"), **options)
    assert_close(loss, golden(f"bce_{kind}.loss"), 1e-6)
    loss.backward()
    grad = x.grad()
    assert grad is not None
    assert_close(grad, golden(f"bce_{kind}.gx"), 1e-5, 1e-8)


def test_contrastive_agrees_with_pytorch() -> None:
    a, b = Var(golden("contrastive.a")), Var(golden("contrastive.b"))
    loss = F.contrastive(a, b, 0.1)
    assert_close(loss, golden("contrastive.loss"), 1e-5)
    loss.backward()
    for value, name in ((a, "ga"), (b, "gb")):
        grad = value.grad()
        assert grad is not None
        assert_close(grad, golden(f"contrastive.{name}"), 1e-4, 1e-6)


def test_losses_have_gradients_by_differences() -> None:
    x = Tensor([[0.3, -1.2], [2.0, 0.4], [-0.7, 0.1]], DType.F64)
    t = Tensor([[0.0, 1.0], [0.4, 0.6], [1.0, 0.0]], DType.F64)
    gradcheck(lambda x: F.bce_with_logits(x, t), x)
    gradcheck(F.mse, x, t)
    gradcheck(F.contrastive, x, t.add(0.3), tolerance=1e-5)


def test_a_loss_of_far_logits_is_finite() -> None:
    x, t = Tensor([1e30, -1e30, 1e30]), Tensor([1.0, 0.0, 1.0])
    assert F.bce_with_logits(x, t).to_scalar() == 0.0


@pytest.mark.parametrize("loss", [F.mse, F.bce_with_logits, F.contrastive])
def test_a_column_against_a_row_is_an_error_that_names_the_remedy(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """(N, 1) against (N,) would broadcast to N x N."""
    with pytest.raises(ShapeError, match=r"\[4, 1\].*\[4\].*unsqueeze\(-1\)"):
        loss(Tensor.zeros((4, 1)), Tensor.zeros((4,)))
    with pytest.raises(ShapeError, match=r"squeeze\(-1\) the target"):
        loss(Tensor.zeros((4,)), Tensor.zeros((4, 1)))
    with pytest.raises(ShapeError):
        loss(Tensor.zeros((4, 2)), Tensor.zeros((4, 3)))


def test_contrastive_says_what_it_takes() -> None:
    with pytest.raises(ShapeError, match="contrastive"):
        F.contrastive(Tensor.zeros((3,)), Tensor.zeros((3,)))
    with pytest.raises(ShapeError, match="with rows"):
        F.contrastive(Tensor.zeros((0, 3)), Tensor.zeros((0, 3)))
    with pytest.raises(OptionError, match="temperature"):
        F.contrastive(Tensor.ones((2, 3)), Tensor.ones((2, 3)), 0.0)
