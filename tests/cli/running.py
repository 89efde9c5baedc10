"""The program as a user runs it: another process with a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "candle"]
LINES = [
    {"id": "qc", "text": "Quantum computers use qubits", "metadata": {"lang": "en", "year": 2024}},
    {"id": "tea", "text": "Green tea is steeped in water", "metadata": {"lang": "en"}},
    {"id": "银行", "text": "银行在河边", "metadata": {"lang": "zh"}},
    {"text": "The transistor was invented at Bell Labs"},
]


class Program:
    """Runs `candle`; `env` is what every run sees, `cwd` where it runs."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CANDLE_", "HF_"))}
        homes = {"CANDLE_HOME": str(folder / "home"), "HF_HOME": str(folder / "no-hub")}
        self.env = {**kept, **homes, "CANDLE_NUM_THREADS": "1"}

    def __call__(
        self,
        *arguments: str | Path,
        code: int = 0,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """The finished process, its output decoded; `code` is what it must exit with."""
        done = subprocess.run(
            [*COMMAND, *map(os.fspath, arguments)],
            input=stdin,
            capture_output=True,
            cwd=self.cwd,
            env={**self.env, **(env or {})},
            timeout=300,
            check=False,
        )
        out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        assert done.returncode == code, f"exit code {done.returncode}, not {code}:\n{out}{err}"
        assert "Traceback" not in err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def lines(self, *arguments: str | Path, **settings: Any) -> list[Any]:
        """The output as JSON lines."""
        return [json.loads(line) for line in self(*arguments, **settings).stdout.splitlines()]

    def start(self, *arguments: str | Path, **settings: Any) -> subprocess.Popen[bytes]:
        """A process that runs on."""
        command = [*COMMAND, *map(os.fspath, arguments)]
        return subprocess.Popen(command, cwd=self.cwd, env=self.env, **settings)


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    """Objects as JSON lines."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path
