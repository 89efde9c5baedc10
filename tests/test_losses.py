"""cross_entropy and nll_loss: what they refuse, and the known surprises."""

from __future__ import annotations

import numpy as np
import pytest

from candle import Tensor, Var
from candle import functional as F
from candle.errors import DTypeError, OptionError, RangeError, ShapeError
from candle.testing import assert_close


def test_all_ignored_is_nothing_and_never_nan() -> None:
    """pytorch#70348, #116349 (T24): 0, with a gradient of zeros."""
    x = Var(Tensor.ones((5, 3)))
    loss = F.cross_entropy(x, Tensor([-100] * 5, "i64"))
    loss.backward()
    grad = x.grad()
    assert loss.to_scalar() == 0.0
    assert grad is not None
    assert_close(grad, Tensor.zeros((5, 3)), 0.0, 0.0)


def test_smoothing_does_not_count_ignored_rows(rng: np.random.Generator) -> None:
    """pytorch#73205 (T25): the same as without these rows."""
    x = Tensor.from_numpy(rng.standard_normal((6, 4), np.float32))
    some = F.cross_entropy(x, Tensor([1, -100, 2, -100, -100, 0], "i64"), label_smoothing=0.2)
    kept = x.index_select(Tensor([0, 2, 5], "i64"))
    assert_close(some, F.cross_entropy(kept, Tensor([1, 2, 0], "i64"), label_smoothing=0.2))


@pytest.mark.parametrize("stray", [-4, 5])
def test_a_target_that_is_no_class_is_named(stray: int) -> None:
    """pytorch#12670 (T27): an IndexError naming row and value."""
    targets = Tensor([0, 4, -1, stray, 9], "i64")
    with pytest.raises(RangeError, match=rf"{stray} in row 3"):
        F.cross_entropy(Tensor.zeros((5, 5)), targets, ignore_index=-1)
    assert issubclass(RangeError, IndexError)


def test_a_mean_over_millions_does_not_drift(rng: np.random.Generator) -> None:
    """pytorch#55657 (T28), at 4 million rows here: the mean equals that of f64 within 1e-5."""
    half = rng.standard_normal((1 << 21, 2), np.float32)
    x = Tensor.cat([Tensor.from_numpy(half)] * 2)
    targets = Tensor.zeros(1 << 22, "i64")
    wide = half.astype(np.float64)
    want = float(np.mean(np.logaddexp(wide[:, 0], wide[:, 1]) - wide[:, 0]))
    assert abs(F.cross_entropy(x, targets).to_scalar() - want) < 1e-6


def test_images_of_logits(rng: np.random.Generator) -> None:
    """[b,c,h,w] with targets [b,h,w] is the same as its pixels as rows."""
    x = Tensor.from_numpy(rng.standard_normal((2, 3, 4, 5), np.float32))
    targets = Tensor.from_numpy(rng.integers(0, 3, (2, 4, 5)))
    rows = x.permute((0, 2, 3, 1)).reshape((40, 3))
    made = F.cross_entropy(x, targets, reduction="none")
    assert made.shape == (2, 4, 5)
    want = F.cross_entropy(rows, targets.reshape((40,)), reduction="none")
    assert_close(made.reshape((40,)), want, 0.0, 0.0)


def test_far_logits_do_not_overflow() -> None:
    x = Var(Tensor([[3e38, -3e38], [-1e4, 1e4]]))
    loss = F.cross_entropy(x, Tensor([0, 1], "i64"))
    loss.backward()
    grad = x.grad()
    assert loss.to_scalar() == 0.0
    assert grad is not None
    assert_close(grad, Tensor.zeros((2, 2)), 0.0, 0.0)


