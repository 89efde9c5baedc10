"""`candle embed`: inputs, names, reports, and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tiny
from running import LINES, write_lines

from candle.cli import exits

if TYPE_CHECKING:
    from running import Program


def leftovers(folder: Path) -> list[str]:
    """Names of temporary files and folders that a run left."""
    return [p.name for p in folder.iterdir() if p.name.startswith(".")]


def test_the_documented_command(candle: Program, encoder: Path) -> None:
    write_lines(candle.cwd / "chunks.jsonl", LINES)
    done = candle("embed", f"--model={encoder}", "--input=chunks.jsonl", "--output=wiki_en.candle")
    assert done.stdout.startswith("wiki_en.candle: 4 documents in 4 chunks, ")
    assert done.stderr == ""
    assert candle.lines("show", "wiki_en.candle", "--json")[0]["name"] == "wiki_en"
    assert leftovers(candle.cwd) == []


def test_the_report_as_json(candle: Program, encoder: Path) -> None:
    lines = [*LINES, {"id": "empty", "text": " \n"}, {"id": "long", "text": "tea " * 120}]
    write_lines(candle.cwd / "a.jsonl", lines)
    common = ("--model", encoder, "--input", "a.jsonl", "--output", "a.candle")
    (report,) = candle.lines("embed", *common, "--json", "--chunk_size", "480", "--overlap=0")
    assert report["documents"] >= 5 and report["empty"] == ["empty"]
    assert report["split"] == ["long"], "its chunks exceed the 64 tokens of the model"
    assert report["bytes"] == (candle.cwd / "a.candle").stat().st_size


def test_folders_of_text_and_markdown(candle: Program, encoder: Path) -> None:
    docs = candle.cwd / "docs"
    docs.mkdir()
    (docs / "tea.md").write_text("# Tea\n\nGreen tea is steeped in water.\n", encoding="utf-8")
    (docs / "bank.txt").write_text("The river bank in Paris.", encoding="utf-8")
    (docs / "photo.png").write_bytes(b"\x89PNG")
    done = candle("embed", "--model", encoder, "--input=docs", "--output=docs.candle")
    assert "2 documents" in done.stdout
    assert "warning: skipped" in done.stderr and "photo.png" in done.stderr


def test_the_same_input_gives_the_same_bytes(candle: Program, encoder: Path) -> None:
    write_lines(candle.cwd / "a.jsonl", LINES)
    common = ("embed", "--model", encoder, "--input=a.jsonl", "--name=same")
    candle(*common, "--output=one.candle")
    candle(*common, "--output=two.candle")
    assert (candle.cwd / "one.candle").read_bytes() == (candle.cwd / "two.candle").read_bytes()


def test_a_package_is_replaced_but_no_other_file(candle: Program, encoder: Path) -> None:
    """A swapped --input and --output must not cost the documents."""
    source = write_lines(candle.cwd / "a.jsonl", LINES)
    before = source.read_bytes()
    common = ("embed", "--model", encoder, "--input=a.jsonl")
    candle(*common, "--output=a.candle")
    candle(*common, "--output=a.candle")
    taken = candle.cwd / "notes.candle"
    taken.write_text("my notes", encoding="utf-8")
    done = candle(*common, "--output=notes.candle", code=exits.USAGE)
    assert "a new file or a .candle package to replace" in done.stderr
    assert taken.read_text(encoding="utf-8") == "my notes"
    candle(*common, "--output=a.jsonl", code=exits.USAGE)
    assert source.read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX")
def test_what_is_no_regular_file_is_neither_written_nor_waited_for(
    candle: Program, encoder: Path
) -> None:
    """A FIFO would make it hang; a device is no folder."""
    write_lines(candle.cwd / "a.jsonl", LINES)
    os.mkfifo(candle.cwd / "fifo")
    common = ("embed", f"--model={encoder}")
    for target in ("fifo", "/dev/null"):
        done = candle(*common, "--input=a.jsonl", f"--output={target}", code=exits.USAGE)
        assert "a device, pipe or socket" in done.stderr
        done = candle(*common, f"--input={target}", "--output=a.candle", code=exits.USAGE)
        assert "a device, pipe or socket" in done.stderr
    (candle.cwd / "folder").mkdir()
    done = candle(*common, "--input=a.jsonl", "--output=folder", code=exits.USAGE)
    assert "got a folder" in done.stderr


def test_nothing_to_be_found_makes_no_package(candle: Program, encoder: Path) -> None:
    for text in ("", '{"text": "  "}\n'):
        (candle.cwd / "a.jsonl").write_text(text, encoding="utf-8")
        common = ("--input=a.jsonl", "--output=a.candle")
        done = candle("embed", f"--model={encoder}", *common, code=exits.USAGE)
        assert "expected documents with text" in done.stderr
    assert {p.name for p in candle.cwd.iterdir()} == {"a.jsonl"}


def test_a_stem_that_is_no_name_is_told(candle: Program, encoder: Path) -> None:
    write_lines(candle.cwd / "a.jsonl", LINES[:1])
    common = ("embed", f"--model={encoder}", "--input=a.jsonl", "--output=My File.candle")
    done = candle(*common)
    assert "the package's name is my-file" in done.stderr
    assert done.stdout.startswith("My File.candle: 1 document in 1 chunk, ")
    assert candle(*common, "--name=mine").stderr == ""
    for stem, name in (("con", "con-1"), ("a" * 70, "a" * 64)):
        done = candle(*common[:-1], f"--output={stem}.candle")
        assert f"the package's name is {name}, " in done.stderr


def test_chunks_smaller_than_the_usual_overlap(candle: Program, encoder: Path) -> None:
    write_lines(candle.cwd / "a.jsonl", LINES)
    common = ("embed", f"--model={encoder}", "--input=a.jsonl", "--output=a.candle")
    candle(*common, "--chunk-size=50")
    candle(*common, "--chunk-size=50", "--overlap=50", code=exits.USAGE)


@pytest.mark.parametrize("name", ["Ünïcode ключ 鍵.candle", "a b\u3000c.candle", "-dash.candle"])
def test_odd_file_names(candle: Program, encoder: Path, name: str) -> None:
    """Non-ASCII letters, spaces, an ideographic space (llama.cpp#18571, CASES L06)."""
    folder = candle.cwd / "Загрузки Željko 日本"
    folder.mkdir()
    write_lines(folder / "данные 1.jsonl", LINES)
    source = f"--input={folder / 'данные 1.jsonl'}"
    candle("embed", f"--model={encoder}", source, f"--output={folder / name}", "--name=odd")
    candle("install", folder / name, env={"CANDLE_HOME": str(folder / "дом 家")})
    assert (folder / "дом 家" / "packages" / "odd").is_dir()
    (shown,) = candle.lines("show", folder / name, "--json")
    assert shown["where"] == str((folder / name).resolve())


def test_errors_name_the_line_and_leave_nothing(candle: Program, encoder: Path) -> None:
    (candle.cwd / "bad.jsonl").write_text('{"text": "a"}\n{"text": 3}\n', encoding="utf-8")
    common = ("embed", "--model", encoder, "--output=bad.candle")
    done = candle(*common, "--input=bad.jsonl", code=exits.FAILED)
    assert "bad.jsonl" in done.stderr and "2" in done.stderr and len(done.stderr.splitlines()) <= 2
    candle(*common, "--input=nosuch.jsonl", code=exits.NOT_FOUND)
    candle("embed", "--input=bad.jsonl", "--output=b.zip", "--model", encoder, code=exits.USAGE)
    candle(*common, "--input=bad.jsonl", "--chunk-size=0", code=exits.USAGE)
    assert {p.name for p in candle.cwd.iterdir()} == {"bad.jsonl"}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    ("sent", "code"),
    [("SIGINT", exits.INTERRUPTED), ("SIGTERM", exits.TERMINATED), ("SIGHUP", exits.HUNG_UP)],
)
def test_an_interrupt_leaves_no_half_file(candle: Program, sent: str, code: int) -> None:
    """Ctrl-C in the middle: exit 130, no traceback, no file, and no temporary folder."""
    slow = tiny.make_encoder(candle.cwd / "slow-bert", layers=8)
    lines = [{"id": str(n), "text": f"tea {n} " * 12} for n in range(20_000)]
    write_lines(candle.cwd / "many.jsonl", lines)
    arguments = ("embed", f"--model={slow}", "--input=many.jsonl", "--output=many.candle")
    with candle.start(*arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        while not list(candle.cwd.glob(".candle-*/kb/*.sqlite")):
            assert process.poll() is None, "it works in a temporary folder beside the output"
            time.sleep(0.01)
        process.send_signal(getattr(signal, sent))
        out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err and out == b""
    assert {p.name for p in candle.cwd.iterdir()} == {"slow-bert", "many.jsonl"}
