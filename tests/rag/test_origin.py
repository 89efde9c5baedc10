"""Which model a knowledge base is opened with: a path in its file is never followed."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tiny import make_encoder

from candle.errors import NameNotFoundError, OptionError, StoreError
from candle.package.manifest import Manifest
from candle.package.store import Store
from candle.package.writer import write_package as write_entries
from candle.rag import unpacked
from candle.rag.embed import Embedder
from candle.rag.package import build_package, write_package
from candle.rag.retriever import Retriever
from candle.rag.schema import DATABASE

DIGEST = "embedder_digest"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_encoder(tmp_path / "models" / "mine")


def set_setting(database: Path, key: str, value: str) -> None:
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE settings SET value = ? WHERE key = ?", (value, key))
        connection.commit()


def packed(folder: Path, output: Path, kind: str = "encoder", leave: str = "") -> Path:
    """A package of the files of a model."""
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    entries: dict[str, Any] = {k: v for k, v in found.items() if k != leave}
    write_entries(output, Manifest(output.stem, "1.0", kind), entries)
    return output


def test_ones_own_is_opened_again_with_the_model_from_its_path(tmp_path: Path, model: Path) -> None:
    Retriever.create(tmp_path / "kb", str(model)).close()
    with Retriever.load(tmp_path / "kb") as again:
        assert again.embedder.name == str(model)
        assert again.store.settings.embedder == "mine"


@pytest.mark.parametrize("form", ["{}", "./mine", "mine", "../models/mine", "file://{}", "~/mine"])
def test_a_path_in_the_file_is_not_followed(
    tmp_path: Path, model: Path, home: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Even one that leads to the very model, from the folder in which the user stands."""
    Retriever.create(tmp_path / "kb", model).close()
    for note in (home / "embedders").iterdir():
        note.unlink()
    monkeypatch.chdir(model.parent)
    set_setting(tmp_path / "kb" / DATABASE, "embedder", form.format(model))
    with pytest.raises(NameNotFoundError, match="embedder=PATH"):
        Retriever.load(tmp_path / "kb")
    with pytest.raises(NameNotFoundError, match="embedder=PATH"):
        Retriever.rebuild(tmp_path / "kb")
    with Retriever.load(tmp_path / "kb", embedder=model) as opened:
        assert opened.embedder.name == str(model)
    Retriever.load(tmp_path / "kb").close()  # what the user said is remembered


def test_a_package_says_no_path(tmp_path: Path, model: Path, home: Path) -> None:
    build_package(["tea"], tmp_path / "a.candle", model)
    Retriever.create(tmp_path / "kb", model).close()
    with Retriever.load(tmp_path / "kb") as opened:
        write_package(opened, tmp_path / "b.candle")
    for file in ("a.candle", "b.candle"):
        assert str(model).encode() not in (tmp_path / file).read_bytes()
    Store().install(tmp_path / "a.candle")
    Retriever.load("a").close()  # on the machine that made it
    for note in (home / "embedders").iterdir():
        note.unlink()
    with pytest.raises(NameNotFoundError, match=r"'mine'.*embedder=PATH"):
        Retriever.load("a")
    Retriever.load("a", embedder=model).close()


def test_a_digest_in_the_file_is_no_path_and_no_other_model(tmp_path: Path, model: Path) -> None:
    Retriever.create(tmp_path / "kb", model).close()
    other = make_encoder(tmp_path / "models" / "other", seed=2)
    Retriever.create(tmp_path / "kb2", other).close()
    set_setting(tmp_path / "kb" / DATABASE, DIGEST, "sha256:../../x")
    with pytest.raises(NameNotFoundError):
        Retriever.load(tmp_path / "kb")
    set_setting(tmp_path / "kb" / DATABASE, DIGEST, Embedder.load(other).digest)
    with Retriever.load(tmp_path / "kb") as opened:
        assert opened.embedder.name == str(other)


def test_a_remembered_model_that_changed_is_refused_and_rebuilt(
    tmp_path: Path, model: Path
) -> None:
    with Retriever.create(tmp_path / "kb", model) as retriever:
        retriever.add_documents(["green tea"])
    other = make_encoder(tmp_path / "models" / "other", seed=2)
    (model / "model.safetensors").unlink()
    (other / "model.safetensors").rename(model / "model.safetensors")
    with pytest.raises(StoreError, match="rebuild"):
        Retriever.load(tmp_path / "kb")
    with Retriever.rebuild(tmp_path / "kb") as retriever:
        assert retriever.search("green tea")[0].score == pytest.approx(1)


def test_where_nothing_can_be_noted_all_else_works(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    monkeypatch.setenv("CANDLE_HOME", str(tmp_path / "file" / "home"))
    Retriever.create(tmp_path / "kb", model).close()
    Retriever.load(tmp_path / "kb", model).close()
    with pytest.raises(NameNotFoundError, match="embedder=PATH"):
        Retriever.load(tmp_path / "kb")


def test_an_empty_name_is_no_embedder(tmp_path: Path, model: Path) -> None:
    Retriever.create(tmp_path / "kb", model).close()
    with pytest.raises(OptionError, match="a name or a path"):
        Retriever.load(tmp_path / "kb", embedder="")


def test_an_encoder_in_a_package_is_that_encoder(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the file, installed, and installed where links cannot be made."""
    plain = Embedder.load(model)
    file = packed(model, tmp_path / "enc.candle")
    Store().install(file)
    wanted = plain.embed(["green tea"]).to_vec()

    def refuse(*_: object) -> None:
        raise OSError("no links here")

    for name in (file, str(file), "enc", "ENC"):
        found = Embedder.load(name)
        assert found.digest == plain.digest
        assert found.embed(["green tea"]).to_vec() == wanted
    monkeypatch.setattr(unpacked.os, "symlink", refuse)
    assert Embedder.load("enc").embed(["green tea"]).to_vec() == wanted
    Retriever.create(tmp_path / "kb", "enc").close()
    Retriever.load(tmp_path / "kb").close()
    Retriever.create(tmp_path / "kb2", file).close()
    Retriever.load(tmp_path / "kb2").close()


def test_a_package_without_an_encoder_is_named(tmp_path: Path, model: Path) -> None:
    for kind, leave, says in (
        ("encoder", "config.json", "config.json, tokenizer.json and model.safetensors"),
        ("encoder", "tokenizer.json", "config.json, tokenizer.json and model.safetensors"),
        ("encoder", "model.safetensors", "config.json, tokenizer.json and model.safetensors"),
        ("classifier", "", "a package of kind encoder, got classifier"),
    ):
        file = packed(model, tmp_path / "enc.candle", kind, leave)
        with pytest.raises(NameNotFoundError, match=says):
            Embedder.load(file)
    build_package(["tea"], tmp_path / "kb.candle", model)
    with pytest.raises(NameNotFoundError, match="of kind encoder, got knowledge-base"):
        Embedder.load(tmp_path / "kb.candle")


def test_a_query_of_a_lone_surrogate_is_an_error(tmp_path: Path, model: Path) -> None:
    with Retriever.create(tmp_path / "kb", model) as retriever:
        retriever.add_documents(["tea"])
        for query in ("\ud800", "tea \udfff"):
            with pytest.raises(OptionError, match=r"lone surrogates, got U\+D"):
                retriever.search(query)
