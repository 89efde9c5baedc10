"""Optimisers against PyTorch's recorded steps; schedules, clipping, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from candle import (
    DType,
    DTypeError,
    FormatError,
    GradientError,
    OptionError,
    Tensor,
    Var,
    load_safetensors,
    save_safetensors,
)
from candle.optim import (
    SGD,
    Adam,
    AdamW,
    Optimizer,
    clip_grad_norm,
    clip_grad_value,
    cosine,
    exponential,
    linear,
    step_decay,
)

GOLDEN = np.load(Path(__file__).resolve().parents[1] / "golden" / "training.npz")
MAKERS: dict[str, Callable[[list[Var]], Optimizer]] = {
    "sgd": lambda p: SGD(p, 0.1),
    "sgd_momentum": lambda p: SGD(p, 0.05, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: SGD(p, 0.05, momentum=0.9, nesterov=True),
    "sgd_dampening": lambda p: SGD(p, 0.05, momentum=0.8, dampening=0.5),
    "adam": lambda p: Adam(p, 0.02, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw": lambda p: AdamW(p, 0.02, weight_decay=0.1),
}
START = [-2.0, -0.5, 0.0, 0.7, 3.0]


def loss_of(w: Tensor) -> Tensor:
    heights = Tensor.arange(1.0, 6.0).mul(0.3).to_dtype(w.dtype)
    return w.sub(1.0).sqr().mul(heights).add(w.mul(3.0).sin()).sum()


@pytest.mark.parametrize("name", MAKERS)
def test_ten_steps_agree_with_pytorch(name: str) -> None:
    w = Var(START)
    made = MAKERS[name]([w])
    for wanted in GOLDEN[f"{name}.steps"]:
        made.backward_step(loss_of(w))
        np.testing.assert_allclose(w.to_vec(), wanted, rtol=2e-5, atol=2e-6)
    assert made.steps == 10 and "step 10" in repr(made)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [DType.F16, DType.F64])
def test_other_dtypes_step_too(name: str, dtype: DType) -> None:
    w = Var(Tensor(START, dtype))
    made = MAKERS[name]([w])
    made.backward_step(loss_of(w))
    assert w.dtype is dtype
    wanted = GOLDEN[f"{name}.steps"][0]
    np.testing.assert_allclose(w.to_vec(), wanted, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("name", ["sgd_momentum", "adamw"])
def test_training_goes_on_from_a_file(name: str, tmp_path: Path) -> None:
    w = Var(START)
    made = MAKERS[name]([w])
    for _ in range(3):
        made.backward_step(loss_of(w))
    save_safetensors(tmp_path / "o.safetensors", {**made.state_dict(), "w": w})
    state = load_safetensors(tmp_path / "o.safetensors")
    again = Var(state.pop("w"))
    other = MAKERS[name]([again])
    other.load_state_dict(state)
    for optimiser, value in ((made, w), (other, again)):
        optimiser.backward_step(loss_of(value))
    assert again.to_vec() == w.to_vec()


def test_foreign_state_is_refused() -> None:
    made = Adam([Var(START)])
    for state in (
        {},
        {"steps": Tensor(1.5)},
        {"steps": Tensor(1), "mean.1": Tensor(START)},
        {"steps": Tensor(1), "mean.0": Tensor([1.0])},
        {"steps": Tensor(1), "mean": Tensor(START)},
    ):
        with pytest.raises(FormatError, match="optimizer"):
            made.load_state_dict(state)
    assert made.steps == 0 and made.state == {}


def test_a_step_between_forward_and_backward_is_noticed() -> None:
    """pytorch#197887: a saved input that changed in place is an error, not a wrong gradient."""
    w = Var(START)
    made = SGD([w], 0.1)
    made.backward_step(loss_of(w))
    pending = loss_of(w)
    made.step()
    with pytest.raises(GradientError, match="changed in place"):
        pending.backward()


def test_a_var_without_a_gradient_is_left_alone() -> None:
    a, b = Var([1.0]), Var([1.0])
    AdamW([a, b], 0.1).backward_step(a.sum())
    assert a.to_vec() != [1.0] and b.to_vec() == [1.0]


