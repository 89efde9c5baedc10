"""`candle search` and `candle ask`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from candle.cli import exits

if TYPE_CHECKING:
    from running import Program


def test_results_for_people_and_for_programs(installed: Program) -> None:
    text = installed("search", "notes", "Green tea is steeped in water", "--top-k=1").stdout
    assert text == "1.000  tea\n       Green tea is steeped in water\n\n"
    found = installed.lines("search", "notes", "Green tea", "--top_k", "3", "--json")
    assert found[0]["id"] == "tea" and len(found) == 3
    assert list(found[0]) == ["score", "scores", "id", "document", "text", "metadata"]
    assert found[0]["scores"] == {"dense": found[0]["score"]}
    assert [f["score"] for f in found] == sorted((f["score"] for f in found), reverse=True)


def test_fewer_than_asked_for_is_no_error(installed: Program) -> None:
    """hnswlib#444: a filter leaves two of three."""
    found = installed.lines("search", "notes", "tea", "--top-k=9", "--filter=lang=en", "--json")
    assert {f["id"] for f in found} == {"qc", "tea"}


def test_filters_take_json_and_plain_words(installed: Program) -> None:
    common = ("search", "notes", "tea", "--json", "--top-k=9")
    (one,) = installed.lines(*common, "--filter", 'year={"$gte": 2020}')
    (same,) = installed.lines(*common, "--filter", "year=2024", "--filter", 'lang="en"')
    assert one["id"] == same["id"] == "qc"
    for bad in ("lang", "=en"):
        installed(*common, "--filter", bad, code=exits.USAGE)
    installed(*common, "--filter=lang=en", "--filter=lang=zh", code=exits.USAGE)
    installed(*common, "--filter", 'year={"$nosuch": 1}', code=exits.USAGE)


def test_nothing_found_is_nothing_on_stdout(installed: Program) -> None:
    done = installed("search", "notes", "tea", "--filter=lang=xx")
    assert (done.stdout, done.stderr) == ("", "nothing found\n")
    assert installed("search", "notes", "  ", "--json").stdout == ""


def test_a_file_and_a_folder_are_found_by_path(installed: Program, package: Path) -> None:
    (found,) = installed.lines("search", package, "Green tea", "--top-k=1", "--json")
    assert found["id"] == "tea"


def test_bad_counts_are_usage_errors(installed: Program) -> None:
    for count in ("0", "-1", "x", "1.5"):
        done = installed("search", "notes", "tea", f"--top-k={count}", code=exits.USAGE)
        assert done.stdout == ""


def test_control_characters_reach_a_pipe_as_they_are(candle: Program, encoder: Path) -> None:
    """Only a terminal is protected; a program gets the text itself."""
    (candle.cwd / "x.jsonl").write_text(
        json.dumps({"text": "tea\x1b[31m"}) + "\n", encoding="utf-8"
    )
    candle("embed", "--model", encoder, "--input=x.jsonl", "--output=x.candle")
    (found,) = candle.lines("search", "./x.candle", "tea", "--json")
    assert found["text"] == "tea\x1b[31m"


def test_ask_gives_an_answer_with_sources(installed: Program, decoder: Path) -> None:
    common = ("ask", "notes", "green tea?", "--model", decoder, "--max-tokens=8", "--top-k=2")
    (answer,) = installed.lines(*common, "--json")
    assert list(answer) == ["answer", "sources", "shortened", "left_out", "finish_reason"]
    assert len(answer["sources"]) + len(answer["left_out"]) == 2
    done = installed(*common)
    assert ("ends at --max-tokens" in done.stderr) == (answer["finish_reason"] == "length")
    assert "\nSources:\n  [1] " in done.stdout
    assert done.stdout.startswith(answer["answer"])
    streamed = installed(*common, "--stream").stdout
    assert streamed.split() == done.stdout.split(), "but for blanks at the answer's end"


def test_the_sources_of_an_answer_stand_in_columns(installed: Program, decoder: Path) -> None:
    done = installed("ask", "notes", "tea?", "--model", decoder, "--max-tokens=1", "--top-k=2")
    sources = done.stdout.partition("Sources:\n")[2].splitlines()
    texts = ("Green tea is steeped in water", "Quantum computers use qubits", "The transistor")
    places = {line.find(text) for line in sources for text in texts if text in line}
    assert len(sources) == 2 and len(places) == 1


def test_ask_without_a_source_asks_no_model(installed: Program, decoder: Path) -> None:
    common = ("ask", "notes", "tea?", "--model", decoder, "--filter=lang=xx")
    done = installed(*common)
    assert "nothing found" in done.stderr and done.stdout.strip() == ""
    (answer,) = installed.lines(*common, "--json")
    assert answer["answer"] == "" and answer["sources"] == []


def test_ask_names_a_model_that_is_not_here(installed: Program) -> None:
    done = installed("ask", "notes", "tea?", "--model=nosuch", code=exits.NOT_FOUND)
    assert "nosuch" in done.stderr
