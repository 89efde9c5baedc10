"""Answers end where they begin to repeat themselves, however they were cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from candle.rag.repeats import WORDS, RepeatGuard

LOOP = "A deque is a list-like sequence optimized for data accesses near its endpoints. "


def passed(pieces: list[str]) -> tuple[str, bool]:
    guard = RepeatGuard()
    return "".join([*map(guard.feed, pieces), guard.finish()]), guard.stopped


def test_text_that_repeats_nothing_comes_out_as_it_went_in() -> None:
    for text in (
        "",
        " ",
        "\n",
        "one",
        " one two\n\nthree  ",
        "tea " * (WORDS - 1),
        "e\u0301 \U0001f375",
    ):
        assert passed([text]) == (text, False)
        assert passed(list(text)) == (text, False)


def test_a_sentence_said_again_is_left_out() -> None:
    assert passed([LOOP * 9]) == (LOOP, True)
    assert passed(["In short: " + LOOP, "It is said. " + LOOP, "more"]) == (
        "In short: " + LOOP + "It is said. ",
        True,
    )


def test_short_loops_are_found_too() -> None:
    text, stopped = passed(["cat, dog, cow, " * 40])
    assert stopped and len(text.split()) < 2 * WORDS


def test_what_repeats_in_part_is_all_there() -> None:
    text = "one two three four five six. one two three four five seven. one two three"
    assert passed(list(text)) == (text, False)


def test_a_repetition_that_ends_the_text_is_one() -> None:
    assert passed([(LOOP * 2).rstrip()]) == (LOOP, True)


@given(st.lists(st.text(alphabet="ab \n.", max_size=9), max_size=40))
def test_the_pieces_make_no_difference(pieces: list[str]) -> None:
    whole = "".join(pieces)
    text, stopped = passed(pieces)
    assert (text, stopped) == passed([whole])
    assert whole.startswith(text) and (stopped or text == whole)
