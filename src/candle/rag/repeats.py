"""The end of an answer that goes round in circles.

Small models repeat themselves until they are stopped. An answer ends where twelve words in a row
come a second time: that is rare in what is meant, and a loop of any length comes to it.
"""

from __future__ import annotations

import re

WORDS = 12
_WORD = re.compile(r"\S+")


class RepeatGuard:
    """Passes text through, up to WORDS words that it has passed before.

    Words are what stands between white space. The last one is held back until it is whole, and
    those before it while they repeat something: what comes out does not depend on the pieces.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._text = ""
        self._sent = 0  # characters passed on
        self._read = 0  # the end of the last whole word
        self._starts: list[int] = []  # of the whole words
        self._places: dict[str, list[int]] = {}  # a word's indices in `_starts`
        self._runs: dict[int, int] = {}  # index of an earlier word -> words up to it said again

    def feed(self, piece: str) -> str:
        """The text that is now certain not to begin a repetition."""
        if self.stopped:
            return ""
        self._text += piece
        for word in _WORD.finditer(self._text, self._read):
            if word.end() == len(self._text):
                return self._pass(word.start())
            self._take(word)
            if self.stopped:
                break
        return self._pass(len(self._text))

    def finish(self) -> str:
        """What was held back at the end of the text, unless it repeats."""
        if self.stopped:
            return ""
        rest = self.feed("\n")
        return rest if self.stopped else (rest + self._text[self._sent :])[:-1]

    def _take(self, word: re.Match[str]) -> None:
        places = self._places.setdefault(word[0], [])
        self._runs = {place: self._runs.get(place - 1, 0) + 1 for place in places}
        places.append(len(self._starts))
        self._starts.append(word.start())
        self._read = word.end()
        self.stopped = self._repeated() >= WORDS

    def _repeated(self) -> int:
        """How many of the last words were said before, in this order."""
        return max(self._runs.values(), default=0)

    def _pass(self, end: int) -> str:
        """The text up to `end`, or up to where the last words begin to repeat."""
        repeated = self._repeated()
        end = min(end, self._starts[-repeated]) if repeated else end
        passed, self._sent = self._text[self._sent : end], end
        return passed
