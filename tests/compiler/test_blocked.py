"""Convolutions in blocks of 16 channels: the kernels, and the passes that use them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import candle
from candle import Tensor, functional, nn
from candle.compiler import compile
from candle.compiler.passes import fold_padding
from candle.compiler.trace import trace
from candle.optim import SGD
from candle.testing import assert_close


def rand(*shape: int, seed: int = 1) -> Tensor:
    return candle.randn(shape, candle.Generator(seed))


def ops(fn: Callable[[Tensor], Tensor], x: Tensor) -> list[str]:
    return [n.op for n in compile(fn, x).graph.nodes]


# batch, channels, height, width; out channels; kernel; options
SHAPES = [
    ((1, 3, 19, 17), 16, (7, 7), {"stride": 2, "padding": 3}),
    ((2, 16, 7, 7), 64, (3, 3), {"padding": 1}),
    ((1, 16, 9, 8), 20, (1, 1), {}),
    ((3, 24, 5, 6), 48, (3, 3), {"padding": 1, "stride": 2}),
    ((1, 33, 11, 10), 7, (2, 5), {"dilation": 2}),
    ((2, 6, 12, 12), 16, (5, 5), {}),
    ((1, 160, 6, 6), 80, (3, 3), {"padding": 1}),  # more than one chunk
    ((1, 16, 1, 1), 16, (3, 3), {"padding": 2}),
    ((5, 1, 10, 3), 100, (8, 3), {"padding": (3, 1)}),
    ((1, 64, 14, 13), 72, (3, 3), {"padding": 1}),  # by minimal filtering, as the next three
    ((3, 16, 9, 11), 16, (3, 3), {}),
    ((2, 40, 30, 7), 90, (3, 3), {"padding": 2}),
    ((9, 272, 5, 6), 20, (3, 3), {"padding": 1}),
    ((2, 40, 8, 9), 40, (3, 3), {"padding": 1, "groups": 40}),
    ((1, 96, 15, 15), 96, (5, 5), {"padding": 2, "stride": 2, "groups": 96}),
    ((1, 20, 4, 70), 20, (3, 3), {"dilation": (1, 3), "groups": 20}),
]


@pytest.mark.parametrize(("shape", "out", "kernel", "options"), SHAPES)
def test_a_convolution_in_blocks_is_the_convolution(shape, out, kernel, options) -> None:  # type: ignore[no-untyped-def]
    groups = options.get("groups", 1)
    x, w = rand(*shape), rand(out, shape[1] // groups, *kernel, seed=2)
    bias = rand(out, seed=3)

    def fn(x: Tensor) -> Tensor:
        return functional.conv2d(x, w, bias, **options)

    assert "conv2d" not in ops(fn, x)
    scale = math.sqrt(shape[1] // groups * kernel[0] * kernel[1])
    assert_close(compile(fn, x)(x), fn(x).to_vec(), rtol=1e-5, atol=1e-5 * scale)


def test_a_chain_stays_blocked_with_all_that_follows_in_its_steps() -> None:
    first, second, third = rand(40, 3, 3, 3), rand(40, 1, 5, 5), rand(32, 40, 1, 1)
    beside = rand(32, 3, 3, 3, seed=4)

    def net(x: Tensor) -> Tensor:
        y = functional.conv2d(x, first, padding=1).relu()
        y = functional.conv2d(y, second, padding=2, groups=40).relu().minimum(6.0)
        y = functional.conv2d(y, third) + functional.conv2d(x, beside, padding=1)
        return functional.max_pool2d(y.relu(), 3, 2, padding=1).mean((2, 3))

    x = rand(2, 3, 13, 14)
    names = ops(net, x)
    assert names == [
        "conv_block",
        "conv_block_depth",
        *["conv_block"] * 2,
        "max_pool_block",
        "mean",
    ]
    assert_close(compile(net, x)(x), net(x).to_vec(), rtol=1e-4, atol=1e-4)


def test_values_are_plain_again_for_steps_that_want_them_so() -> None:
    w = rand(24, 3, 3, 3)

    def net(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = functional.conv2d(x, w, padding=1)
        z = y * 2.0 - y.sigmoid()
        return y, z.flip(1), z.softmax(1)

    x = rand(1, 3, 6, 5)
    for got, wanted in zip(compile(net, x)(x), net(x), strict=True):
        assert_close(got, wanted.to_vec(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("number", [3.0, math.inf, -math.inf, math.nan])
def test_channels_that_fill_up_a_block_never_reach_a_result(number: float) -> None:
    """They stay zeros: others, and infinite ones before all, would meet zero weights as NaN."""
    first, second = Tensor.ones((5, 3, 1, 1)), Tensor.ones((7, 5, 1, 1))
    by = Tensor([number])

    def net(x: Tensor) -> tuple[Tensor, ...]:
        y = functional.conv2d(x, first)
        made = (y + by, y * by, y.minimum(by), y.sigmoid() * by, by - y)
        return tuple(functional.conv2d(z, second) for z in made)

    x = Tensor.ones((2, 3, 4, 4))
    for got, wanted in zip(compile(net, x)(x), net(x), strict=True):
        assert repr(got.to_vec()) == repr(wanted.to_vec())


def test_special_values_pass_as_they_do_alone() -> None:
    w = Tensor.ones((16, 1, 1, 1))
    x = Tensor([math.nan, math.inf, -math.inf, -0.0, 7.0, -7.0]).reshape((1, 1, 1, 6))

    def net(x: Tensor) -> Tensor:
        return functional.conv2d(x, w).relu().minimum(6.0)

    assert repr(compile(net, x)(x).to_vec()) == repr(net(x).to_vec())

    def pool(x: Tensor) -> Tensor:
        return functional.max_pool2d(functional.conv2d(x, w), (1, 2))

    assert repr(compile(pool, x)(x).to_vec()) == repr(pool(x).to_vec())


def test_bits_do_not_depend_on_threads_or_on_the_other_images() -> None:
    w, depth = rand(48, 32, 3, 3), rand(48, 1, 3, 3)

    def net(x: Tensor) -> Tensor:
        y = functional.conv2d(x, w, padding=1).relu()
        return functional.conv2d(y, depth, groups=48)

    x = rand(3, 32, 20, 20)
    before, bits = candle.threads(), set[bytes]()
    try:
        for count in (1, 2, 3):
            candle.set_threads(count)
            bits.add(bytes(compile(net, x)(x)[1:2].contiguous().buffer()))
            bits.add(bytes(compile(net, x[1:2])(x[1:2]).buffer()))
    finally:
        candle.set_threads(before)
    assert len(bits) == 1


def test_minimal_filtering_is_used_where_its_weights_pay() -> None:
    w = rand(16, 16, 3, 3)
    large, small = rand(1, 16, 12, 12), rand(1, 16, 6, 6)

    def fn(x: Tensor) -> Tensor:
        return functional.conv2d(x, w, padding=1).relu() + x

    assert "conv_winograd" in ops(fn, large)
    assert "conv_winograd" not in ops(fn, small)
    exact = functional.conv2d(large.to_dtype("f64"), w.to_dtype("f64"), padding=1)
    wanted = (exact.relu() + large.to_dtype("f64")).to_vec()
    assert_close(compile(fn, large)(large), wanted, rtol=2e-5, atol=2e-5)


def test_padding_by_zeros_becomes_the_convolution_s() -> None:
    w = rand(8, 3, 3, 3)

    def fn(x: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(x, [(0, 1), (1, 0)]), w, stride=2)

    def other(x: Tensor) -> Tensor:
        return functional.conv2d(functional.pad(x, [(0, 1), (1, 0)], value=1.0), w, stride=2)

    x = rand(2, 3, 8, 8)
    graph = fold_padding(trace(fn, (x,), {}).graph)
    conv = next(n for n in graph.nodes if n.op == "conv2d")
    assert conv.ints[:4] == (2, 2, 0, 1) and conv.ins[0] == graph.inputs[0]
    assert ops(fn, x) == ["conv_block", "copy"]
    for each in (fn, other):
        assert_close(compile(each, x)(x), each(x).to_vec(), rtol=1e-5, atol=1e-5)


def test_a_training_step_keeps_its_plain_convolutions() -> None:
    """Weights that change are no constants."""
    conv = nn.Conv2d.new(3, 16, 3)
    optimizer = SGD(conv.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        loss = conv(x).sqr().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = compile(step, rand(2, 3, 8, 8))
    names = {n.op for n in compiled.graph.nodes}
    assert "conv2d" in names and not any(n.startswith("conv_block") for n in names)
