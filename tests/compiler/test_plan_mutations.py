"""Plans changed at random are refused, or run: never a crash, nor a long wait.

2,000 of them here, 100,000 with CANDLE_SOAK=1 (`make soak`).
"""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import candle
from candle import CandleError, Tensor, functional, nn
from candle.compiler import compile, load_plan
from candle.compiler.stored import _HEAD

COUNT = 100_000 if os.environ.get("CANDLE_SOAK") else 2_000
REFUSED = (CandleError, OSError, MemoryError, ZeroDivisionError)
ODD = [0, 1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 255, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 40]
ODD += [1 << 62, (1 << 63) - 1, -1, -2, -16, -(1 << 63)]
W, DEEP, FULL = (
    candle.randn(shape, candle.Generator(k))
    for k, shape in enumerate([(16, 3, 3, 3), (16, 1, 3, 3), (16, 16, 3, 3)])
)
TABLE, HEAD = candle.randn((50, 16), candle.Generator(3)), nn.Linear.new(16, 5)


def images(x: Tensor) -> tuple[Tensor, Tensor]:
    y = functional.conv2d(x, W, padding=1).relu()
    y = functional.conv2d(y, DEEP, padding=1, groups=16).relu().minimum(6.0)
    y = functional.max_pool2d(functional.conv2d(y, FULL, padding=1) + y, 2)
    return HEAD(y.mean((2, 3))).softmax(-1), y


def texts(ids: Tensor) -> Tensor:
    x = TABLE.index_select(ids.reshape((-1,)), 0).reshape((*ids.shape, 16))
    heads = x.unsqueeze(2)
    seen = functional.attention(heads, heads, heads).squeeze(2)
    return functional.rms_norm(seen + x, Tensor.ones((16,))).gelu().cumsum(1)


def numbers(x: Tensor) -> tuple[Tensor, ...]:
    values, order = x.sort(1)
    padded = functional.pad(x, [(1, 1)])
    return values.argmax(1), padded.sum(0), x.gather(order, 1), x.matmul(x.t()), x.to_dtype("f16")


PLANS: dict[str, tuple[Callable[..., Any], Tensor, dict[Any, Any] | None]] = {
    "images": (images, candle.randn((2, 3, 12, 12)), None),
    "texts": (texts, Tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), None),
    "numbers": (numbers, candle.randn((5, 7)), None),
    "sizes that vary": (lambda x: HEAD(x).softmax(-1), candle.randn((6, 16)), {0: {0: "n"}}),
}


def changed(good: bytes, draw: random.Random) -> bytes:
    """A file with one to four changes in its plan: a bit, a number, an entry copied elsewhere."""
    bad = bytearray(good)
    _, _, start, at, size, *_ = _HEAD.unpack_from(good)
    end = at + size
    for _ in range(draw.randint(1, 4)):
        kind = draw.random()
        if kind < 0.3:
            bad[draw.randrange(end)] ^= 1 << draw.randrange(8)
        elif kind < 0.95:
            width, form = draw.choice(((8, "<Q"), (4, "<I")))
            place = draw.randrange(start, end - width) // width * width
            struct.pack_into(form, bad, place, draw.choice(ODD) & ((1 << 8 * width) - 1))
        else:
            one, other = (draw.randrange(start, end - 16) // 8 * 8 for _ in range(2))
            bad[one : one + 16] = bad[other : other + 16]
    return bytes(bad)


@pytest.mark.parametrize("name", PLANS)
def test_mutations_are_refused_or_run(name: str, tmp_path: Path) -> None:
    fn, example, dynamic = PLANS[name]
    path, draw = tmp_path / "a.plan", random.Random(name)
    compile(fn, example, dynamic=dynamic).save(path)
    good, refused = path.read_bytes(), 0
    for _ in range(COUNT // len(PLANS)):
        path.write_bytes(changed(good, draw))
        start = time.monotonic()
        try:
            load_plan(path)(example)
        except REFUSED:
            refused += 1
        assert time.monotonic() - start < 20
    assert COUNT // len(PLANS) // 4 < refused < COUNT // len(PLANS)