def test_momentum_does_not_share_memory_with_the_gradient() -> None:
    """An expanded gradient repeats one element; state is a copy of its own."""
    w = Var([1.0, 2.0])
    made = SGD([w], 0.1, momentum=0.9)
    made.backward_step(w.sum())
    assert made.state["momentum.0"].is_contiguous()


@pytest.mark.parametrize(
    "make",
    [
        lambda: SGD([Tensor([1.0])]),  # type: ignore[list-item]
        lambda: SGD([Var([1.0])], lr=-1.0),
        lambda: SGD([Var([1.0])], lr=math.nan),
        lambda: SGD([Var([1.0])], momentum=-0.1),
        lambda: SGD([Var([1.0])], nesterov=True),
        lambda: SGD([Var([1.0])] * 2),
        lambda: Adam([Var([1.0])], betas=(0.9, 1.0)),
        lambda: Adam([Var([1.0])], epsilon=-1.0),
        lambda: AdamW([Var([1.0])], weight_decay=-1.0),
    ],
)
def test_wrong_options_are_refused(make: Callable[[], Optimizer]) -> None:
    with pytest.raises((OptionError, DTypeError), match="optimizer"):
        make()


# -- schedules -------------------------------------------------------------------------------------


def test_schedules_are_functions_of_the_step() -> None:
    curve = cosine(1.0, 10, warmup=2, end=0.2)
    assert [curve(0), curve(1), curve(2), curve(6)] == pytest.approx([0.5, 1.0, 1.0, 0.6])
    assert curve(10) == curve(99) == pytest.approx(0.2)
    line = linear(1.0, 4)
    assert [line(k) for k in (0, 2, 4, 9)] == [1.0, 0.5, 0.0, 0.0]
    assert [step_decay(1.0, 3, 0.5)(k) for k in (0, 2, 3, 6)] == [1.0, 1.0, 0.5, 0.25]
    assert exponential(2.0, 0.5)(3) == 0.25
    assert cosine(1.0, 0)(0) == 1.0


def test_a_schedule_drives_the_optimiser() -> None:
    w = Var([0.0])
    made = SGD([w], lr=lambda step: 10.0**-step)
    for wanted in (-1.0, -1.1, -1.11):
        made.backward_step(w.sum())
        assert w.to_vec() == pytest.approx([wanted])


def test_schedules_refuse_nonsense() -> None:
    for make in (lambda: cosine(1.0, 3, 4), lambda: linear(1.0, 3, -1), lambda: step_decay(1.0, 0)):
        with pytest.raises(OptionError):
            make()


# -- clipping --------------------------------------------------------------------------------------


def with_gradients(*grads: list[float]) -> list[Var]:
    made = []
    for g in grads:
        v = Var([0.0] * len(g))
        v.mul(Tensor(g)).sum().backward()
        made.append(v)
    return made


def gradients(variables: list[Var]) -> list[list[float]]:
    return [v.grad().to_vec() for v in variables]  # type: ignore[union-attr]


def test_the_norm_is_joint() -> None:
    some = with_gradients([3.0, 0.0], [4.0])
    some.append(Var([1.0]))
    assert clip_grad_norm(some, 1.0) == pytest.approx(5.0)
    assert gradients(some[:2]) == [pytest.approx([0.6, 0.0]), pytest.approx([0.8])]
    assert clip_grad_norm(some, 2.0) == pytest.approx(1.0)
    assert gradients(some[:2]) == [pytest.approx([0.6, 0.0]), pytest.approx([0.8])]
    assert clip_grad_norm([], 1.0) == 0.0


def test_a_huge_norm_does_not_overflow() -> None:
    some = with_gradients([3e30, 4e30])
    assert clip_grad_norm(some, 1.0) == pytest.approx(5e30)
    assert gradients(some) == [pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_told(bad: float) -> None:
    some = with_gradients([5.0], [bad])
    with pytest.raises(GradientError, match="at 1"):
        clip_grad_norm(some, 1.0)
    assert gradients(some[:1]) == [[5.0]]


def test_values_are_clipped_one_by_one() -> None:
    some = with_gradients([3.0, -4.0, 0.5])
    clip_grad_value(some, 1.0)
    assert gradients(some) == [[1.0, -1.0, 0.5]]
    for clip in (clip_grad_value, clip_grad_norm):
        with pytest.raises(OptionError, match="above 0"):
            clip(some, 0.0)
