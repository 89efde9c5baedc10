"""Text and Markdown to chunks: pieces of at most `chunk_size` characters that cover the input.

Every chunk is a slice of its document, `text == document[start:end]`; the slices follow one
another without a gap and overlap by at most `overlap` characters. They end at a paragraph where
one is near, else at a sentence, a line, a word, and only then anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import OptionError
from .breaks import Breaks, find_breaks, find_cut, find_resume
from .markdown import Section, read_sections

CHUNK_SIZE = 512


def default_overlap(chunk_size: int) -> int:
    """An eighth of a chunk is repeated where nothing else is asked for."""
    return chunk_size // 8 if isinstance(chunk_size, int) else 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of a document: `text`, its offsets in characters, and what is known of it."""

    text: str
    start: int
    end: int
    metadata: dict[str, Any] = field(default_factory=dict)


def chunk_text(text: str, chunk_size: int = CHUNK_SIZE, overlap: int | None = None) -> list[Chunk]:
    """Plain text to chunks of at most `chunk_size` characters; no text gives no chunk.

    Raises OptionError for sizes below 1, or an overlap that is not smaller than the size.
    """
    _check_text("chunk_text", text)
    overlap = check_sizes(chunk_size, overlap)
    spans = _spans(text, find_breaks(text), 0, len(text), chunk_size, overlap)
    return [Chunk(text[start:end], start, end) for start, end in spans]


def chunk_markdown(
    text: str, chunk_size: int = CHUNK_SIZE, overlap: int | None = None
) -> list[Chunk]:
    """Markdown to chunks, none across a heading; `metadata["heading"]` is "Guide > Install".

    A code fence or table that fits into `chunk_size` is never cut. Raises OptionError as
    `chunk_text` does.
    """
    _check_text("chunk_markdown", text)
    overlap = check_sizes(chunk_size, overlap)
    sections, blocks = read_sections(text)
    breaks = find_breaks(text, [b for b in blocks if b[1] - b[0] <= chunk_size])
    chunks: list[Chunk] = []
    for section in sections:
        chunks += _section_chunks(text, breaks, section, chunk_size, overlap)
    return chunks


def split_to_fit(text: str, measure: Callable[[str], int], limit: int) -> list[Chunk]:
    """`text` in pieces of which none measures above `limit`, cut at sentences where possible.

    `measure` is a count of tokens, say; only pieces that are too large are split again, each
    time into strictly smaller ones. Raises OptionError when a single character is too large.
    """
    done: list[Chunk] = []
    left = [Chunk(text, 0, len(text))]
    while left:
        piece = left.pop()
        size = measure(piece.text)
        if size <= limit:
            done.append(piece)
            continue
        if len(piece.text) <= 1:
            raise OptionError("split", f"one character within a window of {limit}", size)
        width = min(len(piece.text) - 1, max(1, len(piece.text) * limit * 9 // (size * 10)))
        parts = chunk_text(piece.text, width, 0)
        at = piece.start
        left += [Chunk(p.text, p.start + at, p.end + at) for p in reversed(parts)]
    return done


def check_sizes(chunk_size: int, overlap: int | None) -> int:
    """The overlap, an eighth of the chunk size where none is given.

    Raises OptionError unless both are whole numbers and 0 <= overlap < chunk_size.
    """
    overlap = default_overlap(chunk_size) if overlap is None else overlap
    for name, value in (("chunk_size", chunk_size), ("overlap", overlap)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionError(name, "a whole number of characters", repr(value))
    if chunk_size < 1:
        raise OptionError("chunk_size", "at least 1 character", chunk_size)
    if not 0 <= overlap < chunk_size:
        raise OptionError("overlap", f"from 0 to below chunk_size {chunk_size}", overlap)
    return overlap


def _check_text(op: str, text: object) -> None:
    if not isinstance(text, str):
        raise OptionError(op, "text as str", type(text).__name__)


def _section_chunks(
    text: str, breaks: Breaks, section: Section, chunk_size: int, overlap: int
) -> list[Chunk]:
    spans = _spans(text, breaks, section.start, section.end, chunk_size, overlap)
    known = {"heading": section.heading} if section.heading else {}
    return [Chunk(text[start:end], start, end, dict(known)) for start, end in spans]


def _spans(
    text: str, breaks: Breaks, begin: int, stop: int, size: int, overlap: int
) -> Iterator[tuple[int, int]]:
    """Offsets of the pieces of `text[begin:stop]`. `done` grows by a character or more a turn."""
    content = begin + len(text[begin:stop].rstrip())
    start = done = begin
    while done < stop:
        if done >= content:  # only white space is left: nothing to repeat before it
            start = done
        end = start + size
        if end >= stop:
            yield start, stop
            return
        cut = find_cut(text, breaks, start, done, end)
        if cut is None:  # a kept block follows that fits only without the overlap
            start = done
            continue
        yield start, cut
        start, done = find_resume(text, breaks, start, cut, overlap), cut
