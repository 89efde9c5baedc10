"""Folders: one file, or shards with an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from candle.dtype import DType
from candle.errors import SafetensorsError
from candle.formats.safetensors_folder import INDEX, open_folder
from candle.formats.safetensors_write import save_safetensors


def shard(folder: Path, file: str, **tensors: bytes) -> None:
    sources = {n: (DType.U8, (len(b),), b) for n, b in tensors.items()}
    save_safetensors(folder / file, sources, {"format": "pt"})


def index(folder: Path, weight_map: Any) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def test_one_file_is_the_folder(tmp_path: Path) -> None:
    shard(tmp_path, "model.safetensors", a=b"1")
    shard(tmp_path, "other.safetensors", b=b"2")
    with open_folder(tmp_path) as folder:
        assert list(folder.tensors) == ["a"]
        assert folder.metadata == {"format": "pt"}


def test_the_only_file_may_have_any_name(tmp_path: Path) -> None:
    shard(tmp_path, "weights.safetensors", a=b"1")
    with open_folder(tmp_path) as folder:
        assert folder.data("a").tobytes() == b"1"


def test_a_choice_of_files_names_them(tmp_path: Path) -> None:
    """llamafile#511: two models, and the error says which."""
    shard(tmp_path, "one.safetensors", a=b"1")
    shard(tmp_path, "two.safetensors", a=b"2")
    with pytest.raises(SafetensorsError, match=r"one\.safetensors, two\.safetensors"):
        open_folder(tmp_path)


def test_no_file_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(SafetensorsError, match=r"got pytorch_model\.bin"):
        open_folder(tmp_path)


def test_shards_are_one_table(tmp_path: Path) -> None:
    shard(tmp_path, "model-1.safetensors", a=b"1", b=b"22")
    shard(tmp_path, "model-2.safetensors", c=b"333")
    names = {"a": "model-1.safetensors", "b": "model-1.safetensors", "c": "model-2.safetensors"}
    index(tmp_path, names)
    with open_folder(tmp_path) as folder:
        assert set(folder.tensors) == {"a", "b", "c"}
        assert folder.data("c").tobytes() == b"333"
        assert folder.data("b").tobytes() == b"22"
        with pytest.raises(SafetensorsError, match="'d'"):
            folder.data("d")


@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "/etc/model.safetensors",
        "a\\b.safetensors",
        "C:x.safetensors",
        ".safetensors",
        "model.bin",
        "x\0.safetensors",
        7,
        None,
    ],
)
def test_an_index_cannot_leave_its_folder(tmp_path: Path, name: object) -> None:
    index(tmp_path, {"a": name})
    with pytest.raises(SafetensorsError, match="in this folder"):
        open_folder(tmp_path)


def test_index_and_shards_must_agree_both_ways(tmp_path: Path) -> None:
    shard(tmp_path, "m.safetensors", a=b"1", extra=b"2")
    index(tmp_path, {"a": "m.safetensors"})
    with pytest.raises(SafetensorsError, match=r"'extra' in no file.*got m\.safetensors"):
        open_folder(tmp_path)
    index(tmp_path, {"a": "m.safetensors", "extra": "m.safetensors", "gone": "m.safetensors"})
    with pytest.raises(SafetensorsError, match=r"'gone' in m\.safetensors.*got no file"):
        open_folder(tmp_path)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    shard(tmp_path, "m1.safetensors", a=b"1")
    shard(tmp_path, "m2.safetensors", a=b"1", b=b"2")
    index(tmp_path, {"a": "m1.safetensors", "b": "m2.safetensors"})
    with pytest.raises(SafetensorsError, match=r"'a' in one file, got m1\.safetensors and m2"):
        open_folder(tmp_path)


def test_an_absent_shard_is_named(tmp_path: Path) -> None:
    index(tmp_path, {"a": "m.safetensors"})
    with pytest.raises(SafetensorsError, match=r"no m\.safetensors"):
        open_folder(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map":[]}', "[" * 100_000, '{"a":1,"a":2}']
)
def test_a_malformed_index_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(SafetensorsError, match=r"JSON in|weight_map"):
        open_folder(tmp_path)
