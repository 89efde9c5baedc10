"""Generator packages: written, used in place, installed and loaded by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from candle.errors import FormatError, NameNotFoundError, PackageError
from candle.formats import write_gguf
from candle.llm.package import write_package
from candle.package.manifest import Manifest
from candle.package.names import resolve
from candle.package.store import Store
from candle.package.writer import write_package as write_entries
from candle_llm import Generator


@pytest.fixture
def smol() -> Path:
    try:
        return resolve("smollm2-135m-instruct").path
    except NameNotFoundError:
        pytest.skip("SmolLM2 is absent: python tools/models.py test")


@pytest.mark.model
def test_a_packed_model_answers_alike_from_file_package_and_store(
    smol: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANDLE_HOME", str(tmp_path / "home"))
    package = tmp_path / "Tiny Model.candle"
    manifest = write_package(smol, package)
    found = (manifest.name, manifest.kind, manifest.license)
    assert found == ("tiny-model", "generator", "apache-2.0")
    Store().install(package)
    texts = {
        str(Generator.load(name).generate("The capital of France is", max_tokens=8))
        for name in (smol, package, "tiny-model")
    }
    assert len(texts) == 1


def test_a_model_that_cannot_run_is_not_packed(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"general.architecture": "mamba"}, {})
    with pytest.raises(FormatError, match="mamba"):
        write_package(tmp_path / "m.gguf", tmp_path / "m.candle")
    assert not (tmp_path / "m.candle").exists()


def test_a_package_of_another_kind_is_no_generator(tmp_path: Path) -> None:
    manifest = Manifest(name="kb", version="1", kind="encoder")
    write_entries(tmp_path / "kb.candle", manifest, {"x": b"1"})
    with pytest.raises(PackageError, match="generator"):
        Generator.load(tmp_path / "kb.candle")
