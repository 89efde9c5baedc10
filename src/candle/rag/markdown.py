"""Markdown, read only as far as chunking needs: headings, code fences, tables, front matter.

Line by line, no grammar: what is not recognised is a paragraph, so any text is valid input.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t])#+[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(?:(=+)|(-{2,}))[ \t]*$")
_RULE = re.compile(r"(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t:-]*)*$")  # on a stripped line
_NOT_PROSE = re.compile(r"\t| {4}| {0,3}(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])")


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading: offsets, and the path of headings that leads to it."""

    start: int
    end: int
    heading: str


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    end: int
    text: str


def read_sections(text: str) -> tuple[list[Section], list[tuple[int, int]]]:
    """Sections that cover `text`, and the ranges of its code fences and tables.

    A heading without text of its own joins the section below it.
    """
    lines = _lines(text)
    blocks, inside = _blocks(lines)
    starts = _headings(lines, inside)
    return _sections(text, starts), blocks


def _lines(text: str) -> list[_Line]:
    found = []
    for match in _LINE.finditer(text):
        if match.end() > match.start():
            body = match.group().rstrip("\r\n")
            found.append(_Line(match.start(), match.end(), body))
    return found


def _blocks(lines: list[_Line]) -> tuple[list[tuple[int, int]], list[bool]]:
    """Ranges of fences, tables and front matter, and for each line whether it is in one."""
    inside = [False] * len(lines)
    blocks: list[tuple[int, int]] = []
    i = _front_matter(lines)
    _mark(lines, 0, i, blocks, inside)
    while i < len(lines):
        stop = _fence_end(lines, i) or _table_end(lines, i)
        if stop:
            _mark(lines, i, stop, blocks, inside)
        i = stop or i + 1
    return blocks, inside


def _mark(
    lines: list[_Line], i: int, stop: int, blocks: list[tuple[int, int]], inside: list[bool]
) -> None:
    if stop > i:
        blocks.append((lines[i].start, lines[stop - 1].end))
        inside[i:stop] = [True] * (stop - i)


def _front_matter(lines: list[_Line]) -> int:
    """How many lines a leading `---` block takes; 0 when there is none, or it never ends."""
    if not lines or lines[0].text.rstrip() != "---":
        return 0
    for i in range(1, len(lines)):
        if lines[i].text.rstrip() in ("---", "..."):
            return i + 1
    return 0


def _fence_end(lines: list[_Line], i: int) -> int:
    """The line after the fence that opens at line i, or 0. An unclosed one runs to the end."""
    opened = _FENCE.match(lines[i].text)
    if not opened:
        return 0
    mark = opened.group(1)
    if mark[0] == "`" and "`" in lines[i].text[opened.end() :]:
        return 0
    for j in range(i + 1, len(lines)):
        closed = _FENCE.match(lines[j].text)
        if not closed or not closed.group(1).startswith(mark):
            continue
        if not lines[j].text[closed.end() :].strip():
            return j + 1
    return len(lines)


def _table_end(lines: list[_Line], i: int) -> int:
    """The line after the table whose header is line i, or 0."""
    if i + 1 >= len(lines) or "|" not in lines[i].text:
        return 0
    rule = lines[i + 1].text.strip()
    if "-" not in rule or not _RULE.match(rule):
        return 0
    j = i + 2
    while j < len(lines) and "|" in lines[j].text:
        j += 1
    return j


def _headings(lines: list[_Line], inside: list[bool]) -> list[tuple[int, int, int, str]]:
    """(start, end of the heading's own lines, level, title) of each heading, in order."""
    found = []
    prose: list[_Line] = []  # the paragraph that the present line would go on
    for line, kept in zip(lines, inside, strict=True):
        atx = None if kept else _HEADING.match(line.text)
        under = None if kept or len(prose) != 1 else _UNDERLINE.match(line.text)
        if atx:
            title = _CLOSING_HASHES.sub("", atx.group(2) or "").strip()
            found.append((line.start, line.end, len(atx.group(1)), title))
        elif under and not _NOT_PROSE.match(prose[0].text):
            level = 1 if under.group(1) else 2
            found.append((prose[0].start, line.end, level, prose[0].text.strip()))
        elif not kept and line.text.strip():
            prose.append(line)
            continue
        prose = []
    return found


def _sections(text: str, headings: list[tuple[int, int, int, str]]) -> list[Section]:
    sections: list[Section] = []
    path: list[tuple[int, str]] = []
    start, label = 0, ""
    body = 0  # where the text below the present heading begins
    for at, after, level, title in headings:
        if at > start and text[body:at].strip():
            sections.append(Section(start, at, label))
            start = at
        path = [*(p for p in path if p[0] < level), (level, title)]
        label = " > ".join(name for _, name in path if name)
        body = after
    if start < len(text):
        sections.append(Section(start, len(text), label))
    return sections
