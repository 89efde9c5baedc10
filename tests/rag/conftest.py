"""Fixtures of this room: a fake embedder, and a store of packages of each test's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from candle.rag.retriever import Retriever
from support.rag import HashingEmbedder


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """CANDLE_HOME, empty."""
    path = tmp_path / "home"
    monkeypatch.setenv("CANDLE_HOME", str(path))
    monkeypatch.setenv("CANDLE_OFFLINE", "1")
    return path


@pytest.fixture
def embedder() -> HashingEmbedder:
    return HashingEmbedder()


@pytest.fixture
def retriever(tmp_path: Path, embedder: HashingEmbedder) -> Iterator[Retriever]:
    """An empty knowledge base."""
    with Retriever.create(tmp_path / "kb", embedder) as opened:
        yield opened
