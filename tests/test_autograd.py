"""Backward: what is kept and freed, accumulation, errors, long chains, threads.

That each rule is the slope stands in test_gradients.py.
"""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from candle import Tensor, Var, autograd, no_grad, storage
from candle import functional as F
from candle.errors import DTypeError, GradientError, ShapeError
from candle.testing import assert_close, gradcheck

ROOT = Path(__file__).resolve().parents[1]


# -- records ---------------------------------------------------------------------------------------


def test_inference_keeps_no_record_and_no_intermediate() -> None:
    x = Tensor([1.0, 2.0])
    middle = x.mul(2.0)
    seen = weakref.ref(middle)
    out = middle.exp()
    assert out.op is None
    assert middle.op is None
    del middle
    assert seen() is None


def test_a_record_leads_back_to_a_variable() -> None:
    v, x = Var([1.0, 2.0]), Tensor([3.0, 4.0])
    out = x.add(1.0).mul(v)
    assert type(out.op).__name__ == "Binary"
    assert out.op.inputs[1] is v
    assert out.op.inputs[0].op is None


@pytest.mark.parametrize(
    "call",
    [
        lambda v: v.mul(2.0),
        lambda v: v[0],
        lambda v: v.t(),
        lambda v: v.reshape(-1),
        lambda v: v.to_dtype("f16"),
        lambda v: F.softmax(v),
        lambda v: Tensor.cat([Tensor.ones((2, 2)), v]),
        lambda v: F.linear(Tensor.ones((1, 2)), v),
        lambda v: v.topk(1)[0],
        lambda v: F.pack(v),
    ],
)
def test_what_comes_of_a_variable_has_a_record(call: Any) -> None:
    """TrenTorch PR 186 (A10): tracked and a record go together."""
    made = call(Var([[1.0, 2.0], [3.0, 4.0]]))
    assert made.tracked
    assert made.op is not None


def test_masks_and_indices_are_constants() -> None:
    """A relu by hand: the mask comes of x, and the gradient goes by the other way."""
    x = Var([-1.0, 2.0])
    mask = x.gt(0.0)
    assert not mask.tracked
    x.mul(mask.to_dtype("f32")).sum().backward()
    assert_close(x.grad(), [0.0, 1.0])
    assert not x.argmax().tracked
    assert not x.to_dtype("i64").tracked
    assert not x.topk(1)[1].tracked


def test_no_grad_keeps_nothing_and_nests() -> None:
    v = Var([1.0])
    with no_grad():
        assert v.mul(2.0).op is None
        with no_grad():
            pass
        assert v.mul(2.0).op is None
    assert v.mul(2.0).op is not None
    same = no_grad()
    with same, same:
        pass
    assert autograd.recording()
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert autograd.recording()


def test_no_grad_is_for_this_thread_only() -> None:
    v = Var([1.0])
    seen: list[bool] = []
    with no_grad():
        worker = threading.Thread(target=lambda: seen.append(v.mul(2.0).op is not None))
        worker.start()
        worker.join()
    assert seen == [True]


def test_detach_cuts() -> None:
    v = Var([2.0])
    out = v.mul(v.detach())
    assert v.detach().data.storage is v.data.storage
    out.backward()
    assert_close(v.grad(), [2.0])
    with pytest.raises(GradientError):
        v.mul(2.0).detach().backward()


# -- accumulation ----------------------------------------------------------------------------------


def test_gradients_add_up_until_zero_grad() -> None:
    v = Var([1.0, 2.0])
    assert v.grad() is None
    for _ in range(3):
        v.sqr().sum().backward()
    assert_close(v.grad(), [6.0, 12.0])
    v.zero_grad()
    assert v.grad() is None
    v.sum().backward()
    assert_close(v.grad(), [1.0, 1.0])


def test_every_use_of_a_variable_counts() -> None:
    v = Var([3.0])
    v.mul(v).add(v).mul(v).sum().backward()  # v^3 + v^2
    assert_close(v.grad(), [27.0 + 6.0])


