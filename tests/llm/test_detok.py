"""Characters split over tokens are held until whole."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candle.llm.detok import Detokenizer


@dataclass
class ByteTokens:
    """Tokens that are the given bytes; the token 0 is special."""

    tokens: list[bytes]

    def is_special(self, token_id: int) -> bool:
        return token_id == 0

    def id_to_bytes(self, token_id: int) -> bytes:
        return b"<|end|>" if token_id == 0 else self.tokens[token_id - 1]


def pieces(tokens: list[bytes], ids: list[int] | None = None) -> list[str]:
    detokenizer = Detokenizer(ByteTokens(tokens))  # type: ignore[arg-type]
    found = [detokenizer.feed(i) for i in ids or range(1, len(tokens) + 1)]
    return [*found, detokenizer.finish()]


def test_an_emoji_in_four_tokens() -> None:
    """llama3.java PR 5, text-generation-inference#131: bytes 240, 159, 152 then 184."""
    assert pieces([b"\xf0", b"\x9f", b"\x98", b"\xb8"]) == ["", "", "", "😸", ""]


@pytest.mark.parametrize("text", ["赋", "한국어 안녕", "é😀𝄞\u0301"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_split_characters(text: str, size: int) -> None:
    """ferrox#124, llamafile PR 727."""
    data = text.encode()
    found = pieces([data[i : i + size] for i in range(0, len(data), size)])
    assert "".join(found) == text and "\ufffd" not in "".join(found)


def test_special_tokens_are_not_shown() -> None:
    """llama.cpp#6772."""
    assert pieces([b"a", b"b"], [1, 0, 2, 0]) == ["a", "", "b", "", ""]


def test_an_unfinished_character_at_the_end() -> None:
    assert pieces([b"a\xe8\xb5"]) == ["a", "\ufffd"]


@given(st.lists(st.binary(min_size=1, max_size=5), max_size=12))
def test_streamed_equals_whole_for_any_bytes(tokens: list[bytes]) -> None:
    assert "".join(pieces(tokens)) == b"".join(tokens).decode("utf-8", "replace")


@given(
    st.lists(st.sampled_from([b"\xf0\x9f", b"\x98", b"\x80", b"\xe2", b"a", b"\xff"]), max_size=9)
)
def test_streamed_equals_whole_for_nearly_valid_bytes(tokens: list[bytes]) -> None:
    assert "".join(pieces(tokens)) == b"".join(tokens).decode("utf-8", "replace")
