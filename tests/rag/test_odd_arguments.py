"""What cannot be meant is refused with an error of ours, at once, and nothing is changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from candle.errors import CandleError, FormatError, OptionError, StoreError
from candle.rag.chunk import chunk_text
from candle.rag.documents import MAX_ID
from candle.rag.embed import Embedder
from candle.rag.retriever import Retriever
from support.rag import HashingEmbedder

posix = pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX")


@pytest.mark.parametrize("name", [None, 3, b"kb", "", [], 1.5])
def test_a_name_is_a_text_or_a_path(name: Any) -> None:
    for load in (Retriever.load, Embedder.load):
        with pytest.raises(OptionError, match="a name or a path"):
            load(name)


@pytest.mark.parametrize("embedder", [None, 3, b"x", object()])
def test_an_embedder_is_one(tmp_path: Path, embedder: Any) -> None:
    with pytest.raises(OptionError):
        Retriever.create(tmp_path / "kb", embedder)


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "file/kb", None, 3])
def test_a_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch, path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("x", encoding="utf-8")
    with pytest.raises(OptionError):
        Retriever.create(path, embedder)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("ids", [None, 5, ["\ud800"], [None], b"x", {"a": 1}, [""], ["x" * 2000]])
def test_ids_to_delete_are_texts(retriever: Retriever, ids: Any) -> None:
    retriever.add_documents(["tea"])
    with pytest.raises(OptionError):
        retriever.delete(ids)
    assert len(retriever) == 1


@pytest.mark.parametrize(
    "document",
    [
        {"id": "x" * (MAX_ID + 1), "text": "tea"},
        {"id": 10**5000, "text": "tea"},
        {"text": "tea", "metadata": {"n": 10**5000}},
        {"text": "tea", "metadata": {"n": [float("inf")]}},
        {"text": "tea", "metadata": {"\ud800": 1}},
        {"text": "\udfff"},
    ],
    ids=lambda d: str(sorted(d)),
)
def test_what_cannot_be_kept_exactly_is_refused(
    retriever: Retriever, document: dict[str, Any]
) -> None:
    with pytest.raises(CandleError):
        retriever.add_documents([document])
    assert len(retriever) == 0


def test_an_id_of_the_greatest_length_works(retriever: Retriever) -> None:
    name = "é" * (MAX_ID // 2)
    retriever.add_documents([{"id": name, "text": "word " * 2000}])
    found = retriever.search("word", top_k=1)[0]
    assert found.id.startswith(name) and retriever.delete([found.id]) == 1
    assert retriever.delete(name) == 1 and len(retriever) == 0


@posix
def test_what_is_no_plain_file_is_listed_as_skipped(tmp_path: Path, retriever: Retriever) -> None:
    """A pipe would wait for ever, a device never ends, a dangling link holds nothing."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("tea", encoding="utf-8")
    (folder / "dangling.txt").symlink_to(folder / "gone.txt")
    (folder / "device.txt").symlink_to("/dev/zero")
    (folder / "elsewhere").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket.txt"))
        report = retriever.add_documents(folder)
    names = [Path(p).name for p in report.skipped]
    assert names == ["dangling.txt", "device.txt", "elsewhere", "pipe.txt", "socket.txt"]
    assert report.added == 1


@posix
def test_a_pipe_given_as_the_source_is_refused_and_not_waited_for(
    tmp_path: Path, retriever: Retriever
) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path / "pipe.txt", "/dev/zero"):
        with pytest.raises(OptionError, match="pipe"):
            retriever.add_documents(path)


def test_everything_is_refused_after_close(tmp_path: Path, embedder: HashingEmbedder) -> None:
    retriever = Retriever.create(tmp_path / "kb", embedder)
    retriever.close()
    retriever.close()
    for call in (
        retriever.compact,
        retriever.verify,
        lambda: retriever.add_documents(["tea"]),
        lambda: retriever.delete(["tea"]),
        lambda: retriever.search("tea"),
        lambda: len(retriever),
    ):
        with pytest.raises(StoreError, match="closed"):
            call()


@pytest.mark.parametrize("size", [1, 7, 50, 64, 4096])
def test_the_overlap_shrinks_with_the_chunk(size: int) -> None:
    chunks = chunk_text("one two three four five six seven " * 20, size)
    assert max(len(c.text) for c in chunks) <= size
    with pytest.raises(OptionError, match="overlap"):
        chunk_text("one", size, size)


FULL = """
import resource, sys
from candle.errors import CandleError
from candle.rag.retriever import Retriever
from support.rag import HashingEmbedder
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
retriever = Retriever.create(sys.argv[1], HashingEmbedder(256))
retriever.add_documents(["tea"])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    retriever.add_documents([f"text {i}" for i in range(3000)])
except CandleError as error:
    print(type(error).__name__, str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
retriever.verify()
print(len(retriever), retriever.search("tea")[0].text)
retriever.add_documents(["more"])
retriever.close()
"""


@posix
def test_a_full_disk_takes_nothing_back_that_was_there(tmp_path: Path) -> None:
    """A file that may not grow stands for the disk: StoreError, and all is as it was."""
    tests = Path(__file__).resolve().parents[1]
    env = {**os.environ, "PYTHONPATH": str(tests)}
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "kb"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("StoreError") and str(tmp_path / "kb") in first
    assert second == "1 tea"


def test_a_line_of_json_without_text_names_its_place(tmp_path: Path, retriever: Retriever) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "tea"}\n{"id": "x", "metadata": {}}\n', encoding="utf-8")
    with pytest.raises(FormatError, match=r"a\.jsonl:2: expected a text, got only id, metadata"):
        retriever.add_documents(file)
