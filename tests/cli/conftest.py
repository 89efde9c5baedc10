"""The program in an empty folder, and models small enough to be made in a test."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import tiny
from running import LINES, Program, write_lines

# a run in a shell's background has it ignored, and would hand that down
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, and children inherit that


@pytest.fixture
def candle(tmp_path: Path) -> Program:
    """The program in an empty folder."""
    return Program(tmp_path)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sentence encoder."""
    return tiny.make_encoder(tmp_path_factory.mktemp("encoder") / "tiny-bert")


@pytest.fixture(scope="session")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small language model."""
    return tiny.make_decoder(tmp_path_factory.mktemp("decoder") / "tiny.gguf")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Path:
    """A knowledge base of four documents, as `candle embed` wrote it."""
    folder = tmp_path_factory.mktemp("package")
    write_lines(folder / "chunks.jsonl", LINES)
    run = Program(folder)
    run("embed", f"--model={encoder}", "--input=chunks.jsonl", "--output=notes.candle")
    return folder / "notes.candle"


@pytest.fixture
def installed(candle: Program, package: Path, encoder: Path) -> Program:
    """The program with that knowledge base as `notes`, and its model where its name leads to."""
    candle("install", package)
    snapshots = candle.cwd / "no-hub" / "hub" / f"models--test--{encoder.name}" / "snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / ("0" * 40)).symlink_to(encoder, target_is_directory=True)
    return candle
