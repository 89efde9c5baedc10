"""What differs on a terminal: progress, streaming, control characters, Ctrl-C in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from running import COMMAND, write_lines

from candle.cli import exits

if TYPE_CHECKING:
    from running import Program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")


def on_terminal(candle: Program, stream: str, *arguments: str | Path) -> tuple[bytes, bytes]:
    """Runs with `stream` ("stdout" or "stderr") as a terminal: what it got, and what the other."""
    import pty

    main, end = pty.openpty()
    command = [*COMMAND, *map(os.fspath, arguments)]
    other = "stderr" if stream == "stdout" else "stdout"
    with (
        (candle.cwd / "other").open("w+b") as file,
        subprocess.Popen(
            command, cwd=candle.cwd, env=candle.env, **{stream: end, other: file}
        ) as process,
    ):
        os.close(end)
        shown = b"".join(iter(lambda: read(main), b""))
        assert process.wait() == 0
        file.seek(0)
        rest = file.read()
    os.close(main)
    return shown, rest


def read(descriptor: int) -> bytes:
    """The next bytes of a terminal; none when its other end was closed."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def test_generated_text_streams_without_control_characters(candle: Program, decoder: Path) -> None:
    common = ("generate", decoder, "tea", "--max-tokens=60", "--temperature=1", "--seed=3")
    shown, rest = on_terminal(candle, "stdout", *common)
    assert shown and rest == b""
    assert not set(shown) & (set(range(32)) - set(b"\t\r\n"))


def test_texts_of_documents_cannot_command_the_terminal(candle: Program, encoder: Path) -> None:
    (candle.cwd / "x.jsonl").write_text(json.dumps({"text": "tea\x1b[31m\x9b2J"}), encoding="utf-8")
    candle("embed", "--model", encoder, "--input=x.jsonl", "--output=x.candle")
    shown, _ = on_terminal(candle, "stdout", "search", "./x.candle", "tea")
    assert b"tea\\x1b[31m\\x9b2J" in shown and b"\x1b" not in shown


def test_progress_is_shown_on_a_terminal_and_nowhere_else(candle: Program, encoder: Path) -> None:
    """A bar on stderr if that is a terminal; stdout stays clean (llama.cpp#16352, CASES L05)."""
    lines = [{"id": str(n), "text": f"tea {n}"} for n in range(600)]
    write_lines(candle.cwd / "a.jsonl", lines)
    common = ("embed", f"--model={encoder}", "--input=a.jsonl", "--output=a.candle", "--json")
    shown, out = on_terminal(candle, "stderr", *common)
    assert b"embedding" in shown and json.loads(out)["documents"] == 600
    done = candle(*common)
    assert done.stderr == "" and json.loads(done.stdout)["documents"] == 600


def test_ctrl_c_in_the_middle_of_an_answer(candle: Program, decoder: Path) -> None:
    """What was said stays said; exit 130, no traceback."""
    common = (
        "generate",
        decoder,
        "a",
        "--max-tokens=480",
        "--stream",
        "--temperature=2",
        "--seed=1",
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with candle.start(*common, **pipes) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("it was done before the signal came")
    assert process.returncode == exits.INTERRUPTED
    assert first + rest and err.strip() == b""