def test_gradients_outlive_the_graph() -> None:
    v = Var([1.0, 2.0])
    loss = v.mul(3.0).sum()
    loss.backward()
    del loss
    gc.collect()
    assert_close(v.grad(), [3.0, 3.0])
    assert v.grad().op is None


def test_only_what_is_asked_keeps_a_gradient() -> None:
    v = Var([1.0, 2.0])
    kept, lost = v.mul(2.0).retain_grad(), v.mul(3.0)
    kept.add(lost).sqr().sum().backward()
    assert_close(kept.grad(), [10.0, 20.0])
    assert lost.grad() is None


def test_a_plain_tensor_can_ask_for_a_gradient() -> None:
    x = Tensor([1.0, 2.0]).retain_grad()
    x.sqr().sum().backward()
    assert_close(x.grad(), [2.0, 4.0])
    with pytest.raises(DTypeError):
        Tensor([1]).retain_grad()


def test_a_gradient_can_be_given() -> None:
    v = Var([[1.0, 2.0]])
    v.mul(2.0).backward(Tensor([[1.0, -1.0]]))
    assert_close(v.grad(), [[2.0, -2.0]])
    for wrong in (Tensor([1.0, 1.0]), Tensor([[1.0, 1.0]], "f64")):
        with pytest.raises(ShapeError):
            v.mul(2.0).backward(wrong)
    with pytest.raises(GradientError, match="scalar"):
        v.mul(2.0).backward()


def test_a_leaf_alone_is_its_own_gradient() -> None:
    v = Var(2.0)
    v.backward()
    assert v.grad().to_scalar() == 1.0
    with pytest.raises(GradientError, match="depends on a Var"):
        Tensor([1.0]).backward()


def test_gradients_have_the_shape_of_what_was_broadcast() -> None:
    a, b, c = Var(Tensor.ones((2, 1, 3))), Var(Tensor.ones((4, 1))), Var(Tensor.ones(()))
    a.mul(b).mul(c).sum().backward()
    assert_close(a.grad(), Tensor.full((2, 1, 3), 4.0))
    assert_close(b.grad(), Tensor.full((4, 1), 6.0))
    assert_close(c.grad(), Tensor(24.0))


# -- used up, changed ------------------------------------------------------------------------------


def test_backward_twice_names_what_is_used_up_and_the_remedy() -> None:
    """davda54/sam#10 (A11)."""
    v = Var([1.0])
    loss = v.exp().sum()
    loss.backward()
    with pytest.raises(GradientError, match=r"Reduce.*retain_graph=True"):
        loss.backward()
    assert_close(v.grad(), [math.e])


def test_a_retained_graph_goes_twice() -> None:
    v = Var([1.0])
    loss = v.exp().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert_close(v.grad(), [2 * math.e])
    with pytest.raises(GradientError):
        loss.backward()


def test_a_branch_of_a_used_graph_is_refused_before_anything_changes() -> None:
    v, w = Var([1.0]), Var([1.0])
    shared = v.exp()
    shared.sum().backward()
    with pytest.raises(GradientError):
        w.exp().add(shared).sum().backward()
    assert w.grad() is None


def test_backward_frees_as_it_goes() -> None:
    v = Var([1.0])
    middle = v.exp()
    seen = weakref.ref(middle)
    loss = middle.sqr().sum()
    del middle
    assert seen() is not None
    loss.backward()
    assert seen() is None
    assert repr(loss.op) == "Freed(Reduce)"


def test_an_input_changed_in_place_is_refused() -> None:
    """pytorch#197887 (A07)."""
    x, w = Var([[1.0, 2.0]]), Var([[1.0], [2.0]])
    y = x.matmul(w).sum()
    x.set(Tensor([[5.0, 6.0]]))
    with pytest.raises(GradientError, match=r"changed in place"):
        y.backward()
    assert w.grad() is None
    x.matmul(w).sum().backward()
    assert_close(w.grad(), [[5.0], [6.0]])


