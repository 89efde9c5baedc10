"""The page on the plan format says what the writer writes."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

import candle
from candle import FormatError, Tensor, nn
from candle._native import plans
from candle.compiler import compile, lower, stored

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/plan-format.md"
ENTRIES = {
    "ops": lower._OP,
    "symbols": lower._SYMBOL,
    "buffers": lower._BUFFER,
    "layouts": lower._LAYOUT,
    "views": lower._VIEW,
    "params": lower._PARAMS,
    "steps": lower._STEP,
    "patches": lower._PATCH,
    "terms": lower._TERM,
}


def test_sections_and_sizes_are_those_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+) \| (\d+) \| ", text.split("| section |")[1], re.MULTILINE)
    assert [(name, int(size)) for name, size in rows][:9] == [
        (name, entry.size) for name, entry in ENTRIES.items()
    ]
    assert rows[9] == ("text", "1")
    assert f"A header of {lower._HEADER.size} bytes, then ten sections" in text
    assert f"a header of {stored._HEAD.size} bytes, then the plan" in text


def test_a_plan_read_by_the_page_has_the_steps_that_were_traced() -> None:
    compiled = compile(lambda x: (x * 2.0).sum(1), Tensor.ones((3, 4)))
    plan = bytes(compiled.bound.plan)
    magic, version, header, size, arena, *counts = lower._HEADER.unpack_from(plan)
    assert (magic, version, header, size) == (b"CDLPLAN\0", 1, lower._HEADER.size, len(plan))
    assert arena == compiled.arena.nbytes
    tables = lower.PlanTables(plan)
    assert tables.names == [n.op for n in compiled.graph.nodes]
    assert counts[2] == len(tables.buffers) == len(compiled.graph.buffers())
    assert candle.DType.F32.number == 0


def places(plan: bytes) -> dict[str, tuple[int, int]]:
    """Where each section begins, and how many entries it has."""
    header = lower._HEADER.unpack_from(plan)
    found, at = {}, lower._HEADER.size
    for (name, entry), count in zip(ENTRIES.items(), header[5:], strict=False):
        found[name] = at, count
        at += -(-count * entry.size // 8) * 8
    return found


def varying() -> bytes:
    layer = nn.Linear.new(24, 10)
    x = Tensor.ones((6, 24))
    return bytes(compile(lambda x: layer(x) * 2.0, x, dynamic={0: {0: "n"}}).bound.plan)


def test_packed_weights_lie_in_whole_panels_within_their_buffer() -> None:
    """Strides that pass a small buffer: the kernel reads ceil(n / 16) * 16 * k floats."""
    layer = nn.Linear.new(24, 10)
    plan = bytearray(compile(layer, Tensor.ones((6, 24))).bound.plan)
    plans.Bound(bytes(plan))
    where = places(bytes(plan))
    at, count = where["layouts"]
    steps = [at + k * lower._LAYOUT.size for k in range(count)]
    (packed,) = (k for k in steps if struct.unpack_from("<i", plan, k)[0] == 32)
    at, count = where["buffers"]
    sizes = [at + k * lower._BUFFER.size + 8 for k in range(count)]
    (room,) = (k for k in sizes if struct.unpack_from("<Q", plan, k)[0] == 16 * 24 * 4)
    smaller = bytearray(plan)
    struct.pack_into("<Q", smaller, room, 1024)
    with pytest.raises(FormatError, match="within its buffer"):
        plans.Bound(bytes(smaller))
    struct.pack_into("<2q", smaller, packed + 8 + 64, 1, 1)
    with pytest.raises(FormatError, match="layout"):
        plans.Bound(bytes(smaller))


def test_tables_that_were_refused_do_not_run() -> None:
    bound = plans.Bound(varying())
    memory = [Tensor.zeros((4096,)) for _ in range(bound.buffers)]
    for number, room in enumerate(memory):
        bound.place(number, room.data.address)
    bound.bind((3,))
    assert bound.run()[0] == 0
    with pytest.raises(FormatError, match="bounds"):
        bound.bind((7,))
    assert bound.run()[0] != 0


def test_patches_do_not_share_terms() -> None:
    """Else the time to fill the tables grows with the square of the plan."""
    plan = bytearray(varying())
    where = places(bytes(plan))
    (at, count), (_, terms) = where["patches"], where["terms"]
    assert count > 1 and terms >= count
    for k in range(count):
        struct.pack_into("<2I", plan, at + k * lower._PATCH.size + 12, 0, terms)
    with pytest.raises(FormatError, match="no more terms"):
        plans.Bound(bytes(plan))


@pytest.mark.parametrize("strides", [(1, 1), (0, 1), (3, 1), (1, 2), (-1, 1), (2, 3)])
def test_an_element_is_not_written_twice_by_a_step(strides: tuple[int, int]) -> None:
    plan = bytearray(compile(lambda x: x.add(x), Tensor.ones((5, 4))).bound.plan)
    at, count = places(bytes(plan))["layouts"]
    assert count == 1
    struct.pack_into("<2q", plan, at + 8 + 64, *strides)
    with pytest.raises(FormatError, match=r"each element once|within its buffer"):
        plans.Bound(bytes(plan))


@pytest.mark.parametrize("strides", [(4, 1), (1, 5)])
def test_each_element_once_in_any_order(strides: tuple[int, int]) -> None:
    plan = bytearray(compile(lambda x: x.add(x), Tensor.ones((5, 4))).bound.plan)
    at, _ = places(bytes(plan))["layouts"]
    struct.pack_into("<2q", plan, at + 8 + 64, *strides)
    plans.Bound(bytes(plan))
