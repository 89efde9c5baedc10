"""MappedFile: what it maps, what it refuses, and how long its views live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from candle.errors import FormatError
from candle.formats.mapped import MappedFile


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    path = tmp_path / "ten"
    path.write_bytes(bytes(range(10)))
    return path


def test_views_are_the_files_bytes_and_read_only(ten: Path) -> None:
    with MappedFile(ten) as file:
        view = file.view(3, 4)
        assert bytes(view) == bytes([3, 4, 5, 6])
        assert view.readonly
        assert bytes(file.view(0, 10)) == bytes(range(10))
        assert bytes(file.view(10, 0)) == b""
        assert file.head(4) == bytes([0, 1, 2, 3])
        assert file.head(100) == bytes(range(10))


@pytest.mark.parametrize(
    ("offset", "nbytes"),
    [(0, 11), (10, 1), (11, 0), (-1, 1), (1, -1), (2**63, 1), (1, 2**64), (-(2**70), 2**70)],
)
def test_a_range_outside_the_file_is_refused(ten: Path, offset: int, nbytes: int) -> None:
    with MappedFile(ten) as file, pytest.raises(FormatError, match="within its 10 bytes"):
        file.view(offset, nbytes)


def test_an_empty_file_is_mapped_as_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with MappedFile(tmp_path / "empty") as file:
        assert file.size == 0
        assert bytes(file.view(0, 0)) == b""


def test_views_outlive_close(ten: Path) -> None:
    file = MappedFile(ten)
    view = file.view(8, 2)
    file.close()
    file.close()
    assert bytes(view) == bytes([8, 9])
    with pytest.raises(FormatError, match="closed"):
        file.view(0, 1)


def test_a_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected a file, got a folder"):
        MappedFile(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="pipe"):
        MappedFile(tmp_path / "pipe")


def test_an_absent_file_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MappedFile(tmp_path / "absent")


def test_names_outside_ascii_work(tmp_path: Path) -> None:
    """llama.cpp#18571: a path with other scripts, spaces and an ideographic space."""
    path = tmp_path / "Загрузки モデル\u3000é" / "m odel"
    path.parent.mkdir()
    path.write_bytes(b"abc")
    with MappedFile(path) as file:
        assert bytes(file.view(0, 3)) == b"abc"
