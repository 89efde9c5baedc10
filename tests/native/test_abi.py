"""The header, the declarations that cffi reads, and the library agree; so do both bindings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from candle import DType, _native
from candle._native import load
from candle.errors import NativeError
from candle.op import Activation

ROOT = Path(__file__).resolve().parents[2]
HEADER = re.sub(r"/\*.*?\*/", "", (ROOT / "native/include/candle.h").read_text(), flags=re.S)
ROW = re.compile(r"^CDL_(?:UNARY|BINARY|COMPARE|OP)\((\w+)", re.M)

SAME = """
import json, candle
from candle import Tensor, Var, _native
x = Var([[0.5, -1.25, 3.0], [2.0, 0.1, -0.7]])
y = x.matmul(x.t()).tanh().sum()
y.backward()
errors = []
for bad in (lambda: Tensor([1]).floor_div(0), lambda: Tensor([1.0]).index_select(Tensor([3]))):
    try:
        bad()
    except Exception as error:
        errors.append([type(error).__name__, str(error)])
facts = [y.to_vec(), x.grad().to_vec(), errors, _native.OPS, candle.threads()]
print(json.dumps([_native.BINDING, *facts]))
"""


def enum(name: str) -> dict[str, int]:
    """Members of an enum of the header."""
    body = re.search(rf"typedef enum {name} \{{(.*?)\}}", HEADER, re.S)
    assert body is not None
    return {k: int(v) for k, v in re.findall(r"(CDL_\w+) = (\d+)", body[1])}


def test_every_function_of_the_header_is_declared_and_there() -> None:
    declared = set(re.findall(r"CDL_API [^;(]*?(cdl_\w+)\(", HEADER))
    assert {"cdl_abi", "cdl_step", "cdl_plan_run"} <= declared
    for name in declared:
        assert callable(getattr(load.lib, name))


@pytest.mark.parametrize("name", ["cdl_status", "cdl_dtype", "cdl_activation"])
def test_every_constant_has_the_header_s_value(name: str) -> None:
    for member, value in enum(name).items():
        assert getattr(load.lib, member) == value


def test_dtypes_are_those_of_the_header_and_of_the_table() -> None:
    assert {f"CDL_{d.name}": d.number for d in DType} == enum("cdl_dtype")
    table = (ROOT / "native/kernels/dtypes.def").read_text()
    rows = {
        m[1]: (int(m[2]), int(m[3]))
        for m in re.finditer(r"^CDL_DTYPE\((\w+), (\d+), (\d+)\)", table, re.M)
    }
    assert rows == {d.name: (d.block, d.size) for d in DType}


def test_activations_are_those_of_the_header() -> None:
    assert {f"CDL_ACT_{a.name}": a.value for a in Activation} == enum("cdl_activation")


def test_structs_have_the_layout_that_python_packs() -> None:
    ffi = load.ffi
    assert [ffi.sizeof(n) for n in ("cdl_layout", "cdl_view", "cdl_params")] == [136, 16, 80]
    offsets = [ffi.offsetof("cdl_layout", n) for n in ("dtype", "rank", "shape", "strides")]
    assert offsets == [0, 4, 8, 72]
    assert ffi.offsetof("cdl_params", "f") == 64


def test_operations_are_the_rows_of_the_list_in_order() -> None:
    rows = ROW.findall((ROOT / "native/kernels/ops.def").read_text())
    assert list(_native.OPS) == rows
    assert list(_native.OPS.values()) == list(range(len(rows)))


def test_an_unknown_operation_is_refused_by_name() -> None:
    with pytest.raises(NativeError, match="no_such"):
        _native.op_id("no_such")


def run(**environment: str) -> list[object]:
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    done = subprocess.run(
        [sys.executable, "-c", SAME], env=given, capture_output=True, text=True, check=True
    )
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_both_bindings_give_the_same() -> None:
    """Built wheels have the shim; without Python's headers the other binding opens the library."""
    abi = run(CANDLE_BINDING="abi")
    assert abi[0] == "abi"
    if _native.BINDING == "abi":
        pytest.skip("this build has no shim: Python's headers were absent")
    api = run()
    assert api[0] == "api"
    assert api[1:] == abi[1:]


@pytest.mark.parametrize("name", _native.isa_list())
def test_an_instruction_set_is_chosen_by_the_environment(name: str) -> None:
    code = "from candle import _native; print(_native.isa())"
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CANDLE_ISA": name}
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True)
    assert done.stdout.strip() == name


def test_an_instruction_set_that_is_not_here_is_said() -> None:
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CANDLE_ISA": "avx9000"}
    code = "import candle"
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True)
    assert done.returncode == 0
    here = ", ".join(_native.isa_list())
    used = _native.isa_list()[-1]
    assert done.stderr == (
        f"candle: CANDLE_ISA=avx9000 cannot run here: {used} is used, of {here}\n"
    )


def test_a_missing_library_is_one_clear_error(tmp_path: Path) -> None:
    package = tmp_path / "candle" / "_native"
    package.mkdir(parents=True)
    for source in (ROOT / "src/candle/_native").glob("*.py"):
        (package / source.name).write_text(source.read_text())
    for name in ("errors", "dtype", "shape"):
        (tmp_path / "candle" / f"{name}.py").write_text(
            (ROOT / f"src/candle/{name}.py").read_text()
        )
    (tmp_path / "candle" / "__init__.py").write_text("")
    given = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "import candle._native"
    done = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert "NativeError: load: expected the kernel library" in last
    assert "reinstall candle" in last
