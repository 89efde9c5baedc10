"""The page on the plan format says what the writer writes."""

from __future__ import annotations

import re
from pathlib import Path

import candle
from candle import Tensor
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
    plan = bytes(compiled.plan)
    magic, version, header, size, arena, *counts = lower._HEADER.unpack_from(plan)
    assert (magic, version, header, size) == (b"CDLPLAN\0", 1, lower._HEADER.size, len(plan))
    assert arena == compiled.arena.nbytes
    tables = lower.PlanTables(plan)
    assert tables.names == [n.op for n in compiled.graph.nodes]
    assert counts[2] == len(tables.buffers) == len(compiled.graph.buffers())
    assert candle.DType.F32.number == 0
