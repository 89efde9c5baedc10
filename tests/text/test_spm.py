"""SentencePiece merging, against a plain quadratic reading of its definition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from candle.text.added import AddedTokens
from candle.text.spm import SpmEngine, SpmVocabulary, chunk_pattern

Pieces = dict[str, float]


def engine(pieces: Pieces) -> SpmEngine:
    tokens = list(pieces)
    return SpmEngine(
        SpmVocabulary(
            tokens=["<unk>", *tokens],
            scores=[0.0, *pieces.values()],
            pieces={token: i + 1 for i, token in enumerate(tokens)},
            user_defined={},
            special={"<unk>": 0},
            byte_ids=[],
            unknown_id=0,
            bos_id=None,
            eos_id=None,
            add_bos=False,
            add_eos=False,
            add_space_prefix=False,
        )
    )


def by_definition(pieces: Pieces, text: str) -> list[str]:
    """Join the best pair of the whole text, again and again."""
    parts, tokens = list(text), list(pieces)
    while True:
        pairs = [
            (-pieces[a + b], -len(a), -len(b), tokens.index(a + b), i)
            for i, (a, b) in enumerate(pairwise(parts))
            if a in pieces and b in pieces and a + b in pieces
        ]
        if not pairs:
            return parts
        place = min(pairs)[-1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


vocabularies = st.dictionaries(
    st.text("ab▁>", min_size=1, max_size=5),
    st.sampled_from([0.0, -1.0, -2.0, -3.0, -4.0]),
    min_size=1,
    max_size=40,
)


@settings(max_examples=400, deadline=None)
@given(vocabularies, st.text("ab▁>c", max_size=30))
def test_merging_is_the_definition_with_ties_and_inner_marks(pieces: Pieces, text: str) -> None:
    expected: list[int] = []
    tokens = ["<unk>", *pieces]
    parts = by_definition(pieces, text)
    for part, before in zip(parts, [None, *parts], strict=False):
        if part in pieces:
            expected.append(tokens.index(part))
        elif before is None or before in pieces:
            expected.append(0)
    assert engine(pieces).encode(text.replace("▁", " "), False, False) == expected


@settings(max_examples=200, deadline=None)
@given(vocabularies, st.text("ab▁>c", max_size=30))
def test_chunks_cover_the_text(pieces: Pieces, text: str) -> None:
    assert "".join(chunk_pattern({piece: 0 for piece in pieces}).findall(text)) == text


def test_a_piece_that_holds_a_nul_switches_cutting_off() -> None:
    assert chunk_pattern({"a\0▁b": 0, "c": 1}).findall("a b▁c\n▁d") == ["a b▁c\n▁d"]


def test_remembered_words_stay_bounded_and_right() -> None:
    spm = engine({"a": -1.0, "b": -2.0, "ab": 0.0, "▁": -3.0})
    words = [format(i, "b").replace("0", "a").replace("1", "b") for i in range(40_000)]
    first = [spm.encode(word, False, False) for word in words]
    assert first == [spm.encode(word, False, False) for word in words]
    assert len(spm._cache) <= 32_768


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text("ab<", min_size=1, max_size=4), st.integers(0, 99)),
    st.text("ab<", max_size=40),
)
def test_added_tokens_leftmost_then_longest(ids: dict[str, int], text: str) -> None:
    expected: list[str | int] = []
    at = 0
    while at < len(text):
        starting = [token for token in ids if text.startswith(token, at)]
        if starting:
            token = max(starting, key=len)
            expected.append(ids[token])
            at += len(token)
        elif expected and isinstance(expected[-1], str):
            expected[-1] += text[at]
            at += 1
        else:
            expected.append(text[at])
            at += 1
    assert list(AddedTokens(ids).split(text)) == expected
