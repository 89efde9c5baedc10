"""The op set is whole: every record and kind has a runner, a kernel, a gradient, a case, a line."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from candle import (
    DType,
    Tensor,
    Var,
    _native,
    autograd,
    creation,
    eager,
    functional,
    images,
    losses,
    op,
    steps,
)
from candle.compiler.passes import blocked
from support.cases import CASES

ROOT = Path(__file__).resolve().parents[1]
KINDS: list[Enum] = [*op.UnaryKind, *op.BinaryKind, *op.CompareKind, *op.ReduceKind]
NATIVE = set(_native.OPS)
# Rows of ops.def that have no record: leaves come from them, and nothing leads back.
CREATION = {"fill", "iota", "uniform", "normal"}

covered = {c.covers for c in CASES}


def family(kind: Enum) -> type:
    return {
        op.UnaryKind: op.Unary,
        op.BinaryKind: op.Binary,
        op.CompareKind: op.Compare,
        op.ReduceKind: op.Reduce,
    }[type(kind)]


def records_in(module: Any) -> set[type]:
    return {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, op.Record)}


def test_the_list_of_records_is_whole() -> None:
    assert set(op.RECORDS) == records_in(op) - {op.Record}


@pytest.mark.parametrize("record", op.RECORDS, ids=lambda r: r.__name__)
def test_every_record_has_a_runner_and_a_line(record: type) -> None:
    assert record in eager.RUNNERS
    assert record.__doc__
    assert re.search(rf"\b{record.__name__}\b", op.__doc__ or "")


def test_runners_are_for_records_only() -> None:
    assert set(eager.RUNNERS) == set(op.RECORDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{type(k).__name__}.{k.name}")
def test_every_kind_is_a_row_of_the_list_and_has_a_case(kind: Enum) -> None:
    assert kind.value in NATIVE
    assert kind in covered


@pytest.mark.parametrize("record", op.RECORDS, ids=lambda r: r.__name__)
def test_every_record_has_a_case(record: type) -> None:
    kinds = {k for k in KINDS if family(k) is record}
    assert record in covered or kinds & covered


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{type(k).__name__}.{k.name}")
def test_every_kind_has_a_method(kind: Enum) -> None:
    name = {"gelu_tanh": "gelu", "sum": "sum"}.get(kind.value, kind.value)
    assert inspect.getdoc(getattr(Tensor, name))


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{type(k).__name__}.{k.name}")
def test_every_kind_has_a_gradient_or_is_no_float(kind: Enum) -> None:
    if family(kind) in op.NOT_DIFFERENTIABLE or kind in op.PLACES:
        x = Var([1.0, 2.0])
        record = (
            family(kind)((x, x), kind)
            if family(kind) is op.Compare
            else op.Reduce((x,), kind, (0,))
        )
        assert not x.apply(record).tracked
        return
    assert any(c.order for c in CASES if c.covers is kind)


@pytest.mark.parametrize("record", op.RECORDS, ids=lambda r: r.__name__)
def test_every_record_has_a_gradient_or_a_reason(record: type) -> None:
    """candle#1227: an operation without a gradient says so by name."""
    source = inspect.getsource(autograd)
    ruled = re.search(rf"op\.{record.__name__}\(", source) is not None
    assert ruled != (record in op.NOT_DIFFERENTIABLE)


@pytest.mark.parametrize("record", list(op.NOT_DIFFERENTIABLE), ids=lambda r: r.__name__)
def test_an_operation_without_a_gradient_refuses_or_leads_nowhere(record: type) -> None:
    """candle#3752 (A08): the graph is never cut in silence."""
    x = Var(Tensor.ones((2, 3, 2, 4)))
    flat, w = Var(Tensor.ones((2, 4))), Tensor.ones((4, 4))
    made: Any = {
        op.Compare: lambda: x.gt(0.0),
        op.Nearest: lambda: functional.nearest(flat, flat, 1)[0],
        op.LinearGrad: lambda: flat.apply(op.LinearGrad((flat, flat, w), True, False, False))[0],
        op.CrossEntropyGrad: lambda: flat.apply(
            op.CrossEntropyGrad(
                (flat, Tensor([1, 0], "i64"), Tensor(1.0)), op.Reduction.SUM, -100, 0.0
            )
        ),
        op.Pack: lambda: functional.linear(flat, functional.pack(flat)),
    }[record]()
    if record is op.Compare:
        assert made.dtype is DType.BOOL
        assert not made.tracked
    else:
        with pytest.raises(RuntimeError, match=record.__name__):
            made.sum().backward()


def test_every_row_of_the_list_is_used() -> None:
    """A kernel that nothing calls is a kernel that nothing tests."""
    source = "".join(inspect.getsource(m) for m in (eager, images, losses, steps, blocked))
    used = set(re.findall(r'"(\w+)"', source)) | {k.value for k in KINDS}
    assert NATIVE - CREATION - used == set()
    named = inspect.getsource(creation) + inspect.getsource(Tensor)
    assert all(name in named for name in CREATION)


@pytest.mark.parametrize("name", sorted(NATIVE))
def test_every_kernel_is_in_the_table_of_every_isa(name: str) -> None:
    """An empty slot answers "no such operation"; wrong arguments answer something else."""
    before = _native.isa()
    layout = eager.new_view(DType.F32, ()).layout
    try:
        for isa in _native.isa_list():
            _native.set_isa(isa)
            views = eager._packs[1](0, layout.address)
            status = _native.step(_native.op_id(name), views, 1, eager._NO_PARAMS)
            assert "no such operation" not in str(_native.status_error(0, status, []))
    finally:
        _native.set_isa(before)


@pytest.mark.parametrize("record", op.RECORDS, ids=lambda r: r.__name__)
def test_records_are_frozen_and_told_apart_by_identity(record: type) -> None:
    fields = record.__match_args__
    assert fields[0] == "inputs"
    x = Tensor([1.0])
    made, same = (record((x,), *range(1, len(fields))) for _ in range(2))
    assert made != same
    assert hash(made) != hash(same)
    assert repr(made).startswith(f"{record.__name__}([1]")
    with pytest.raises(AttributeError, match="frozen"):
        made.inputs = ()
    with pytest.raises(AttributeError, match="frozen"):
        del made.inputs
    with pytest.raises(AttributeError):
        made.other = 1
