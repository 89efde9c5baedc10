"""Arguments of the wrong kind are refused in words: op, expected, got; never a bare TypeError."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import candle
from candle import Device, Tensor, Var, nn
from candle import functional as F
from candle.errors import CandleError
from candle.op import Activation

X = Tensor.ones((4, 3))
A: Any = "no tensor"
N: Any = None


def buffer(source: Any, **more: Any) -> Tensor:
    return Tensor.from_buffer(source, "f32", (1,), **more)


WRONG: dict[str, Callable[[], object]] = {
    "dtype of a list": lambda: Tensor.zeros((2,), A and []),
    "rand's source": lambda: Tensor.rand((2,), source=A),
    "huge fraction": lambda: Tensor([Fraction(10**400, 3)]),
    "buffer of str": lambda: buffer("abcd"),
    "buffer of None": lambda: buffer(None),
    "buffer with gaps": lambda: buffer(np.zeros((4, 4), np.float32)[:, ::2]),
    "buffer released": lambda: buffer(released()),
    "float offset": lambda: buffer(bytes(8), offset=A and 1.0),
    "array without dtype": lambda: Tensor.from_numpy(WithoutDtype()),
    "index array": lambda: X[np.array([0, 1])],
    "slice step 0": lambda: X[::0],
    "slice of floats": lambda: X[A and 0.5 :],
    "narrow by floats": lambda: X.narrow(0, A and 0.0, 1),
    "topk of text": lambda: X.topk(A),
    "permute of one": lambda: X.permute(A and 0),
    "cat of text": lambda: Tensor.cat(A),
    "cat of lists": lambda: Tensor.cat([A and [1.0]]),
    "cat of nothing": lambda: Tensor.cat([]),
    "stack of one tensor's number": lambda: Tensor.stack(N),
    "matmul": lambda: X.matmul(A),
    "set": lambda: Var([1.0]).set(A and [2.0]),
    "backward": lambda: Var([1.0]).mul(2.0).backward(A and [1.0]),
    "device": lambda: X.to_device(N),
    "device of a number": lambda: Device.of(A and 3),
    "softmax": lambda: F.softmax(N),
    "linear": lambda: F.linear(N, X),
    "linear's weight": lambda: F.linear(X, N),
    "linear's activation": lambda: F.linear(X, X, activation=A and "relu"),
    "attention": lambda: F.attention(N, X, X),
    "attention of a scalar": lambda: F.attention(Tensor(1.0), X, X),
    "rope": lambda: F.rope(N, X),
    "embedding": lambda: F.embedding(N, X),
    "normalize": lambda: F.normalize(N),
    "normalize a scalar": lambda: F.normalize(Tensor(1.0)),
    "conv2d": lambda: F.conv2d(N, X),
    "conv1d": lambda: F.conv1d(X, N),
    "max_pool2d": lambda: F.max_pool2d(N, 2),
    "avg_pool2d": lambda: F.avg_pool2d(N, 2),
    "axis of a scalar": lambda: Tensor(1.0).dim(-1),
    "apply of text": lambda: X.apply("x"),
    "pad by numbers": lambda: F.pad(X, A and 3, A and 1),
    "reduction of a list": lambda: F.mse(X, X, reduction=A and [1]),
    "mode of a list": lambda: F.pad(X, [(1, 1)], mode=A and []),
    "5000 digits": lambda: X.sum(10**5000),
    "groups of text": lambda: nn.GroupNorm(A, X.sum(0), X.sum(0)),
    "statistics of text": lambda: nn.BatchNorm2d(A, A, A, A),
    "probability of text": lambda: nn.Dropout(A),
    "mse": lambda: F.mse(X, A and [1.0]),
    "cross_entropy": lambda: F.cross_entropy(X, A and [0, 1, 2, 0]),
}


class WithoutDtype:
    __array_interface__ = MappingProxyType({"shape": (4,), "typestr": "<f4", "version": 3})


def released() -> memoryview:
    view = memoryview(bytearray(4))
    view.release()
    return view


@pytest.mark.parametrize("name", WRONG)
def test_the_error_is_ours_and_says_what_was_got(name: str) -> None:
    with pytest.raises(CandleError) as caught:
        WRONG[name]()
    assert caught.value.op and str(caught.value.expected)


def test_an_array_of_sizes_is_a_shape() -> None:
    """NumPy's integers come from shapes of arrays; an array in an error is asked nothing."""
    assert X.reshape(np.array([-1, 4])).shape == (3, 4)
    with pytest.raises(candle.errors.ShapeError):
        X.reshape(np.array([5, 4]))
    with pytest.raises(candle.errors.ShapeError):
        X.reshape(np.array([2.0, 6.0]))


def test_cat_takes_any_iterable() -> None:
    assert Tensor.cat(t for t in (X, X)).shape == (8, 3)
    assert Tensor.stack(iter([X, X])).shape == (2, 4, 3)


def test_an_activation_is_an_activation() -> None:
    assert F.linear(X, X, activation=Activation.RELU).shape == (4, 4)
