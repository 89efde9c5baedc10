"""Stop texts: nothing of one is sent, however the stream is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candle.errors import OptionError
from candle.llm.stop import StopMatcher


def streamed(pieces: list[str], stops: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    sent = [matcher.feed(piece) for piece in pieces]
    return [*sent, matcher.finish()], matcher.found


def by_definition(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_a_stop_text_over_several_tokens() -> None:
    """llama.cpp#11538."""
    sent, found = streamed([" L", " M", " N", " O", " P", " Q", " R"], ["O P Q"])
    assert "".join(sent) == " L M N " and found == "O P Q"


@pytest.mark.parametrize("cut", range(1, 9))
def test_no_part_of_a_stop_text_is_sent(cut: int) -> None:
    """vllm#3574, mlx-knife#68."""
    for text, stop, kept in [
        ("ABCDEFGHIJKL", "DEFGHIJ", "ABC"),
        ("alpha beta gamma delta", "beta gamma", "alpha "),
        ("alpha beta gam", "beta gamma", "alpha beta gam"),
    ]:
        pieces = [text[i : i + cut] for i in range(0, len(text), cut)]
        sent, _ = streamed(pieces, [stop])
        assert "".join(sent) == kept
        before_end = "".join(sent[:-1])
        assert kept.startswith(before_end) and not before_end.endswith("b")


def test_text_is_held_only_while_it_may_be_a_stop() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed("a\n") == "a"
    assert matcher.feed("\n") == ""
    assert matcher.feed("\n") == "\n"
    assert matcher.feed("Us") == ""
    assert matcher.feed("b") == "\n\nUsb"


def test_nothing_comes_after_the_stop() -> None:
    matcher = StopMatcher(["x"])
    assert (matcher.feed("axb"), matcher.feed("c"), matcher.finish()) == ("a", "", "")
    assert matcher.stopped


def test_the_longest_of_those_that_end_together_counts() -> None:
    assert streamed(["one two."], ["two.", "e two.", "."])[1] == "e two."
    assert streamed(["one two."], ["two.", "wo"])[1] == "wo"


def test_without_stops_all_passes() -> None:
    assert streamed(["a", "", "b"], []) == (["a", "", "b", ""], None)


@pytest.mark.parametrize("stops", [[""], ["a", ""], [None], [3]])
def test_bad_stop_texts(stops: list[str]) -> None:
    with pytest.raises(OptionError, match="stop"):
        StopMatcher(stops)


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=6), max_size=4),
)
def test_streamed_equals_whole_for_any_cut(pieces: list[str], stops: list[str]) -> None:
    sent, found = streamed(pieces, stops)
    assert ("".join(sent), found) == by_definition("".join(pieces), stops)
