"""Operations against NumPy over drawn shapes, strides, dtypes and special values (hypothesis)."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candle import Tensor, op
from candle import functional as F
from candle.op import BinaryKind, CompareKind, ReduceKind, UnaryKind
from candle.testing import gradcheck
from support import oracle
from support.case import EPSILON, LAYOUTS, values_of
from support.strategies import SPECIAL, full_shapes, shapes

LARGE_ARGUMENTS = {UnaryKind.SIN, UnaryKind.COS}  # exact to 2^17 or so only
FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "u32", "u8")
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16}

plain = st.floats(-8, 8, width=32)
tame = st.one_of(plain, st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0]))
awkward = st.one_of(st.sampled_from(SPECIAL), plain)


def drawn(data: st.DataObject, shape: tuple[int, ...], dtype: str, values: Any = awkward) -> Tensor:
    """A tensor of that shape and dtype, in any memory layout."""
    count = math.prod(shape)
    found = data.draw(st.lists(values, min_size=count, max_size=count))
    flat = Tensor.from_numpy(np.array(found, np.float64 if dtype in FLOATS else np.int64))
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    return LAYOUTS[layout](flat.to_dtype(dtype).reshape(shape))


def integers(dtype: str) -> st.SearchStrategy[int]:
    """Any value of an integer dtype, its ends often."""
    bits = {"i64": (-(2**63), 2**63 - 1), "i32": (-(2**31), 2**31 - 1)}
    low, high = bits.get(dtype, (0, 2**32 - 1 if dtype == "u32" else 255))
    return st.one_of(st.sampled_from([low, high, 0, 1]), st.integers(low, high))


def agree(got: Tensor, want: Any, dtype: str, factor: float = 8.0) -> None:
    """Equal as the dtype rounds, with the same NaN and infinities."""
    assert got.shape == np.shape(want)
    values, exact = values_of(got), np.asarray(want, np.float64)
    with np.errstate(all="ignore"):
        top = {"f16": 65504.0, "f32": 3.4028235e38, "bf16": 3.3895314e38}.get(dtype, np.inf)
        edge = np.abs(exact) > top * (1 - 8 * EPSILON.get(dtype, 0.0))  # rounds to inf, or nearly
        far = edge & (np.sign(values) == np.sign(exact)) & (np.abs(values) >= top * 0.9)
        error = np.abs(values - exact) / (1 + np.abs(exact))
    same = (values == exact) | (np.isnan(values) & np.isnan(exact)) | far
    worst = np.max(np.where(same, 0.0, error), initial=0.0)
    assert worst <= factor * EPSILON.get(dtype, 0.0), f"{values} {exact}"


@pytest.mark.parametrize("kind", list(UnaryKind))
@given(st.data(), shapes, st.sampled_from(FLOATS))
def test_unary(kind: UnaryKind, data: st.DataObject, shape: Any, dtype: str) -> None:
    values = plain if kind in LARGE_ARGUMENTS else awkward
    x = drawn(data, shape, dtype, values)
    got = x.gelu(tanh=True) if kind is UnaryKind.GELU_TANH else getattr(x, kind.value)()
    with np.errstate(all="ignore"):
        want = oracle.UNARY[kind.value](values_of(x))
    if kind in (UnaryKind.GELU, UnaryKind.GELU_TANH, UnaryKind.SILU):  # the limit, not -inf * 0
        want = np.where(np.isneginf(values_of(x)), 0.0, want)
    agree(got, want, dtype)


def _broadcast(data: st.DataObject) -> tuple[Any, Any]:
    """Two shapes that meet."""
    shape = data.draw(shapes)
    ones = [data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))] * 2
    ones[1] = [not b for b in ones[0]] if data.draw(st.booleans()) else ones[1]
    left, right = (
        tuple(1 if o and data.draw(st.booleans()) else n for n, o in zip(shape, flags, strict=True))
        for flags in ones
    )
    return left, right[data.draw(st.integers(0, len(right))) :]


@pytest.mark.parametrize("kind", list(BinaryKind))
@given(st.data(), st.sampled_from(FLOATS))
def test_binary(kind: BinaryKind, data: st.DataObject, dtype: str) -> None:
    left, right = _broadcast(data)
    a, b = drawn(data, left, dtype), drawn(data, right, dtype)
    with np.errstate(all="ignore"):
        x, y = (values_of(t).astype(NUMPY.get(dtype, np.float32)) for t in (a, b))
        exact = kind in (BinaryKind.FLOOR_DIV, BinaryKind.REM) and dtype != "bf16"
        x, y = (x, y) if exact else (x.astype(np.float64), y.astype(np.float64))
        want = oracle.BINARY[kind.value](x, y)
    if exact and dtype == "f16":
        return  # NumPy divides halves as halves; the case table has them
    agree(getattr(a, kind.value)(b), want, dtype, 16.0)


@pytest.mark.parametrize("kind", list(BinaryKind))
@given(st.data(), st.sampled_from(INTS))
def test_binary_of_integers_wraps_and_never_stops_the_process(
    kind: BinaryKind, data: st.DataObject, dtype: str
) -> None:
    """pytorch#327, #44858 (T04, T06): any two values; division by zero is a Python error."""
    shape = data.draw(shapes)
    a, b = (drawn(data, shape, dtype, integers(dtype)) for _ in range(2))
    name = kind.value
    x, y = (t.numpy().copy() for t in (a, b))
    divides = kind in (BinaryKind.FLOOR_DIV, BinaryKind.REM)
    if kind is BinaryKind.DIV:
        assert a.div(b).shape == shape
        return
    if divides and (y == 0).any():
        with pytest.raises(ZeroDivisionError):
            getattr(a, name)(b)
        return
    if kind is BinaryKind.POW:
        b = b.maximum(0).minimum(70)
        y = b.numpy()
    with np.errstate(all="ignore"):
        want = oracle.BINARY[name](x, y)
    np.testing.assert_array_equal(getattr(a, name)(b).numpy(), want)


