"""`make` names a Python that it cannot use, and makes anew what an interrupted run left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "tools" / "check_python.sh"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a POSIX shell is needed")


def check(venv: Path, *python: str | Path) -> str:
    """What check_python.sh says; "" if all is well."""
    command = ["sh", str(SCRIPT), str(venv), *map(str, python)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_python_that_will_do_is_passed_in_silence(tmp_path: Path) -> None:
    assert check(tmp_path / "venv", sys.executable) == ""


def test_a_python_that_is_not_there_or_does_not_run_is_named(tmp_path: Path) -> None:
    for wrong in (tmp_path / "no such", tmp_path, program(tmp_path / "broken", "exit 3")):
        assert "is not a Python that runs" in check(tmp_path / "venv", wrong)
    assert "no Python of 3.11" in check(tmp_path / "venv", "")
    assert not (tmp_path / "venv").exists()


def test_a_python_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = program(tmp_path / "old", '[ -z "$2" ] || exit 1')
    assert "is too old: Python 3.11" in check(tmp_path / "venv", old)


def test_an_environment_that_make_did_not_make_is_left_alone(tmp_path: Path) -> None:
    assert "make did not make it" in check(tmp_path, sys.executable)
    (tmp_path / ".making").touch()
    assert check(tmp_path, sys.executable) == ""


def test_an_environment_stays_with_its_python(tmp_path: Path) -> None:
    (tmp_path / ".base").touch()
    assert "is gone" in check(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    assert check(tmp_path) == check(tmp_path, sys.executable) == ""
    other = program(tmp_path / "other", '[ "$2" != "import sys; print(sys.version)" ] || echo 3.99')
    assert "another Python" in check(tmp_path, other)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")
def test_what_an_interrupted_run_left_is_made_anew(tmp_path: Path) -> None:
    """A stand-in for Python writes down what it is asked; `-m venv` makes another."""
    for name in ("Makefile", "pyproject.toml", "tools/hatch_build.py", "tools/check_python.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / "python"
    log = tmp_path / "log"
    make_venv = f'[ "$2" != venv ] || {{ mkdir -p "$3/bin"; cp "{python}" "$3/bin/python"; }}'
    program(python, f'echo "$@" >> "{log}"; {make_venv}')
    half = tmp_path / ".venv" / "half"
    half.parent.mkdir()
    half.touch()
    (half.parent / ".making").touch()
    command = ["make", "-s", ".venv/.ready", f"PYTHON={python}"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert sorted(p.name for p in half.parent.iterdir()) == [".base", ".ready", "bin"]
    assert "--ignore-installed" not in log.read_text()
    (half.parent / ".ready").unlink()
    (half.parent / ".installing").touch()
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "--ignore-installed" in log.read_text()
    assert not (half.parent / ".installing").exists()
