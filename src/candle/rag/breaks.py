"""Where a text may be cut: paragraph, sentence, line and word ends, and the cut itself.

A break is an offset between two characters; white space belongs to what stands before it, so a
piece never begins with the separator. Everything here is one pass over the text: no pattern can
restart inside its own match, so a million exclamation marks cost what a million letters cost.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

_SPACE = re.compile(r"\s+")
_NEWLINE = re.compile(r"\r\n|[\n\r\x0b\x85\u2028]")
_PAGE = re.compile(r"[\x0c\u2029]")
_CJK_SENTENCE = re.compile(r"[。！？｡]+[”’」』）】》]*\s*")
_CJK_CLAUSE = re.compile(r"[，、；：]+\s*")
_STOPS = frozenset(".!?…؟۔।॥።")
_CLOSERS = frozenset("\"'”’»)]}」』）*_`")
_MAX_CLOSERS = 4
# a character that must stay with the one before it, whatever the cut: ZWJ, variation selectors
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_MAX_CLUSTER = 32


@dataclass(frozen=True, slots=True)
class Breaks:
    """Offsets at which a text may be cut, each list ascending, strongest kind first."""

    paragraphs: list[int]
    sentences: list[int]
    lines: list[int]
    words: list[int]
    blocks: list[tuple[int, int]]  # ranges kept whole (code fences, tables), ascending, disjoint

    def levels(self) -> tuple[list[int], ...]:
        return self.paragraphs, self.sentences, self.lines, self.words

    def block_around(self, at: int) -> tuple[int, int] | None:
        """The kept range that `at` would cut in two, if any."""
        i = bisect_left(self.blocks, (at, at)) - 1
        if i >= 0 and self.blocks[i][0] < at < self.blocks[i][1]:
            return self.blocks[i]
        return None


def find_breaks(text: str, blocks: list[tuple[int, int]] | None = None) -> Breaks:
    """All breaks of `text`; none lies inside one of `blocks`, whose ends count as paragraphs."""
    found: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
    for run in _SPACE.finditer(text):
        found[_strength(text, run.start(), run.end())].append(run.end())
    sentences = _merge(found[1], [m.end() for m in _CJK_SENTENCE.finditer(text)])
    words = _merge(found[3], [m.end() for m in _CJK_CLAUSE.finditer(text)])
    whole = sorted(blocks or [])
    edges = [edge for block in whole for edge in block]
    return Breaks(
        _outside(_merge(found[0], edges), whole),
        _outside(sentences, whole),
        _outside(found[2], whole),
        _outside(words, whole),
        whole,
    )


def find_cut(text: str, breaks: Breaks, start: int, floor: int, end: int) -> int | None:
    """Where the piece that begins at `start` ends: an offset in (floor, end].

    The strongest kind of break in the second half of the piece wins; then the last break of any
    kind; then a hard cut that keeps a character with its accents. None when only a cut through
    a kept block is left.
    """
    half = max(floor, start + (end - start) // 2)
    for positions in breaks.levels():
        at = _last(positions, half, end)
        if at is not None:
            return at
    early = [at for p in breaks.levels() if (at := _last(p, floor, end)) is not None]
    block = breaks.block_around(end)
    if early or block:
        edge = block[0] if block and block[0] > floor else 0
        return max([edge, *early]) or None
    return _between_clusters(text, floor, end)


def find_resume(text: str, breaks: Breaks, start: int, cut: int, overlap: int) -> int:
    """Where the piece after `cut` begins, at most `overlap` characters before it, after `start`."""
    low = max(cut - overlap, start + 1)
    if low >= cut:
        return cut
    strong = [_first(p, low, cut) for p in (breaks.paragraphs, breaks.sentences)]
    known = [at for at in strong if at is not None]
    if known:
        return min(known)
    for positions in (breaks.lines, breaks.words):
        at = _first(positions, low, cut)
        if at is not None:
            return at
    if breaks.block_around(low):
        return cut
    whole = range(low, min(cut, low + _MAX_CLUSTER))
    return next((at for at in whole if not _joined(text, at)), low)


def _strength(text: str, start: int, end: int) -> int:
    """The kind of break that the white space `text[start:end]` is: an index into the levels."""
    run = text[start:end]
    lines = 0
    if run != " ":
        lines = len(_NEWLINE.findall(run))
        if lines > 1 or _PAGE.search(run):
            return 0
    if _ends_sentence(text, start, end):
        return 1
    return 2 if lines else 3


def _ends_sentence(text: str, start: int, end: int) -> bool:
    """Does a sentence end before the white space `text[start:end]`? Not in "e.g. this"."""
    i = start - 1
    lowest = max(i - _MAX_CLOSERS, -1)
    while i > lowest and text[i] in _CLOSERS:
        i -= 1
    if i < 0 or text[i] not in _STOPS:
        return False
    return text[i] != "." or end >= len(text) or not text[end].islower()


def _between_clusters(text: str, floor: int, at: int) -> int:
    """`at`, moved back (not to `floor`) until no character is parted from its accents."""
    for back in range(min(_MAX_CLUSTER, at - floor)):
        if not _joined(text, at - back):
            return at - back
    return at


def _joined(text: str, at: int) -> bool:
    """Do the characters on both sides of `at` belong together?"""
    if at >= len(text):
        return False
    after, before = text[at], text[at - 1]
    if after in _JOINERS or before == "\u200d" or unicodedata.combining(after):
        return True
    return before == "\r" and after == "\n"


def _last(positions: list[int], above: int, upto: int) -> int | None:
    """The greatest of `positions` in (above, upto]."""
    i = bisect_right(positions, upto) - 1
    return positions[i] if i >= 0 and positions[i] > above else None


def _first(positions: list[int], low: int, below: int) -> int | None:
    """The least of `positions` in [low, below)."""
    i = bisect_left(positions, low)
    return positions[i] if i < len(positions) and positions[i] < below else None


def _merge(a: list[int], b: list[int]) -> list[int]:
    return sorted({*a, *b}) if b else a


def _outside(positions: list[int], blocks: list[tuple[int, int]]) -> list[int]:
    """`positions` without those strictly inside a block; both ascending."""
    kept: list[int] = []
    done = 0
    for start, end in blocks:
        low = bisect_right(positions, start)
        kept += positions[done:low]
        done = max(low, bisect_left(positions, end))
    return kept + positions[done:]
