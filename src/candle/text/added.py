"""Tokens that are found in raw text as they stand, before any normalising or merging."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class AddedTokens:
    """Cuts text at added tokens: the leftmost first, and of those that start there the longest.

    Only the lengths that occur for a first character are tried there, so 6,400 names cost no
    more than a handful.
    """

    def __init__(self, ids: Mapping[str, int]) -> None:
        """`ids` maps the text of each added token (not empty) to its id."""
        lengths: dict[str, set[int]] = {}
        for text in ids:
            lengths.setdefault(text[0], set()).add(len(text))
        self._ids = dict(ids)
        self._lengths = {c: sorted(n, reverse=True) for c, n in lengths.items()}
        alphabet = "".join(map(re.escape, sorted(lengths)))
        self._candidate = re.compile(f"[{alphabet}]") if alphabet else None

    def find(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Start, end and id of each added token in `text`, in order."""
        at = 0
        while self._candidate and (found := self._candidate.search(text, at)):
            at = found.start()
            token = self._longest(text, at)
            if token is None:
                at += 1
                continue
            yield at, at + len(token), self._ids[token]
            at += len(token)

    def split(self, text: str) -> Iterator[str | int]:
        """The pieces of `text` in order: plain text (never empty), or the id of an added token."""
        done = 0
        for start, end, token_id in self.find(text):
            if done < start:
                yield text[done:start]
            yield token_id
            done = end
        if done < len(text):
            yield text[done:]

    def _longest(self, text: str, at: int) -> str | None:
        candidates = (text[at : at + n] for n in self._lengths[text[at]])
        return next((token for token in candidates if token in self._ids), None)
