"""`candle generate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from candle.cli import exits

if TYPE_CHECKING:
    from running import Program


def test_text_and_json_agree(candle: Program, decoder: Path) -> None:
    common = ("generate", decoder, "ab", "--max_tokens=12")
    (facts,) = candle.lines(*common, "--json")
    assert list(facts) == ["text", "finish_reason", "prompt_tokens", "tokens"]
    assert facts["tokens"] <= 12 and facts["finish_reason"] in ("stop", "length")
    assert candle(*common).stdout == facts["text"] + "\n"


def test_streamed_and_whole_are_the_same(candle: Program, decoder: Path) -> None:
    """The same text, streamed or not, piped or not (ollama#7925, CASES L03, G02)."""
    common = ("generate", decoder, "tea", "--max-tokens=40", "--temperature=1", "--seed=7")
    assert candle(*common, "--stream").stdout == candle(*common, "--no-stream").stdout


def test_sampling_is_repeatable(candle: Program, decoder: Path) -> None:
    common = ("generate", decoder, "a", "--max-tokens=24", "--temperature=1.5")
    one, same, other = (candle(*common, f"--seed={s}").stdout for s in (1, 1, 2))
    assert one == same and one != other


def test_the_prompt_from_stdin(candle: Program, decoder: Path) -> None:
    common = ("--max-tokens=6",)
    by_argument = candle("generate", decoder, "ba ab", *common).stdout
    assert candle("generate", decoder, "-", *common, stdin=b"ba ab").stdout == by_argument
    done = candle("generate", decoder, "-", stdin=b"caf\xe9", code=exits.USAGE)
    assert "byte 3 of stdin is not UTF-8" in done.stderr


def test_a_chat_goes_through_the_template(candle: Program, decoder: Path) -> None:
    common = ("generate", decoder, "hi", "--max-tokens=1", "--json")
    (plain,) = candle.lines(*common)
    (chat,) = candle.lines(*common, "--chat")
    (system,) = candle.lines(*common, "--system", "be brief")
    assert plain["prompt_tokens"] < chat["prompt_tokens"] < system["prompt_tokens"]


def test_stop_texts(candle: Program, decoder: Path) -> None:
    common = ("generate", decoder, "a", "--max-tokens=30")
    text = candle(*common).stdout[:-1]
    middle = next(c for c in text[5:] if c not in text[:5])
    stopped = candle.lines(*common, "--stop=never seen", "--stop", middle, "--json")[0]
    assert stopped["text"] == text[: text.index(middle)]
    assert stopped["finish_reason"] == "stop"


def test_a_prompt_longer_than_the_context_is_refused(candle: Program, decoder: Path) -> None:
    """Both lengths are told, and nothing is cut in silence (ollama#17427, CASES G07)."""
    done = candle("generate", decoder, "ab " * 600, code=exits.FAILED)
    assert "512" in done.stderr and done.stdout == ""
    candle("generate", decoder, "a b a b", "--context=4", code=exits.FAILED)


@pytest.mark.parametrize(
    "option", ["--temperature=-1", "--top-p=2", "--max-tokens=-2", "--context=0", "--stop="]
)
def test_values_that_make_no_sense_are_usage_errors(
    candle: Program, decoder: Path, option: str
) -> None:
    done = candle("generate", decoder, "a", option, code=exits.USAGE)
    assert done.stdout == "" and done.stderr.startswith("error: ")


def test_no_tokens_is_no_text(candle: Program, decoder: Path) -> None:
    assert candle("generate", decoder, "a", "--max-tokens=0").stdout == "\n"
