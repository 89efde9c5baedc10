"""Knowledge bases as packages: written, installed, changed, added to others."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest

from candle.errors import CandleError, NameNotFoundError, OptionError, PackageError, StoreError
from candle.package.reader import PackageReader
from candle.package.store import Store as PackageStore
from candle.rag.knowledge import overlay_folder
from candle.rag.package import build_package, package_name, write_package
from candle.rag.retriever import Retriever
from candle.rag.store import BaseChangedWarning
from support.rag import HashingEmbedder

TEXTS = [{"id": f"d{i}", "text": f"item number {i}", "metadata": {"i": i}} for i in range(1200)]


@pytest.fixture
def package(tmp_path: Path, embedder: HashingEmbedder) -> Path:
    build_package(TEXTS, tmp_path / "wiki_en.candle", embedder)
    return tmp_path / "wiki_en.candle"


def best(retriever: Retriever, query: str) -> str:
    return retriever.search(query, top_k=1)[0].id


def test_a_package_holds_a_database_a_segment_and_the_model(
    package: Path, embedder: HashingEmbedder
) -> None:
    with PackageReader.open(package) as reader:
        manifest = reader.manifest
        assert (manifest.name, manifest.kind) == ("wiki_en", "knowledge-base")
        assert manifest.embedder is not None
        assert manifest.embedder.name == "hashing"
        assert manifest.embedder.digest == embedder.digest
        assert manifest.embedder.dimension == embedder.dimension
        first, second = (entry.path for entry in manifest.entries)
        assert first == "documents.sqlite" and second.startswith("index/00000001-")
        reader.verify()


def test_the_bytes_do_not_depend_on_history_or_folder(
    tmp_path: Path, package: Path, embedder: HashingEmbedder
) -> None:
    with Retriever.create(tmp_path / "other", embedder) as retriever:
        shuffled = random.Random(1).sample(TEXTS, len(TEXTS))
        retriever.add_documents([{"id": "gone", "text": "x"}, *shuffled[:500]])
        for start in range(500, 1200, 100):
            retriever.add_documents(shuffled[start : start + 100])
        retriever.delete(["gone"])
        write_package(retriever, tmp_path / "again" / "wiki_en.candle")
    assert (tmp_path / "again" / "wiki_en.candle").read_bytes() == package.read_bytes()


def test_the_database_in_it_is_sound_and_compact(tmp_path: Path, package: Path) -> None:
    with PackageReader.open(package) as reader:
        path = reader.extract("documents.sqlite", tmp_path / "x.sqlite")
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)
    connection.close()


def test_installed_it_is_found_by_name_and_nothing_is_written(
    package: Path, embedder: HashingEmbedder, home: Path
) -> None:
    PackageStore().install(package)
    before = sorted(str(p) for p in home.rglob("*"))
    with Retriever.load("wiki_en", embedder) as retriever:
        assert len(retriever) == 1200
        assert best(retriever, "item number 77") == "d77"
        retriever.verify()
    assert sorted(str(p) for p in home.rglob("*")) == before


def test_a_package_is_read_without_installing_it_but_not_changed(
    package: Path, embedder: HashingEmbedder, home: Path
) -> None:
    with Retriever.load(package, embedder) as retriever:
        folder = retriever.path.parent
        assert best(retriever, "item number 77") == "d77"
        retriever.verify()
        with pytest.raises(StoreError, match="candle install"):
            retriever.add_documents(["more"])
        assert len(retriever) == 1200
    assert not folder.exists() and not home.exists()


def test_changes_to_an_installed_one_go_to_an_overlay(
    package: Path, embedder: HashingEmbedder, home: Path
) -> None:
    installed = PackageStore().install(package)
    layers = {e.path: installed.path(e.path).read_bytes() for e in installed.manifest.entries}
    with (
        Retriever.load("wiki_en", embedder) as reader,
        Retriever.load("wiki_en", embedder) as retriever,
    ):
        assert len(reader) == 1200
        retriever.add_documents([{"id": "new", "text": "quite another thing"}])
        retriever.delete(["d77"])
        for opened in (retriever, reader):
            assert len(opened) == 1200
            assert best(opened, "quite another thing") == "new"
            assert best(opened, "item number 77") != "d77"
            assert opened.path == overlay_folder("wiki_en") / "documents.sqlite"
    for name, data in layers.items():
        assert installed.path(name).read_bytes() == data
    PackageStore().verify("wiki_en")
    with Retriever.load("wiki_en", embedder) as retriever:
        assert best(retriever, "quite another thing") == "new"
        retriever.verify()


def test_the_segments_of_an_overlay_take_no_second_space(
    package: Path, embedder: HashingEmbedder
) -> None:
    installed = PackageStore().install(package)
    with Retriever.load("wiki_en", embedder) as retriever:
        retriever.add_documents(["more"])
    (linked,) = (overlay_folder("wiki_en") / "index").iterdir()
    assert os.path.samefile(linked, installed.path(f"index/{linked.name}"))


def test_changes_outlive_the_package(package: Path, embedder: HashingEmbedder) -> None:
    store = PackageStore()
    store.install(package)
    with Retriever.load("wiki_en", embedder) as retriever:
        retriever.add_documents([{"id": "new", "text": "quite another thing"}])
    store.remove("wiki_en")
    store.gc()
    with Retriever.load("wiki_en", embedder) as retriever:
        assert len(retriever) == 1201
        assert best(retriever, "item number 5") == "d5"
        retriever.verify()


def test_an_overlay_of_another_version_says_so(
    tmp_path: Path, package: Path, embedder: HashingEmbedder
) -> None:
    PackageStore().install(package)
    with Retriever.load("wiki_en", embedder) as retriever:
        retriever.add_documents(["more"])
        write_package(retriever, tmp_path / "v2" / "wiki_en.candle", version="2.0.0")
    PackageStore().install(tmp_path / "v2" / "wiki_en.candle")
    with pytest.warns(BaseChangedWarning, match="remove that folder"):
        Retriever.load("wiki_en", embedder).close()


def test_an_interrupted_copy_of_the_base_changes_nothing(
    package: Path, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    PackageStore().install(package)
    with Retriever.load("wiki_en", embedder) as retriever:
        with monkeypatch.context() as patch:
            patch.setattr("candle.rag.store._sync_file", lambda path: 1 // 0)
            with pytest.raises(ZeroDivisionError):
                retriever.add_documents(["more"])
        assert len(retriever) == 1200
        retriever.add_documents(["more"])
        assert len(retriever) == 1201


def test_where_links_cannot_be_made_segments_are_copied(
    package: Path, embedder: HashingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    PackageStore().install(package)
    monkeypatch.setattr("os.link", refuse)
    with Retriever.load("wiki_en", embedder) as retriever:
        retriever.add_documents(["more"])
        retriever.verify()
        assert len(retriever) == 1201


@pytest.mark.parametrize("as_folder", [False, True])
def test_one_added_to_another_keeps_ids_and_vectors(
    tmp_path: Path, package: Path, as_folder: bool
) -> None:
    embedder = HashingEmbedder()
    path = package
    if as_folder:
        path = tmp_path / "folder"
        with Retriever.create(path, embedder) as other:
            other.add_documents(TEXTS[:1100])
            other.delete(["d0"])
            other.add_documents([TEXTS[0], *TEXTS[1100:]])
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        retriever.add_documents([{"id": "d5", "text": "an old five"}, TEXTS[6]])
        before = embedder.embedded
        report = retriever.add_documents(path)
        assert (report.added, report.updated, report.unchanged) == (1198, 1, 1)
        assert embedder.embedded == before
        assert len(retriever) == 1200
        assert best(retriever, "item number 77") == "d77"
        assert best(retriever, "item number 5") == "d5"
        assert retriever.add_documents(str(path)).unchanged == 1200


def test_one_made_by_another_model_is_embedded_again(tmp_path: Path, package: Path) -> None:
    embedder = HashingEmbedder(48, max_tokens=4, name="other")
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        report = retriever.add_documents(package)
        assert report.added == 1200 and embedder.embedded >= 1200
        assert len(report.split) == 1200  # a window of two words
        assert retriever.delete(["d77"]) == 1


def test_a_damaged_package_adds_nothing(tmp_path: Path, package: Path) -> None:
    data = bytearray(package.read_bytes())
    data[len(data) - 100_000] ^= 1
    package.write_bytes(data)
    with Retriever.create(tmp_path / "kb", HashingEmbedder()) as retriever:
        with pytest.raises(PackageError):
            retriever.add_documents(package)
        assert len(retriever) == 0


def test_cut_packages_raise_only_our_errors(tmp_path: Path, package: Path) -> None:
    """chroma#7238 (R10)."""
    data = package.read_bytes()
    for percent in range(0, 100, 3):
        package.write_bytes(data[: len(data) * percent // 100])
        with pytest.raises(CandleError):
            Retriever.load(package, HashingEmbedder())


def test_a_package_of_another_kind_is_named(tmp_path: Path) -> None:
    from candle.package.manifest import Manifest
    from candle.package.writer import write_package as write_entries

    path = tmp_path / "model.candle"
    write_entries(path, Manifest(name="model", version="1", kind="model"), {"a": b"b"})
    with pytest.raises(PackageError, match="knowledge-base"):
        Retriever.load(path)
    PackageStore().install(path)
    with pytest.raises(NameNotFoundError, match="got model at"):
        Retriever.load("model")


def test_an_empty_knowledge_base_is_a_package_too(tmp_path: Path) -> None:
    with Retriever.create(tmp_path / "kb", HashingEmbedder()) as empty:
        write_package(empty, tmp_path / "empty.candle")
    PackageStore().install(tmp_path / "empty.candle")
    with Retriever.load("empty", HashingEmbedder()) as retriever:
        assert retriever.search("anything") == []
        retriever.add_documents(["first"])
        assert len(retriever) == 1


@pytest.mark.parametrize("documents", [[], [" ", "\n"], "folder"])
def test_nothing_to_find_makes_no_package(
    tmp_path: Path, embedder: HashingEmbedder, documents: list[str] | str
) -> None:
    """An empty folder or a wrong one: an error that says what was seen, and no file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "picture.png").write_bytes(b"x")
    source = folder if documents == "folder" else documents
    with pytest.raises(OptionError, match="documents with text"):
        build_package(source, tmp_path / "out.candle", embedder)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]


@pytest.mark.parametrize(
    "file, name",
    [("Wiki EN.candle", "wiki-en"), ("a.b.candle", "a.b"), ("_x_.candle", "x"), ("É1.candle", "1")],
)
def test_the_stem_of_the_file_is_the_name(file: str, name: str) -> None:
    assert package_name(Path(file)) == name


def test_a_file_that_gives_no_name_is_refused_first(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    for file in ("kb.zip", "文書.candle"):
        with pytest.raises(OptionError):
            build_package(["text"], tmp_path / file, embedder)
    assert embedder.embedded == 0


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        build_package(["text", 5], tmp_path / "out" / "kb.candle", HashingEmbedder())
    assert list((tmp_path / "out").iterdir()) == []
