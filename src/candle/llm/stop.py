"""Stop texts, found in a stream of pieces without sending any part of one."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import OptionError


class StopMatcher:
    """Passes text through up to the first stop text.

    The stop text that ends first counts, and of those that end together the longest; so the output
    does not depend on how the text was cut into pieces. `found` names it once `stopped` is true.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._automata = [_Automaton(stop) for stop in dict.fromkeys(stops)]
        self._held = ""
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop text has been seen; nothing comes after it."""
        return self.found is not None

    def feed(self, piece: str) -> str:
        """The text that is now certain not to be part of a stop text."""
        if self.stopped:
            return ""
        if not self._automata:
            return piece
        text = self._held + piece
        for place, character in enumerate(piece, start=len(self._held) + 1):
            complete = [a.text for a in self._automata if a.step(character)]
            if complete:
                self.found = max(complete, key=len)
                self._held = ""
                return text[: place - len(self.found)]
        kept = len(text) - max(a.matched for a in self._automata)
        self._held = text[kept:]
        return text[:kept]

    def finish(self) -> str:
        """What was held back at the end of the stream: the beginning of a stop text, no more."""
        rest, self._held = self._held, ""
        return rest


class _Automaton:
    """Knuth-Morris-Pratt: `matched` is the longest beginning of the text that ends here."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str) or not text:
            raise OptionError("stop", "texts that are not empty", repr(text))
        self.text = text
        self.matched = 0
        self._fallback = [0] * len(text)
        for place in range(1, len(text)):
            self._fallback[place] = self._longer(self._fallback[place - 1], text[place])

    def step(self, character: str) -> bool:
        """Takes one more character; true if it completes the text."""
        if self.matched == len(self.text):
            self.matched = self._fallback[-1]
        self.matched = self._longer(self.matched, character)
        return self.matched == len(self.text)

    def _longer(self, matched: int, character: str) -> int:
        while matched and self.text[matched] != character:
            matched = self._fallback[matched - 1]
        return matched + (self.text[matched] == character)
