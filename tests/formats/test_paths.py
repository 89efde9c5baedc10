"""Whatever is given for a path ends in an error of ours or of the system's, at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from candle.datasets.idx import read_idx
from candle.errors import CandleError, OptionError
from candle.formats import GgufFile, SafetensorsFile, open_folder, write_gguf
from candle.formats.atomic import atomic_file
from candle.formats.paths import as_path
from candle.llm.package import write_package as pack_model
from candle.models.bert import BertEncoder
from candle.package.manifest import Manifest
from candle.package.reader import PackageReader
from candle.package.store import Store
from candle.package.writer import write_package
from candle.rag.documents import read_documents
from candle.rag.index import VectorIndex
from candle.rag.package import build_package
from candle.rag.retriever import Retriever
from candle.tensor import Tensor
from candle.text import Tokenizer
from candle.weights import Weights, load_safetensors, save_safetensors
from support.rag import HashingEmbedder

ODD: list[Any] = ["a\0b", "\ud800", "", "x" * 5000, "/".join("y" * 40_000), b"x", None, 3, [], 1.5]
READERS: list[Callable[[Any], object]] = [
    load_safetensors,
    Weights.open,
    SafetensorsFile.open,
    GgufFile.open,
    open_folder,
    Tokenizer.from_file,
    VectorIndex.open,
    PackageReader.open,
    read_idx,
    BertEncoder.load,
    lambda path: list(read_documents(path)),
    lambda path: Store("store").install(path),
]
WRITERS: list[Callable[[Any], object]] = [
    lambda path: atomic_file(path).__enter__(),
    lambda path: save_safetensors(path, {"a": Tensor([1.0])}),
    lambda path: write_gguf(path, {}, {}),
    lambda path: VectorIndex(2).save(path),
    lambda path: write_package(path, Manifest("m", "1.0", "encoder"), {}),
    lambda path: pack_model("model.gguf", path),
    lambda path: build_package(["tea"], path, HashingEmbedder()),
    lambda path: Retriever.create(path, HashingEmbedder()),
]


@pytest.mark.parametrize("path", ODD, ids=lambda p: ascii(p)[:12])
def test_what_can_be_no_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in [*READERS, *WRITERS]:
        if call is BertEncoder.load and not isinstance(path, str):
            continue
        with pytest.raises(CandleError) as caught:
            call(path)
        assert len(str(caught.value)) < 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="devices of POSIX")
@pytest.mark.parametrize("call", READERS)
def test_a_device_and_a_pipe_are_not_read(tmp_path: Path, call: Callable[[Any], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        with pytest.raises((CandleError, NotADirectoryError)):
            call(path)


def test_a_name_of_many_bytes_is_an_error_too(tmp_path: Path) -> None:
    """255 characters may be 765 bytes, which only some systems take."""
    path = tmp_path / ("語" * 255)
    for call in READERS:
        with pytest.raises((CandleError, OSError)):
            call(path)


def test_an_ordinary_path_stays_as_it_is() -> None:
    for path in ("a", "./a b", Path("c/d"), "語" * 60):
        assert as_path(path, "open") == Path(path)
    with pytest.raises(OptionError, match=r"open: expected a path, got b'x'"):
        as_path(b"x", "open")


@pytest.mark.parametrize("tensors", [float("nan"), None, "x", [1], {"a": 1.0}, {1: Tensor([1.0])}])
def test_what_holds_no_tensors_is_not_saved(tmp_path: Path, tensors: Any) -> None:
    with pytest.raises(OptionError, match="save_safetensors"):
        save_safetensors(tmp_path / "a.safetensors", tensors)
    assert not list(tmp_path.iterdir())
