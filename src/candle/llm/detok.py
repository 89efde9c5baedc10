"""Token ids to text, one at a time, without ever showing a part of a character."""

from __future__ import annotations

import codecs

from ..text import Tokenizer


class Detokenizer:
    """Holds the bytes of an unfinished character until the token that completes it.

    The pieces joined are `Tokenizer.decode` of all ids (but for the space that some tokenizers put
    before a text, which belongs to an answer). Special tokens stand for no text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """The text that has become certain. Bytes that are not UTF-8 become U+FFFD."""
        if self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.id_to_bytes(token_id))

    def finish(self) -> str:
        """The rest: U+FFFD for a character that was never completed, else nothing."""
        return self._decoder.decode(b"", final=True)
