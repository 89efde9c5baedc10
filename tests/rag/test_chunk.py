"""Chunking: pieces never exceed the limit, cover the input exactly, and always end (R26, R28)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candle.errors import OptionError
from candle.rag.chunk import Chunk, chunk_markdown, chunk_text, split_to_fit

AWKWARD = st.text(
    alphabet=st.sampled_from("ab .,!?\n\r\t\u3000。！？，中文字é\u0301\u200d\ufe0f👩|-#`~=>*1\x0c"),
    max_size=400,
)
SIZES = st.tuples(st.integers(1, 60), st.integers(0, 59)).filter(lambda s: s[1] < s[0])


def assert_covers(text: str, chunks: list[Chunk], size: int, overlap: int) -> None:
    done = 0
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end]
        assert 0 < len(chunk.text) <= size
        assert max(0, done - overlap) <= chunk.start <= done < chunk.end
        done = chunk.end
    assert done == len(text)
    assert joined(chunks) == text


def joined(chunks: list[Chunk]) -> str:
    """The input again, each overlap counted once."""
    parts, done = [], 0
    for chunk in chunks:
        parts.append(chunk.text[done - chunk.start :])
        done = chunk.end
    return "".join(parts)


@given(AWKWARD, SIZES)
@settings(max_examples=300, deadline=None)
def test_text_is_covered_exactly_within_the_limit(text: str, sizes: tuple[int, int]) -> None:
    """llama_index#7287 #6834 #8042 (R26)."""
    assert_covers(text, chunk_text(text, *sizes), *sizes)


@given(AWKWARD, SIZES)
@settings(max_examples=300, deadline=None)
def test_markdown_is_covered_exactly_within_the_limit(text: str, sizes: tuple[int, int]) -> None:
    """llama_index#7287 #6834 #8042 (R26)."""
    assert_covers(text, chunk_markdown(text, *sizes), *sizes)


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|" + "-" * 200_000 + "|---|\n| 1 | 2 |\n",
        "x" * 300_000,
        "!" * 300_000,
        "。" * 300_000,
        " " * 300_000,
        "\n" * 300_000,
        "|" * 300_000 + "\n",
        " " * 100_000 + "x\n" + "-" * 100_000,
        "# " * 100_000,
        "#" * 100_000,
        "```\n" * 50_000,
        "e\u0301" * 100_000,
        "\u200d" * 100_000,
        "\r\n" * 100_000,
        '."' * 100_000 + " a",
    ],
    ids=range(15),
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    """llama_index#7287 (R26): very long rule line, no spaces, only separators."""
    began = time.process_time()
    assert_covers(text, chunk_text(text), 512, 64)
    assert_covers(text, chunk_markdown(text), 512, 64)
    assert time.process_time() - began < 20


def test_split_length_between_size_minus_overlap_and_size_ends() -> None:
    """llama_index#8042 (R26): pieces in [size - overlap, size] must not loop."""
    word = "y" * 470
    text = " ".join([word] * 20)
    assert_covers(text, chunk_text(text, 512, 64), 512, 64)


def test_overlap_one_below_the_size_still_moves() -> None:
    assert_covers("a" * 50, chunk_text("a" * 50, 10, 9), 10, 9)


def test_no_text_gives_no_chunk() -> None:
    assert chunk_text("") == []
    assert chunk_markdown("") == []


def test_a_paragraph_end_is_preferred_to_a_sentence_end() -> None:
    text = "One two three. Four five six.\n\nSeven eight nine. Ten."
    assert [c.text for c in chunk_text(text, 40, 0)] == [
        "One two three. Four five six.\n\n",
        "Seven eight nine. Ten.",
    ]


def test_a_sentence_end_is_preferred_to_a_word_end() -> None:
    text = "Alpha beta gamma delta. Epsilon zeta eta theta."
    assert chunk_text(text, 30, 0)[0].text == "Alpha beta gamma delta. "


def test_an_abbreviation_does_not_end_a_sentence() -> None:
    text = "Fruits, e.g. apples and pears, are sold here daily."
    assert chunk_text(text, 20, 0)[0].text == "Fruits, e.g. apples "


def test_chinese_is_cut_after_its_full_stops() -> None:
    text = "第一句话在这里。第二句话也在这里！第三句呢？没有空格的文本。"
    pieces = [c.text for c in chunk_text(text, 18, 0)]
    assert pieces[0] == "第一句话在这里。第二句话也在这里！"
    assert "".join(pieces) == text


def test_overlap_begins_at_a_sentence_when_one_is_near() -> None:
    text = "First sentence here. Short one. Another sentence follows it now. And more of it."
    second = chunk_text(text, 40, 20)[1]
    assert second.text.startswith("Short one. ")