@pytest.mark.parametrize("kind", list(CompareKind))
@given(st.data(), st.sampled_from((*FLOATS, *INTS)))
def test_compare(kind: CompareKind, data: st.DataObject, dtype: str) -> None:
    left, right = _broadcast(data)
    values = awkward if dtype in FLOATS else integers(dtype)
    a, b = drawn(data, left, dtype, values), drawn(data, right, dtype, values)
    with np.errstate(invalid="ignore"):
        want = oracle.COMPARE[kind.value](values_of(a), values_of(b))
    np.testing.assert_array_equal(getattr(a, kind.value)(b).numpy(), want)


@pytest.mark.parametrize("kind", list(ReduceKind))
@given(st.data(), shapes, st.booleans())
def test_reduce_over_any_axes(
    kind: ReduceKind, data: st.DataObject, shape: Any, keepdim: bool
) -> None:
    """NaN wins, infinities go through; over no element: sum 0, mean and var NaN, others raise."""
    sums = kind in op.OF_NOTHING
    x = drawn(data, shape, data.draw(st.sampled_from(("f32", "f64"))), tame if sums else awkward)
    axes = tuple(a for a in range(len(shape)) if data.draw(st.booleans()))
    if kind in op.PLACES:
        axes = axes[:1] or tuple(range(len(shape)))
    run = getattr(x, kind.value)
    named: Any = axes if kind not in op.PLACES else axes[0] if len(axes) == 1 else None
    if not sums and 0 in [shape[a] for a in axes]:
        with pytest.raises(ValueError, match=kind.value):
            run(named, keepdim)
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of means over nothing
        want = oracle.reduce(kind.value, values_of(x), axes, keepdim, 1)
    agree(run(named, keepdim), want, str(x.dtype), 256.0)


@given(st.data(), full_shapes, st.sampled_from(FLOATS))
def test_cumsum_along_any_axis(data: st.DataObject, shape: Any, dtype: str) -> None:
    x = drawn(data, shape, dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    with np.errstate(all="ignore"):
        want = np.cumsum(values_of(x), axis)
    agree(x.cumsum(axis), want, dtype, 2.0)


@given(st.data(), shapes.filter(len), st.sampled_from((*FLOATS, *INTS)), st.booleans())
def test_sort_along_any_axis(data: st.DataObject, shape: Any, dtype: str, down: bool) -> None:
    """Stable both ways; NaN last ascending, first descending."""
    x = drawn(data, shape, dtype, awkward if dtype in FLOATS else integers(dtype))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    exact = values_of(x)
    _, rank = np.unique(exact, return_inverse=True)
    rank = rank.reshape(shape)
    order = np.argsort(-rank if down else rank, axis, kind="stable")
    values, indices = x.sort(axis, descending=down)
    np.testing.assert_array_equal(indices.numpy(), order)
    np.testing.assert_array_equal(values_of(values), np.take_along_axis(exact, order, axis))
    k = data.draw(st.integers(0, shape[-1]))
    best, places = x.topk(k)
    rows, at = x.sort(descending=True)
    np.testing.assert_array_equal(places.numpy(), at.numpy()[..., :k])
    np.testing.assert_array_equal(values_of(best), values_of(rows)[..., :k])


@given(st.data(), full_shapes, st.sampled_from(["constant", "reflect", "replicate"]))
def test_pad_is_numpy_s(data: st.DataObject, shape: Any, mode: str) -> None:
    x = drawn(data, shape, "f32")
    count = data.draw(st.integers(0, len(shape)))
    most = [n - 1 if mode == "reflect" else 3 for n in shape[len(shape) - count :]]
    margins = [(data.draw(st.integers(0, m)), data.draw(st.integers(0, m))) for m in most]
    whole = [(0, 0)] * (len(shape) - count) + margins
    known: Any = {"replicate": "edge"}.get(mode, mode)
    want = np.pad(x.numpy(), whole, known)
    np.testing.assert_array_equal(F.pad(x, margins, mode).numpy(), want)


@given(st.data(), full_shapes)
@settings(max_examples=40)
def test_gradients_over_shapes_axes_and_layouts(data: st.DataObject, shape: Any) -> None:
    """First order by differences; values are distinct, so that one is the greatest."""
    count = math.prod(shape)
    order = data.draw(st.permutations(range(count)))
    x = Tensor.from_numpy(np.array(order, np.float64).reshape(shape) / 4 - 3)
    x = LAYOUTS[data.draw(st.sampled_from(sorted(LAYOUTS)))](x)
    axis = data.draw(st.integers(0, len(shape) - 1))
    name = data.draw(st.sampled_from(["sum", "mean", "max", "min", "cumsum", "softmax", "flip"]))
    gradcheck(lambda x: getattr(x, name)(axis), x)
    gradcheck(lambda x: x.sort(axis)[0], x)
    gradcheck(lambda x: F.pad(x, [(1, 2)], "replicate"), x)
    start = data.draw(st.integers(0, shape[axis] - 1))
    index = (slice(None),) * axis + (slice(start, None, data.draw(st.sampled_from([1, 2]))),)
    gradcheck(lambda x: x[index], x)