def test_a_change_through_a_view_is_seen() -> None:
    v = Var([1.0, 2.0])
    y = v.reshape((2, 1)).exp().sum()
    v.set(Tensor([0.0, 0.0]))
    with pytest.raises(GradientError):
        y.backward()


def test_a_change_elsewhere_does_not_matter() -> None:
    v, other = Var([1.0]), Var([1.0])
    y = v.exp().sum()
    other.set(Tensor([2.0]))
    y.backward()
    assert storage.changes() > 0


# -- masks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "values", "slopes"),
    [
        (lambda x: x.gt(0.0).where_cond(x.sqrt(), x), [-1.0, -4.0], [1.0, 1.0]),
        (
            lambda x: Tensor([False, True]).where_cond(x.div(Tensor([0.0, 1.0])), 0.0),
            [1.0, 1.0],
            [0.0, 1.0],
        ),
        (lambda x: x.gt(0.0).where_cond(x.mul(x.log()), 0.0), [0.0, math.e], [0.0, 2.0]),
        (lambda x: x.lt(10.0).where_cond(x.exp(), x), [1000.0, 0.0], [1.0, 1.0]),
        (lambda x: x.ne(0.0).where_cond(x.pow(-1.0), 0.0), [0.0, 1.0], [0.0, -1.0]),
        (lambda x: x.gt(0.0).where_cond(x.mul(1e30).sqr().log(), x), [-1.0, -2.0], [1.0, 1.0]),
    ],
)
def test_a_branch_that_was_not_chosen_does_not_poison(
    function: Any, values: Any, slopes: Any
) -> None:
    """pytorch#187297, pytorch#16317, tinygrad#12409 (A04): a masked zero stops NaN."""
    x = Var(values)
    function(x).sum().backward()
    assert_close(x.grad(), slopes, 1e-5)


def test_a_chosen_branch_still_says_nan() -> None:
    x = Var([-1.0, 4.0])
    x.lt(0.0).where_cond(x.sqrt(), 0.0).sum().backward()
    grad = x.grad().to_vec()
    assert math.isnan(grad[0])
    assert grad[1] == 0.0


@pytest.mark.parametrize(
    ("base", "power", "slope"), [(0.0, 0.0, 0.0), (0.0, 2.0, 0.0), (0.0, 1.0, 1.0)]
)
def test_powers_at_zero_have_their_limits(base: float, power: float, slope: float) -> None:
    x = Var([base])
    x.pow(power).sum().backward()
    assert_close(x.grad(), [slope])
    exponent = Var([power])
    Tensor([base]).pow(exponent).sum().backward()
    assert_close(exponent.grad(), [0.0])


def test_expand_and_narrow_give_the_gradient_of_a_copy() -> None:
    """pytorch#8626 (A05)."""
    weight = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    plain, copied = Var([[1.0], [2.0], [3.0]]), Var([[1.0], [2.0], [3.0]])
    plain.expand((3, 3)).narrow(0, 0, 2).mul(weight).sum().backward()
    copied.expand((3, 3)).copy().narrow(0, 0, 2).copy().mul(weight).sum().backward()
    assert_close(plain.grad(), [[6.0], [15.0], [0.0]])
    assert_close(plain.grad(), copied.grad())


def test_equal_maxima_share_the_gradient() -> None:
    x = Var([3.0, 1.0, 3.0])
    x.max().backward()
    assert_close(x.grad(), [0.5, 0.0, 0.5])
    a, b = Var([1.0, 2.0]), Var([1.0, 5.0])
    a.maximum(b).sum().backward()
    assert_close(a.grad(), [0.5, 0.0])
    assert_close(b.grad(), [0.5, 1.0])


def test_a_variance_of_one_has_no_gradient_but_no_crash() -> None:
    x = Var([1.0])
    x.var().backward()
    assert math.isnan(x.grad().to_vec()[0])


# -- again -----------------------------------------------------------------------------------------


