"""Every gradient against finite differences in f64, first and second order, from the op cases."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np
import pytest

from candle import Activation, Tensor, Var
from candle import functional as F
from candle.testing import assert_close, gradcheck
from support.case import EPSILON, LAYOUTS, Case, build
from support.cases import CASES

CHECKED = [c for c in CASES if c.order and "f64" in c.dtypes]
SECOND = [c for c in CHECKED if c.order > 1]


def parts(case: Case) -> tuple[Callable[..., Tensor], list[Tensor]]:
    """The case as a function of its float inputs alone, and these inputs."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    inputs, _ = build(case, "f64", "row-major", rng)
    places = [n for n, x in enumerate(inputs) if x.dtype.is_float]

    def function(*values: Tensor) -> Tensor:
        given = dict(zip(places, values, strict=True))
        return case.run(*(given.get(n, x) for n, x in enumerate(inputs)))

    return function, [inputs[n] for n in places]


@pytest.mark.parametrize("case", CHECKED, ids=[c.name for c in CHECKED])
def test_gradient_is_the_slope(case: Case) -> None:
    function, inputs = parts(case)
    gradcheck(function, *inputs)


@pytest.mark.parametrize("case", SECOND, ids=[c.name for c in SECOND])
def test_gradient_of_the_gradient(case: Case) -> None:
    """The graph of a gradient is a graph like any other."""
    function, inputs = parts(case)
    gradcheck(function, *inputs, order=2, tolerance=1e-5)


def slopes(case: Case, inputs: list[Tensor]) -> list[Tensor]:
    """The gradients of the float inputs, of a sum with different weights."""
    leaves = [x.detach().retain_grad() if x.dtype.is_float else x for x in inputs]
    y = case.run(*leaves)
    if y.tracked:
        weights = Tensor.arange(y.count, dtype="f64").mul(0.7).sin().add(1.5)
        y.mul(weights.to_dtype(y.dtype).reshape(y.shape)).sum().backward()
    found = [(x, x.grad()) for x in leaves if x.dtype.is_float]
    return [x.zeros_like() if g is None else g for x, g in found]


@pytest.mark.parametrize("case", CHECKED, ids=[c.name for c in CHECKED])
def test_gradients_in_every_dtype_and_layout(case: Case) -> None:
    """candle PR 3765 (T09, T15): those of any strides are those of the copy; half ones are near."""
    for dtype in case.dtypes:
        if dtype not in EPSILON:
            continue
        seed = zlib.crc32(case.name.encode())
        inputs, _ = build(case, dtype, "row-major", np.random.default_rng(seed))
        found = slopes(case, inputs)
        wide = [x.to_dtype("f64") if x.dtype.is_float else x for x in inputs]
        for got, want in zip(found, slopes(case, wide), strict=True):
            assert got.dtype.label == dtype
            exact = want.numpy()
            scale = 1 + np.abs(exact).max(initial=0.0)
            error = np.abs(got.to_dtype("f64").numpy() - exact).max(initial=0.0)
            assert error <= 16 * case.tolerance(dtype) * scale, f"{dtype}: {error}"
        for layout in LAYOUTS:
            moved, _ = build(case, dtype, layout, np.random.default_rng(seed))
            for got, want in zip(slopes(case, moved), found, strict=True):
                assert_close(got, want, 8 * EPSILON[dtype], 8 * EPSILON[dtype])


@pytest.mark.parametrize("neox", [True, False])
def test_rope_turns_the_gradient_back(neox: bool, rng: np.random.Generator) -> None:
    """A rotation keeps the product of two vectors: <rope(x), g> = <x, grad>."""
    x = Var(Tensor.from_numpy(rng.standard_normal((2, 3, 2, 8), np.float32)))
    g = Tensor.from_numpy(rng.standard_normal((2, 3, 2, 8), np.float32))
    y = F.rope(x, Tensor([0, 5, 70], "i32"), width=6, neox=neox)
    y.backward(g)
    grad = x.grad()
    assert grad is not None
    assert_close(x.mul(grad).sum(), y.mul(g).sum().to_scalar(), 1e-5, 1e-4)


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("bias", [True, False])
def test_linear_has_the_gradients_of_its_parts(
    activation: Activation, bias: bool, rng: np.random.Generator
) -> None:
    """candle#3752 (A08): a fused operation gives the gradients that its parts give."""
    arrays = [rng.standard_normal(s, np.float32) for s in ((2, 3, 4), (5, 4), (5,))]
    fused, parted = ([Var(Tensor.from_numpy(a)) for a in arrays[: 2 + bias]] for _ in range(2))
    F.linear(*fused, activation=activation).sqr().sum().backward()
    x, w, *b = parted
    y = x.matmul(w.t())
    y = y.add(b[0]) if bias else y
    acts = {
        Activation.NONE: lambda t: t,
        Activation.RELU: Tensor.relu,
        Activation.GELU: Tensor.gelu,
        Activation.GELU_TANH: lambda t: t.gelu(tanh=True),
        Activation.SILU: Tensor.silu,
    }
    acts[activation](y).sqr().sum().backward()
    for left, right in zip(fused, parted, strict=True):
        assert left.grad() is not None
        assert_close(left.grad(), right.grad(), 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_gradients_keep_their_dtype_and_size(dtype: str) -> None:
    """Sums are kept in f32: 4096 ones add up, and each gradient has its input's dtype."""
    x, w, b = (
        Var(Tensor.ones((4096, 4), dtype)),
        Var(Tensor.ones((4,), dtype)),
        Var([0.0] * 4, dtype),
    )
    F.layer_norm(x, w, b).sum().backward()
    grads = [v.grad() for v in (x, w, b)]
    assert [g.dtype for g in grads] == [v.dtype for v in (x, w, b)]
    assert grads[2].to_vec() == [4096.0] * 4


def test_embedding_gradient_counts_each_use() -> None:
    table = Var(Tensor.zeros((4, 2)))
    F.embedding(table, Tensor([[3, 0], [3, 3]])).sum().backward()
    assert table.grad().to_vec() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [3.0, 3.0]]
