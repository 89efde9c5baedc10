"""The public face: a flat sorted list, light to import, and nothing behind it that is not meant."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

import candle
import candle.testing

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}

# Distributions that `import candle` may load; the engine needs cffi and nothing else.
LIGHT = {"candle", "_cffi_backend", "cffi"}


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout


def names_of(module: types.ModuleType) -> list[str]:
    """Public names of a module: what it lists, or what it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    own = {n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
    return sorted(n for n in own if not n.startswith("_"))


def test_the_list_is_sorted_and_whole() -> None:
    shown = {n for n in vars(candle) if not n.startswith("_")}
    parts = {n for n in shown if isinstance(getattr(candle, n), types.ModuleType)}
    meant = shown - parts - {"annotations", "Any", "TYPE_CHECKING"} | {"functional", "__version__"}
    meant |= candle._LATER.keys()
    assert candle.__all__ == sorted(meant)


def test_every_listed_name_is_there() -> None:
    for name in candle.__all__:
        assert getattr(candle, name) is not None


@pytest.mark.parametrize("module", [candle.nn, candle.formats, candle.testing, candle.functional])
def test_lists_of_rooms_are_sorted_and_true(module: types.ModuleType) -> None:
    listed = getattr(module, "__all__", None)
    if listed is not None:
        assert list(listed) == sorted(listed)
        assert all(hasattr(module, n) for n in listed)


@pytest.mark.parametrize(
    "holder",
    [
        candle,
        candle.functional,
        candle.nn,
        candle.testing,
        candle.Tensor,
        candle.Var,
        candle.Weights,
    ],
    ids=lambda h: h.__name__,
)
def test_every_public_name_has_a_docstring(holder: object) -> None:
    names = names_of(holder) if isinstance(holder, types.ModuleType) else vars(holder)
    without = []
    for name in names:
        value = inspect.getattr_static(holder, name)
        value = getattr(value, "__func__", value)
        documented = callable(value) or isinstance(value, property)
        if not name.startswith("_") and documented and not inspect.getdoc(value):
            without.append(name)
    assert without == []


def test_import_loads_no_guest() -> None:
    """click, tokenizers, jinja2, numpy and the like load when they are asked for."""
    code = "import sys; before = set(sys.modules); import candle; print(*set(sys.modules) - before)"
    loaded = {name.split(".")[0] for name in python(code).split()}
    assert {n for n in loaded - sys.stdlib_module_names - LIGHT if not n.startswith("_")} == set()


def test_import_loads_no_slow_part_of_the_standard_library() -> None:
    """pallets/click#2267: what takes milliseconds to load is loaded where it is used."""
    code = "import sys; before = set(sys.modules); import candle; print(*set(sys.modules) - before)"
    loaded = set(python(code).split())
    slow = {
        "secrets",
        "tempfile",
        "urllib.request",
        "ssl",
        "asyncio",
        "logging",
        "sqlite3",
        "difflib",
    }
    assert loaded & slow == set()


def test_the_engine_never_loads_numpy_until_asked() -> None:
    code = """
import sys, candle
from candle import Tensor, Var, functional
x = Var([[1.0, 2.0]])
functional.softmax(x).sum().backward()
repr(x), x.to_vec(), x.grad()
print("numpy" in sys.modules)
x.numpy()
print("numpy" in sys.modules)
"""
    assert python(code).split() == ["False", "True"]


def test_import_is_quick() -> None:
    """Loosely, on any machine: the bar is 60 ms over bare Python, measured in benchmarks/."""
    code = "import time; t = time.perf_counter(); import candle; print(time.perf_counter() - t)"
    python(code)  # compiles
    assert min(float(python(code)) for _ in range(3)) < 0.6


def test_version_is_that_of_the_library() -> None:
    assert candle.__version__ == candle._native.VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", candle.__version__)


def test_types_are_shipped() -> None:
    assert (ROOT / "src/candle/py.typed").exists()
