"""Manifests and requirements."""

from __future__ import annotations

import time
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from candle.errors import PackageError, RequirementError
from candle.package.format import MAX_DEPTH, MAX_ENTRIES, MAX_PATH
from candle.package.manifest import (
    Embedder,
    Entry,
    Manifest,
    created_by,
    suggest_name,
)
from candle.package.requirements import Requirements

FULL = Manifest(
    name="wiki_en",
    version="1.2.0rc1",
    kind="knowledge-base",
    license="CC-BY-SA-4.0",
    description='Ten thousand "introductions" — 維基',
    created_by="candle 0.1.0",
    requirements=Requirements(
        candle=">=0.1", python=">=3.11", cuda=">=11.7,<12", memory="512 MiB", cpu_features=("avx2",)
    ),
    embedder=Embedder("all-minilm-l6-v2", "sha256:" + "ab" * 32, 384),
    entries=(Entry("a", 0, "0" * 64), Entry("b/c", 1 << 40, "f" * 64)),
)


def test_a_manifest_makes_the_round_trip() -> None:
    assert Manifest.from_toml(FULL.to_toml(), "test") == FULL
    small = Manifest("m", "0", "encoder")
    assert Manifest.from_toml(small.to_toml(), "test") == small


def test_the_toml_is_what_the_page_says() -> None:
    """docs/reference/package-format.md."""
    table = tomllib.loads(FULL.to_toml().decode())
    assert table["format"] == 1
    assert table["requirements"] == {
        "candle": ">=0.1",
        "python": ">=3.11",
        "cuda": ">=11.7,<12",
        "memory": "512 MiB",
        "cpu_features": ["avx2"],
    }
    assert table["embedder"]["dimension"] == 384
    assert table["entries"][1] == {"path": "b/c", "size": 1 << 40, "sha256": "f" * 64}


def test_a_manifest_cannot_be_made_wrong() -> None:
    good = {"name": "m", "version": "1.0", "kind": "encoder"}
    for change in (
        {"name": "M"},
        {"version": "1.0-beta"},
        {"kind": "Encoder"},
        {"kind": "knowledge-base"},
        {"description": "two\nlines"},
        {"entries": (Entry("b", 0, "0" * 64), Entry("a", 0, "0" * 64))},
        {"entries": (Entry("a", -1, "0" * 64),)},
    ):
        with pytest.raises(PackageError):
            Manifest(**{**good, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("wiki_en", "wiki_en"),
        ("Wiki EN (2024)", "wiki-en-2024"),
        ("..", "model"),
        ("日本", "model"),
        ("con", "con-1"),
        ("x" * 100, "x" * 64),
        ("a" * 63 + " b", "a" * 63),
    ],
)
def test_a_file_name_suggests_a_package_name(text: str, name: str) -> None:
    assert suggest_name(text) == name
    Manifest(suggest_name(text), "1", "encoder")


def test_this_candle_is_named() -> None:
    assert created_by().startswith("candle ")


def _letters(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in str(number))


HOSTILE = {
    "dotted_keys": "\n".join("a" + ".a" * 4000 + f".b{i} = 1" for i in range(512)),
    "deep_tables": "\n".join("[" + "a." * 4000 + f"b{i}]" for i in range(512)),
    "inline_tables": "a = [\n" + "{a={a={a={}}}},\n" * 200_000 + "]",
    "open_string": 'a = """\n' + "\\\n" * 1_000_000,
    "many_keys": "\n".join(f"k{i} = {i}" for i in range(300_000)),
    "many_tables": "\n".join(f"[{_letters(i)}]" for i in range(400_000)),
    "array_of_tables": "[[e]]\n" * 600_000,
    "comments": "#\n" * 2_000_000,
    "quotes": "a = " + '"' * 4_000_000,
    "backslashes": 'a = "' + "\\" * 4_000_000,
    "list_of_strings": "a = [" + '"a", ' * 800_000 + "]",
    "open_list_of_strings": "a = [" + '"a", ' * 800_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_manifest_takes_long_to_refuse(name: str) -> None:
    """Time grows with the size, not with its square; the longest took 0.7 s."""
    text = HOSTILE[name].encode()[: 1 << 20]
    begin = time.process_time()
    with pytest.raises(PackageError):
        Manifest.from_toml(text, "test")
    assert time.process_time() - begin < 5


def test_ten_thousand_entries_are_read() -> None:
    entries = tuple(Entry(f"e{i:04}", i, f"{i:064x}") for i in range(9_999))
    manifest = Manifest("m", "1", "encoder", entries=entries)
    assert Manifest.from_toml(manifest.to_toml(), "test").entries == entries
    with pytest.raises(PackageError, match="fewer than 10000"):
        Manifest("m", "1", "encoder", entries=(*entries, Entry("f", 0, "0" * 64)))


DETECTED: dict[str, Any] = {
    "candle": "0.1.0",
    "python": "3.14.0rc1",
    "cuda": "12.4",
    "memory": 1 << 30,
    "cpu_features": {"avx2", "fma"},
}


@pytest.mark.parametrize(
    ("requirements", "says"),
    [
        (Requirements(), ""),
        (Requirements(candle=">=0.1", python=">=3.11", memory="1 GiB"), ""),
        (Requirements(cpu_features=("avx2", "fma")), ""),
        (Requirements(cuda=">=11.7,<12"), "cuda >=11.7,<12 is needed, 12.4 is here"),
        (Requirements(memory="2 GiB"), "2 GiB of memory are needed, 1024 MiB is free"),
        (Requirements(cpu_features=("avx512f",)), "avx512f are needed, here are avx2, fma"),
    ],
)
def test_requirements_are_held_against_the_machine(requirements: Requirements, says: str) -> None:
    found = "; ".join(requirements.unmet(DETECTED))
    assert found == "" if not says else says in found


def test_all_that_is_lacking_is_said_at_once() -> None:
    asked = Requirements(cuda=">=12", memory="64 GiB", cpu_features=("amx",), python="<3")
    with pytest.raises(RequirementError) as caught:
        asked.require("package m", {"python": "3.12.1", "memory": None})
    for part in ("cuda >=12 is needed, none is here", "64 GiB", "amx", "python <3"):
        assert part in str(caught.value)


PAGE = Path(__file__).parents[2] / "docs/reference/package-format.md"


def test_the_example_on_the_page_is_a_manifest() -> None:
    text = PAGE.read_text("utf-8").split("```toml\n")[1].split("```")[0]
    read = Manifest.from_toml(text.replace("…64 hex digits…", "0" * 64).encode(), "page")
    assert read.to_toml().decode() == text.replace("…64 hex digits…", "0" * 64)


def test_the_page_names_every_key_and_limit() -> None:
    text = PAGE.read_text("utf-8")
    keys = {f.name for record in (Manifest, Entry, Requirements) for f in fields(record)}
    assert [key for key in keys if f"`{key}`" not in text] == []
    for limit in (f"{MAX_ENTRIES:,} entries", f"{MAX_PATH} characters", f"{MAX_DEPTH} parts"):
        assert limit in text