def test_accents_and_joined_emoji_stay_with_their_base() -> None:
    text = "e\u0301" * 20
    assert all(not c.text.startswith("\u0301") for c in chunk_text(text, 5, 2))
    family = "👩\u200d👩\u200d👧" * 10
    assert all(not c.text.startswith("\u200d") for c in chunk_text(family, 7, 0))


def test_markdown_keeps_the_heading_path() -> None:
    text = "# Guide\n\nIntro.\n\n## Install\n\npip it.\n\n## Use ##\n\nrun it.\n\n# Other\n\nend.\n"
    found = [(c.metadata["heading"], c.text.strip().splitlines()[-1]) for c in chunk_markdown(text)]
    assert found == [
        ("Guide", "Intro."),
        ("Guide > Install", "pip it."),
        ("Guide > Use", "run it."),
        ("Other", "end."),
    ]


def test_markdown_reads_underlined_headings_but_not_rules_or_list_items() -> None:
    text = "Title\n=====\n\ntext\n\nPart\n----\n\nmore\n\n---\n\n- item\n---\n\nlast\n"
    assert [c.metadata["heading"] for c in chunk_markdown(text)] == ["Title", "Title > Part"]


def test_a_heading_without_text_joins_the_section_below() -> None:
    chunks = chunk_markdown("# A\n\n## B\n\ntext\n")
    assert [c.text for c in chunks] == ["# A\n\n## B\n\ntext\n"]
    assert chunks[0].metadata == {"heading": "A > B"}


def test_a_hash_inside_a_fence_or_front_matter_is_no_heading() -> None:
    text = "---\ntitle: x\n# no\n---\n\n```sh\n# comment\n```\n\n# Yes\n\nbody\n"
    chunks = chunk_markdown(text)
    assert [c.metadata for c in chunks] == [{}, {"heading": "Yes"}]


@pytest.mark.parametrize("mark", ["```", "~~~~"])
def test_a_fence_that_fits_is_not_cut(mark: str) -> None:
    fence = f"{mark}python\n" + "x = 1\n\n" * 12 + f"{mark}\n"
    text = "Words before it. " * 9 + "\n\n" + fence + "\nAfter. " * 20
    chunks = chunk_markdown(text, 200, 40)
    assert_covers(text, chunks, 200, 40)
    assert any(fence in c.text for c in chunks)


def test_a_table_that_fits_is_not_cut() -> None:
    table = "| a | b |\n|---|:-:|\n" + "| one | two |\n" * 9
    text = "Para one is here.\n\n" * 8 + table + "\nAfter it.\n"
    chunks = chunk_markdown(text, 180, 30)
    assert_covers(text, chunks, 180, 30)
    assert any(table in c.text for c in chunks)


def test_a_table_that_does_not_fit_is_cut_between_rows() -> None:
    table = "| a | b |\n|---|---|\n" + "| some | cells |\n" * 40
    chunks = chunk_markdown(table, 100, 0)
    assert_covers(table, chunks, 100, 0)
    assert all(c.text.endswith("|\n") for c in chunks)


def test_an_unclosed_fence_runs_to_the_end() -> None:
    text = "```\n# not a heading\n" + "code\n" * 300
    chunks = chunk_markdown(text, 100, 10)
    assert_covers(text, chunks, 100, 10)
    assert all(c.metadata == {} for c in chunks)


def test_a_list_of_two_thousand_files_stays_within_the_window() -> None:
    """llama_index#12270 (R28): one sentence of 2,000 lines."""
    text = "\n".join(f"src/package_{i}/module_{i}.py" for i in range(2000))
    pieces = split_to_fit(text, lambda t: len(t) // 3 + 2, 256)
    assert all(len(p.text) // 3 + 2 <= 256 for p in pieces)
    assert joined(pieces) == text
    assert all(p.text == text[p.start : p.end] for p in pieces)


@given(AWKWARD, st.integers(3, 40))
@settings(max_examples=100, deadline=None)
def test_pieces_fit_any_measure_that_takes_a_character(text: str, limit: int) -> None:
    pieces = split_to_fit(text, lambda t: 3 * sum(c.isalnum() for c in t), limit)
    assert joined(pieces) == text
    assert all(3 * sum(c.isalnum() for c in p.text) <= limit for p in pieces)


def test_a_window_too_small_for_one_character_is_an_error() -> None:
    with pytest.raises(OptionError, match="window of 2"):
        split_to_fit("abc", lambda t: 3, 2)


@pytest.mark.parametrize("size, overlap", [(0, 0), (-1, 0), (5, 5), (5, -1), (True, 0), (5.0, 0)])
def test_sizes_that_make_no_sense_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(OptionError):
        chunk_text("abc", size, overlap)
