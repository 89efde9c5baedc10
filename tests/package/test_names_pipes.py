"""A pipe in a model's place is refused at once: opening it would wait for a writer for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from candle.errors import NameNotFoundError
from candle.package.names import resolve


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("no pipes in folders on this system")
    pipe = tmp_path / "model.gguf"
    os.mkfifo(pipe)
    with pytest.raises(NameNotFoundError, match="pipe"):
        resolve(str(pipe))
