"""install, list, show, verify, remove, gc."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from candle import _native
from candle.cli import exits

if TYPE_CHECKING:
    from running import Program


def test_a_life_of_a_package(candle: Program, package: Path) -> None:
    assert candle("install", package).stdout.startswith("notes 1.0.0 installed (")
    assert "was installed already" in candle("install", package).stdout
    assert candle("list").stdout.split()[:3] == ["notes", "1.0.0", "knowledge-base"]
    assert candle("verify", "notes").stdout == "notes 1.0.0: whole\n"
    assert candle("remove", "notes").stdout == "notes 1.0.0 removed\n"
    assert candle("gc").stdout.endswith(" freed\n")
    assert candle("list").stdout == ""
    layers = candle.cwd / "home" / "layers"
    assert not [p for p in layers.rglob("*") if p.is_file()]


def test_install_under_another_name(candle: Program, package: Path) -> None:
    (made,) = candle.lines("install", package, "--as", "other", "--json")
    assert (made["name"], made["was_present"]) == ("other", False)
    (again,) = candle.lines("install", package, "--as", "other", "--json")
    assert again["was_present"]
    assert [p["name"] for p in candle.lines("list", "--json")] == ["other"]


def test_other_contents_need_replace(candle: Program, package: Path, encoder: Path) -> None:
    (candle.cwd / "x.jsonl").write_text('{"text": "tea"}\n', encoding="utf-8")
    other = ("--input=x.jsonl", "--output=x.candle", "--name=notes", "--model", encoder)
    candle("embed", *other)
    candle("install", package)
    done = candle("install", "x.candle", code=exits.FAILED)
    assert "other contents" in done.stderr
    assert "--replace" in done.stderr and "--as" in done.stderr
    candle("install", "x.candle", "--replace")
    (shown,) = candle.lines("show", "notes", "--json")
    (file,) = candle.lines("show", "x.candle", "--json")
    assert shown["digest"] == file["digest"]


def test_show_tells_kind_model_and_entries(candle: Program, package: Path) -> None:
    (shown,) = candle.lines("show", package, "--json")
    assert shown["kind"] == "knowledge-base"
    assert shown["embedder"]["name"] == "tiny-bert" and shown["embedder"]["dimension"] == 32
    assert shown["bytes"] == sum(entry["size"] for entry in shown["entries"])
    text = candle("show", package).stdout
    assert "documents.sqlite" in text and "tiny-bert" in text


def test_a_name_that_no_package_can_have_is_a_usage_error(
    candle: Program, package: Path, encoder: Path
) -> None:
    """It is told before anything is embedded."""
    for name in ("../x", "KB", "a" * 65):
        done = candle("install", package, f"--as={name}", code=exits.USAGE)
        assert "expected a name of 1 to 64" in done.stderr
        common = ("embed", f"--model={encoder}", "--input=nosuch.jsonl", "--output=a.candle")
        assert "'--name'" in candle(*common, f"--name={name}", code=exits.USAGE).stderr
    assert list(candle.cwd.iterdir()) == []


def test_a_damaged_file_under_a_taken_name_changes_nothing(candle: Program, package: Path) -> None:
    candle("install", package)
    whole = candle("show", "notes", "--json").stdout
    (candle.cwd / "cut.candle").write_bytes(package.read_bytes()[:300])
    done = candle("install", "cut.candle", "--as=notes", "--replace", code=exits.FAILED)
    assert "the file is cut off" in done.stderr
    assert candle("show", "notes", "--json").stdout == whole
    candle("verify", "notes")


def test_damage_is_found_and_nothing_is_installed(candle: Program, package: Path) -> None:
    data = bytearray(package.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = candle.cwd / "damaged.candle"
    damaged.write_bytes(data)
    assert candle("verify", damaged, code=exits.FAILED).stderr.startswith("error: ")
    candle("install", damaged, code=exits.FAILED)
    assert candle("list").stdout == ""
    (candle.cwd / "text.candle").write_text("hello", encoding="utf-8")
    assert candle("install", "text.candle", code=exits.FAILED).stderr.count("\n") <= 2
    candle("install", "nosuch.candle", code=exits.NOT_FOUND)


def test_a_name_that_leads_elsewhere_is_a_usage_error(candle: Program, package: Path) -> None:
    candle("install", package)
    for name in ("../..", "notes/", "."):
        for command in ("show", "verify", "remove"):
            assert "expected a name of" in candle(command, name, code=exits.USAGE).stderr
    assert candle("verify", "NOTES").stdout == "notes 1.0.0: whole\n"


@pytest.mark.skipif(sys.platform != "linux", reason="file names of any bytes")
def test_a_file_name_of_other_bytes(candle: Program, package: Path) -> None:
    name = os.fsdecode(b"caf\xe9.candle")
    (candle.cwd / name).write_bytes(package.read_bytes())
    assert candle("verify", name).stdout == "caf\\udce9.candle: whole\n"
    (shown,) = candle.lines("show", name, "--json")
    assert shown["where"].endswith(name)


def test_names_of_what_is_not_installed(candle: Program, package: Path) -> None:
    candle("install", package)
    for command in ("show", "verify", "remove"):
        done = candle(command, "note", code=exits.NOT_FOUND)
        assert done.stderr.startswith("error: ")
    assert "notes" in candle("show", "note", code=exits.NOT_FOUND).stderr
    candle("remove", "notes", "9.9", code=exits.NOT_FOUND)
    candle("remove", "notes", "1.0.0")


def test_list_is_empty_and_makes_no_home(candle: Program) -> None:
    done = candle("list")
    assert done.stdout == "" and "nothing is installed" in done.stderr
    assert candle("list", "--json").stdout == ""
    assert not (candle.cwd / "home").exists()


def test_doctor_tells_what_was_chosen_and_why(candle: Program, package: Path) -> None:
    candle("install", package)
    env = {"CANDLE_ISA": "scalar", "CANDLE_NUM_THREADS": "2", "CANDLE_BINDING": "abi"}
    (facts,) = candle.lines("doctor", "--json", env=env)
    kernels = facts["kernels"]
    assert (kernels["isa"], kernels["isa_why"]) == ("scalar", "CANDLE_ISA asks for it")
    assert (kernels["threads"], kernels["threads_why"]) == (2, "CANDLE_NUM_THREADS")
    assert kernels["binding"] == "abi" and "scalar" in kernels["isas"]
    assert facts["store"]["packages"][0]["name"] == "notes"
    assert {m["name"] for m in facts["models"]} >= {"all-minilm-l6-v2", "smollm2-135m-instruct"}
    assert facts["machine"]["usable_cpus"] >= 1 and facts["problems"] == []
    text = candle("doctor").stdout
    assert "installed packages:" in text and "notes" in text


def test_doctor_calls_a_setting_that_cannot_be_met_a_problem(candle: Program) -> None:
    done = candle("doctor", code=exits.FAILED, env={"CANDLE_ISA": "avx9000"})
    assert "problem: CANDLE_ISA=avx9000 is none of" in done.stdout
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("kernels "))
    assert f"{_native.isa_list()[-1]}: used, since CANDLE_ISA=avx9000 is none of these" in line
    (facts,) = candle.lines("doctor", "--json", code=exits.FAILED, env={"CANDLE_ISA": "avx9000"})
    assert len(facts["problems"]) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_doctor_reports_a_home_that_cannot_be_read(candle: Program) -> None:
    home = candle.cwd / "home"
    home.mkdir(mode=0)
    try:
        if os.access(home, os.R_OK):
            pytest.skip("this user may read everything")
        (facts,) = candle.lines("doctor", "--json", code=exits.FAILED)
        assert any(str(home) in problem for problem in facts["problems"])
    finally:
        home.chmod(0o700)


def test_doctor_names_a_damaged_package(candle: Program, package: Path) -> None:
    candle("install", package)
    (manifest,) = (candle.cwd / "home" / "packages").rglob("manifest.toml")
    manifest.write_text("format = 7", encoding="utf-8")
    (facts,) = candle.lines("doctor", "--json", code=exits.FAILED)
    assert "notes" in json.dumps(facts["problems"])
