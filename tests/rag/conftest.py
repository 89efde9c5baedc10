"""Fixtures of this room: a fake embedder, and knowledge bases in temporary folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import rag as support

support.stand_in()


@pytest.fixture
def embedder() -> support.HashingEmbedder:
    return support.HashingEmbedder()