def test_a_gradient_is_a_tensor_like_any_other() -> None:
    x = Var([2.0])
    x.pow(4.0).sum().backward(create_graph=True)
    first = x.grad()
    assert_close(first, [32.0])
    x.zero_grad()
    first.sum().backward(create_graph=True)
    second = x.grad()
    assert_close(second, [48.0])
    x.zero_grad()
    second.sum().backward()
    assert_close(x.grad(), [48.0])


def test_gradients_of_a_small_network_by_differences(rng: np.random.Generator) -> None:
    def tensor(*shape: int) -> Tensor:
        return Tensor.from_numpy(rng.standard_normal(shape))

    def network(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Tensor:
        hidden = F.layer_norm(x.matmul(w).add(b).gelu(), g, b)
        return F.log_softmax(hidden).mul(hidden.sigmoid()).mean()

    gradcheck(network, tensor(3, 4), tensor(4, 5), tensor(5), tensor(5), order=2, tolerance=1e-5)


def test_training_fits_a_line(rng: np.random.Generator) -> None:
    x = Tensor.from_numpy(rng.standard_normal((64, 1), np.float32))
    y = x.mul(3.0).add(0.5)
    w, b = Var([[0.0]]), Var([0.0])
    for _ in range(200):
        loss = F.mse(F.linear(x, w, b), y)
        loss.backward()
        for v in (w, b):
            v.set(v.detach().sub(v.grad().mul(0.1)))
            v.zero_grad()
    assert_close(w.detach(), [[3.0]], 1e-4)
    assert_close(b.detach(), [0.5], 1e-4)


# -- long chains -----------------------------------------------------------------------------------

CHAIN = """
import gc, resource, sys, threading
from candle import Tensor, Var
count, how = int(sys.argv[1]), sys.argv[2]

def run():
    v, c = Var([1.0]), Tensor([1e-7])
    y = v
    for _ in range(count // 2):
        y = y.add(y.mul(c))
    if how == "drop":
        return
    y.sum().backward(retain_graph=how == "keep")
    assert abs(v.grad().to_vec()[0] - (1 + 1e-7) ** (count // 2)) < 1e-2

if len(sys.argv) > 3:                      # on a small stack: what recurses, crashes
    threading.stack_size(256 << 10)
    worker = threading.Thread(target=run)
    worker.start()
    worker.join()
else:
    run()
gc.collect()
try:  # a process begins with its parent's ru_maxrss
    print(int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024)
except OSError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def chain(*arguments: object) -> int:
    """Runs CHAIN in a process of its own; its peak memory in MB."""
    pytest.importorskip("resource")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", CHAIN, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return int(done.stdout)


def test_a_chain_of_a_million_operations() -> None:
    """pytorch#5534, tinygrad#8617 (A01, A02): forward, backward, then drop the whole graph."""
    assert chain(1_000_000, "keep") < 2000


@pytest.mark.parametrize("how", ["free", "keep", "drop"])
def test_a_long_chain_on_a_small_stack(how: str) -> None:
    assert chain(131_000, how, "small") < 1000


def test_a_wide_graph_is_walked_once() -> None:
    """Two ways at each of 200 steps: 2**200 paths, 400 records."""
    v = Var([1.0])
    y = v
    for _ in range(200):
        y = y.mul(0.5).add(y.mul(0.5))
    y.sum().backward()
    assert_close(v.grad(), [1.0])


def test_a_stack_of_many_inputs() -> None:
    """tinygrad#8617: 6131 tensors in one."""
    variables = [Var([float(k)]) for k in range(6131)]
    Tensor.stack(variables).mean().backward()
    assert all(abs(v.grad().to_vec()[0] - 1 / 6131) < 1e-9 for v in variables)


# -- threads ---------------------------------------------------------------------------------------


def test_several_threads_go_backward_at_once(rng: np.random.Generator) -> None:
    w = Tensor.from_numpy(rng.standard_normal((64, 64), np.float32))
    results: list[bytes] = []

    def work() -> None:
        v = Var(w)
        for _ in range(20):
            v.zero_grad()
            v.matmul(v).tanh().sum().backward()
        results.append(bytes(v.grad().buffer()))

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 6
    assert len(set(results)) == 1
