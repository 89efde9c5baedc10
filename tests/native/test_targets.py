"""The same tests on another CPU: the library for aarch64, run by qemu, driven from here.

Needs ziglang (which cross-compiles) and qemu-aarch64-static (Debian: qemu-user-static); skipped
with a message where one is missing.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = "aarch64-linux-musl"
SUITES = [
    "elementwise", "movement", "reduce", "rows", "index", "random",
    "matmul", "linear", "attention", "nearest", "quant", "conv", "pool",
]  # fmt: skip


def build_tool() -> ModuleType:
    """tools/build_native.py as a module."""
    path = ROOT / "tools/build_native.py"
    spec = importlib.util.spec_from_file_location("build_native", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_suite(suite: str, stepper: str, **more: str) -> None:
    """The suite of that name in a process of its own, its steps taken by this command."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", f"tests/native/test_{suite}.py"],
        cwd=ROOT,
        env={**os.environ, "CANDLE_TEST_RUNNER": stepper, **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-3000:]


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command that runs native/tests/stepper.c for aarch64."""
    emulator = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if emulator is None:
        pytest.skip("qemu-aarch64-static is not here (Debian: qemu-user-static)")
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not here, and cc does not cross-compile")
    tool = build_tool()
    build = tool.Build(TARGET)
    out = tmp_path_factory.mktemp("stepper") / "stepper"
    source = str(ROOT / "native/tests/stepper.c")
    objects = [str(path) for path in build.compile_all()]
    flags = ["-target", TARGET, "-std=c11", "-O3", "-g0", "-static", "-s"]
    tool.run([*build.compiler, *flags, source, *objects, "-o", str(out)])
    return f"{emulator} {out}"


@pytest.mark.parametrize("suite", SUITES)
def test_on_aarch64(stepper: str, suite: str) -> None:
    """The suite of that name, on the neon kernels."""
    run_suite(suite, stepper, CANDLE_TEST_ISAS="neon")
