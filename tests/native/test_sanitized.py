"""The same tests with every access checked: kernels built with ASan and UBSan, driven from here.

Each region that a call is sent lies in memory of its own length, so that a byte beyond it is seen.
Needs a cc with its sanitisers (zig has no runtime for them); skipped with a message without one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from test_targets import ROOT, build_tool, run_suite

SUITES = ["movement", "index", "rows", "matmul", "linear", "conv", "pool", "blocks"]


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """native/tests/stepper.c with the sanitised library in it."""
    tool = build_tool()
    out = tmp_path_factory.mktemp("sanitized") / "stepper"
    try:
        build = tool.Build(tool.default_target(), sanitize=True, force_cc=True)
        trial = out.with_suffix(".c")
        trial.write_text("int main(void) { return 0; }\n")
        tool.run([*build.compiler, *tool.SANITIZE, str(trial), "-o", str(out)])
    except tool.BuildError as error:
        pytest.skip(f"no cc with sanitisers: {str(error)[:200]}")
    objects = [str(path) for path in build.compile_all()]
    source = str(ROOT / "native/tests/stepper.c")
    flags = [*tool.SANITIZE, "-std=c11", source, *objects, "-o", str(out), "-lm", "-lpthread"]
    tool.run([*build.compiler, *flags])
    return out


@pytest.mark.parametrize("suite", SUITES)
def test_under_sanitizers(stepper: Path, suite: str) -> None:
    """The suite of that name, on the scalar and the widest kernels."""
    options = "allocator_may_return_null=1:detect_leaks=0"
    run_suite(suite, str(stepper), ASAN_OPTIONS=options)
