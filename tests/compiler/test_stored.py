"""Compiled functions as files: the same answers, and nothing trusted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import candle
from candle import CandleError, FormatError, ShapeError, Tensor, TraceError, functional, nn
from candle.compiler import compile, load_plan
from candle.compiler.stored import _HEAD
from candle.optim import SGD

W = candle.randn((16, 3, 3, 3), candle.Generator(1))
HEAD = nn.Linear.new(16, 5)
X = candle.randn((2, 3, 8, 8), candle.Generator(2))


def net(x: Tensor, scale: float = 1.0) -> dict[str, Any]:
    y = functional.conv2d(x, W, padding=1).relu()
    return {"scores": HEAD(y.mean((2, 3))) * scale, "both": (y, [y.max((2, 3)), None])}


def bits(x: Tensor) -> bytes:
    return bytes(x.detach().contiguous().buffer())


def test_a_stored_function_gives_the_same_bits(tmp_path: Path) -> None:
    compiled = compile(net, X, scale=2.0)
    compiled.save(tmp_path / "net.plan")
    stored = load_plan(tmp_path / "net.plan")
    for x in (X, X * 3.0):
        wanted, got = compiled(x, scale=2.0), stored(x, scale=2.0)
        assert bits(got["scores"]) == bits(wanted["scores"])
        assert bits(got["both"][0]) == bits(wanted["both"][0]) and got["both"][1][1] is None
    with pytest.raises(ShapeError):
        stored(X)
    with pytest.raises(ShapeError):
        stored(X[:1], scale=2.0)


def test_sizes_may_vary_in_a_file_too(tmp_path: Path) -> None:
    def plain(x: Tensor) -> Tensor:
        return HEAD(x).softmax(-1)

    x = candle.randn((9, 16), candle.Generator(3))
    compile(plain, x, dynamic={0: {0: "rows"}}).save(tmp_path / "rows.plan")
    stored = load_plan(tmp_path / "rows.plan")
    for rows in (1, 4, 9):
        assert bits(stored(x[:rows])) == bits(plain(x[:rows]))
    with pytest.raises(CandleError, match="rows"):
        stored(candle.randn((10, 16)))


def test_sizes_that_grow_while_others_shrink_do_not_leave_their_memory(tmp_path: Path) -> None:
    """A file may tell of 90 - 9 rows columns; memory is for the most rows."""
    path = tmp_path / "rows.plan"
    compile(lambda x: x * 2.0, Tensor.ones((9, 9)), dynamic={0: {0: "rows"}}).save(path)
    good = path.read_bytes()
    told, forged = b"[[[1, 1]], 9]", b"[[[1,1]],[[90,0],[-9,1]]]"
    assert good.count(told) == 2
    head = list(_HEAD.unpack_from(good))
    facts = good[head[5] : head[5] + head[6]].replace(told, forged)
    head[6] = len(facts)
    path.write_bytes((_HEAD.pack(*head) + good[head[3] : head[5]] + facts).ljust(head[7], b"\0"))
    path.write_bytes(path.read_bytes() + good[head[7] :])
    stored = load_plan(path)
    with pytest.raises(FormatError, match="at most"):
        for rows in range(9, 0, -1):
            stored(Tensor.ones((rows, 90 - 9 * rows)))


def test_what_keeps_a_state_is_not_stored(tmp_path: Path) -> None:
    layer = nn.Linear.new(3, 2)
    optimizer = SGD(layer.parameters(), 0.1)

    def step(x: Tensor) -> Tensor:
        loss = layer(x).sqr().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with pytest.raises(TraceError, match="state"):
        compile(step, candle.randn((4, 3))).save(tmp_path / "step.plan")
    with pytest.raises(TraceError, match="plain values"):
        compile(lambda x, y: x, X, object()).save(tmp_path / "odd.plan")
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_refused_or_runs(tmp_path: Path) -> None:
    """Headers, facts and plan at random; the constants may be any numbers."""
    path = tmp_path / "net.plan"
    compile(net, X).save(path)
    good, draw = path.read_bytes(), random.Random(0)
    end = good.index(b'"result"')
    refused = 0
    for _ in range(600):
        bad = bytearray(good)
        for _ in range(draw.randint(1, 3)):
            bad[draw.randrange(end)] = draw.choice((0, 1, 255, draw.randrange(256)))
        path.write_bytes(bad)
        try:
            load_plan(path)(X)
        except (CandleError, OSError):
            refused += 1
    assert refused > 300


@pytest.mark.parametrize("cut", [0, 7, 63, 64, 500, -1])
def test_a_cut_or_longer_file_is_refused(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "net.plan"
    compile(net, X).save(path)
    good = path.read_bytes()
    path.write_bytes(good[:cut])
    with pytest.raises(FormatError):
        load_plan(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(FormatError):
        load_plan(path)
