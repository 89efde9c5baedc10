"""GradScaler: scales, skipped steps, and what the gradients are afterwards."""

from __future__ import annotations

import math

import pytest

from candle import DType, Tensor, Var
from candle.errors import GradientError, OptionError
from candle.optim import SGD, GradScaler


def test_a_step_is_the_same_as_without_a_scale() -> None:
    w, plain = Var([1.0, -2.0]), Var([1.0, -2.0])
    scaler, optimizer = GradScaler(), SGD([w], 0.1)
    scaler.scale_loss(w.sqr().sum()).backward()
    assert scaler.step(optimizer)
    scaler.update()
    SGD([plain], 0.1).backward_step(plain.sqr().sum())
    assert w.to_vec() == plain.to_vec()
    assert scaler.scale == 65536.0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
@pytest.mark.parametrize("early", [False, True])
def test_a_bad_gradient_skips_the_step_and_halves(bad: float, early: bool) -> None:
    """pytorch PR 97415 (A13): step skipped, scale halved, and gradients unscaled either way."""
    w, u = Var([1.0, 2.0]), Var([3.0])
    scaler, optimizer = GradScaler(1024.0), SGD([w, u], 0.1)
    scaler.scale_loss(w.mul(Tensor([bad, 2.0])).sum().add(u.sum())).backward()
    if early:
        assert not scaler.unscale_grads(optimizer)
    assert not scaler.step(optimizer)
    scaler.update()
    assert (w.to_vec(), u.to_vec(), optimizer.steps) == ([1.0, 2.0], [3.0], 0)
    assert scaler.scale == 512.0
    found, other = w.grad(), u.grad()
    assert found is not None and other is not None
    assert found.to_vec()[1] == 2.0 and not math.isfinite(found.to_vec()[0])
    assert other.to_vec() == [1.0]


def test_clean_steps_double_the_scale() -> None:
    w = Var([1.0])
    scaler, optimizer = GradScaler(8.0, patience=3), SGD([w], 0.01)
    scales = []
    for _ in range(7):
        optimizer.zero_grad()
        scaler.scale_loss(w.sqr().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.scale)
    assert scales == [8.0, 8.0, 16.0, 16.0, 16.0, 32.0, 32.0]
    assert GradScaler().patience == 10


def test_small_half_gradients_survive() -> None:
    """1e-6 squared is below the least f16; scaled, it is kept, and unscaled in f32."""
    w = Var([1.0], "f16")
    scaler, optimizer = GradScaler(1024.0), SGD([w], 0.1)
    tiny = Tensor([1e-4], "f16")
    scaler.scale_loss(w.mul(tiny).mul(tiny).sum()).backward()
    assert scaler.unscale_grads(optimizer)
    grad = w.grad()
    assert grad is not None
    assert grad.dtype is DType.F32
    assert grad.to_scalar() == pytest.approx(1e-8, rel=1e-2)


def test_what_a_scaler_refuses() -> None:
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(OptionError, match="scale"):
            GradScaler(scale)
    with pytest.raises(OptionError, match="patience"):
        GradScaler(patience=0)
    w = Var([1.0])
    scaler, optimizer = GradScaler(), SGD([w], 0.1)
    with pytest.raises(GradientError, match="update"):
        scaler.update()
    scaler.unscale_grads(optimizer)
    with pytest.raises(GradientError, match="unscaled"):
        scaler.unscale_grads(optimizer)
