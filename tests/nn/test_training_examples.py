"""The training examples run: they learn, show progress, and draw the curve they promise."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own."""
    command = [sys.executable, "-W", "error", str(FOLDER / name), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)


def test_a_line_is_fitted_in_at_most_37_lines() -> None:
    assert len((FOLDER / "linear_regression.py").read_text().splitlines()) <= 37
    out = run("linear_regression.py").stdout
    assert "Linear(1 -> 1)" in out and "step 100: loss 0.010" in out


@pytest.mark.parametrize("name", ["lenet.py", "mlp_classifier.py"])
def test_a_classifier_learns_and_draws(name: str, tmp_path: Path) -> None:
    curve = tmp_path / "loss.svg"
    done = run(name, "--epochs", "2", "--plot", str(curve))
    share = float(done.stdout.split("accuracy ")[1].split("%")[0])
    assert share > 80.0
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["1/2", "2/2"]
    root = ET.parse(curve).getroot()
    line = root.find("{http://www.w3.org/2000/svg}polyline")
    assert line is not None and len(line.attrib["points"].split()) >= 50


def test_the_same_seed_gives_the_same_training() -> None:
    told = [run("lenet.py", "--epochs", "1").stdout for _ in range(2)]
    assert told[0] == told[1]


def test_a_terminal_sees_one_live_line() -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    ours, theirs = pty.openpty()
    command = [sys.executable, str(FOLDER / "lenet.py"), "--epochs", "1"]
    subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, check=True, timeout=300)
    os.close(theirs)
    shown = b""
    while b"\n" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)
    assert shown.count(b"\n") == 1 and shown.count(b"\repoch 1/1") >= 2