def test_what_is_refused() -> None:
    x, t = Tensor.zeros((3, 4)), Tensor([0, 1, 2], "i64")
    with pytest.raises(ShapeError):
        F.cross_entropy(x, t.unsqueeze(1))
    with pytest.raises(ShapeError):
        F.cross_entropy(x, t, weight=Tensor.ones(3))
    with pytest.raises(ShapeError):
        F.cross_entropy(Tensor.zeros((3, 0)), t)
    with pytest.raises(DTypeError):
        F.cross_entropy(x, t.to_dtype("f32"))
    with pytest.raises(OptionError, match="label_smoothing"):
        F.cross_entropy(x, t, label_smoothing=1.5)
    with pytest.raises(OptionError, match="reduction"):
        F.cross_entropy(x, t, reduction="median")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_sums_of_half_precision_are_kept_in_single(dtype: str) -> None:
    """65,504 is the greatest f16: neither 70,000 ones nor squares of 300 may become infinite."""
    many = Tensor.zeros(70_000, dtype)
    assert F.logsumexp(many).to_scalar() == pytest.approx(np.log(70_000), rel=1e-2)
    far, near = Tensor.full(4, 190.0, dtype), Tensor.zeros(4, dtype)
    loss = F.mse(
        Tensor.cat([far, Tensor.full(4, 300.0, dtype), *[near] * 6]), Tensor.zeros(32, dtype)
    )
    assert loss.to_scalar() == pytest.approx((4 * 190.0**2 + 4 * 300.0**2) / 32, rel=1e-2)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e20, 3e38])
def test_normalize_does_not_overflow(size: float) -> None:
    """Squares of 1e20 are past f32; a row shorter than epsilon is divided by epsilon."""
    made = F.normalize(Tensor([[size, -size], [0.0, 0.0]]))
    side = np.sqrt(0.5) if size > 1e-12 else size / 1e-12
    assert_close(made, Tensor([[side, -side], [0.0, 0.0]]), 1e-6, 1e-30)


# -- nll_loss --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_nll_of_log_softmax_is_cross_entropy(
    dtype: str, reduction: str, rng: np.random.Generator
) -> None:
    """Weighted, with ignored rows, over pixels; pytorch#12670 (T27) for its targets too."""
    x = Tensor.from_numpy(rng.standard_normal((2, 3, 4))).to_dtype(dtype)
    targets = Tensor([[0, 2, -100, 1], [-100, 1, 1, 0]])
    weight = Tensor([0.5, 1.0, 2.0], dtype)
    left = F.nll_loss(F.log_softmax(x, 1), targets, weight=weight, reduction=reduction)
    right = F.cross_entropy(x, targets, weight=weight, reduction=reduction)
    assert left.shape == right.shape
    assert_close(left, right, 1e-2 if dtype == "f16" else 1e-5)
    with pytest.raises(RangeError, match="3 in row 2"):
        F.nll_loss(x, Tensor([[0, 1, 3, -4], [0] * 4]))


def test_nll_of_ignored_rows_only_is_nothing() -> None:
    """pytorch#70348 (T24): 0 with a gradient of zeros, even where a row is infinite."""
    x = Var(Tensor.full((2, 3), -np.inf))
    loss = F.nll_loss(x, Tensor([-100, -100]))
    loss.backward()
    grad = x.grad()
    assert loss.to_scalar() == 0.0
    assert grad is not None
    assert grad.to_vec() == [[0.0] * 3] * 2


@pytest.mark.parametrize("name", ["mse", "bce_with_logits"])
def test_reductions(name: str) -> None:
    """The mean of the elements that none gives; a column against a row is an error."""
    loss = getattr(F, name)
    x, t = Tensor([0.5, -1.0, 2.0]), Tensor([0.0, 1.0, 1.0])
    each = loss(x, t, reduction="none")
    assert each.shape == (3,)
    assert_close(loss(x, t, reduction="sum"), each.sum())
    assert_close(loss(x, t), each.mean())
    with pytest.raises(OptionError, match="reduction"):
        loss(x, t, reduction="median")
    with pytest.raises(ShapeError, match=r"\[3, 1\]"):
        loss(x.unsqueeze(1), t)


def test_losses_of_classes_never_broadcast() -> None:
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(ShapeError, match="one target a row"):
            loss(Tensor.zeros((3, 4)), Tensor.zeros((3, 1), "i64"))
        with pytest.raises(ShapeError, match="one target a row"):
            loss(Tensor.zeros((3, 1)), Tensor.zeros((2,), "i64"))
