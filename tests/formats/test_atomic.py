"""atomic_file: whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from candle.formats.atomic import atomic_file


def test_the_file_appears_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with atomic_file(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with pytest.raises(error), atomic_file(path) as stream:
        stream.write(b"half")
        raise error
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_the_users_umask_holds(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "out") as stream:
            stream.write(b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o640
