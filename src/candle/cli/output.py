"""What is printed: results to stdout, always UTF-8; progress and warnings to stderr."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

Progress = Callable[[int, "int | None"], None]

# what moves a terminal's cursor or changes its state has no place in a document's text
_CONTROLS = {c: f"\\x{c:02x}" for c in (*range(32), *range(127, 160)) if c not in (9, 10)}

_open_line = False  # whether the last piece of a stream left the cursor within a line


def configure() -> None:
    """UTF-8 whatever the locale says, and warnings as single lines."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # backslashreplace: a file name may hold bytes that are no text
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    warnings.showwarning = _show_warning  # type: ignore[assignment]


def require() -> None:
    """Raises OSError where stdout is closed: what is printed would be lost."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")


def flush() -> None:
    """Hands everything printed to the system. Raises OSError where it cannot be written."""
    if sys.stdout is not None:
        sys.stdout.flush()


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a stream, stdout by default, is a terminal."""
    stream = sys.stdout if stream is None else stream
    return stream is not None and stream.isatty()


def say(text: str = "", end: str = "\n") -> None:
    """Writes to stdout; on a terminal, control characters are shown and not obeyed."""
    print(printable(text) if is_terminal() else text, end=end)


def say_now(text: str) -> None:
    """Writes a piece of a stream, at once."""
    global _open_line
    _open_line = not text.endswith("\n") if text else _open_line
    say(text, end="")
    flush()


def end_line() -> None:
    """Ends the line that a stream was interrupted in."""
    if _open_line:
        say_now("\n")


def say_json(value: Any) -> None:
    """One JSON value on one line."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def note(text: str) -> None:
    """A line for people, on stderr; where that cannot be written, nobody is there to be told."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(printable(text), file=sys.stderr)


def printable(text: str) -> str:
    """The text with control characters, but tab and newline, spelled out."""
    return text.translate(_CONTROLS)


def one_line(text: str, width: int) -> str:
    """The text's beginning on one line of at most `width` columns."""
    flat = " ".join(text.split())
    if columns(flat) <= width:
        return flat
    kept, used = [], 1  # the ellipsis
    for character in flat:
        used += columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def table(rows: Sequence[Sequence[str]], indent: str = "") -> None:
    """Rows of cells in aligned columns."""
    for line in aligned(rows):
        say((indent + line).rstrip())


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Each row as a line, its cells as wide as the widest of their column."""
    widths = [max(map(columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        pairs = zip(row, widths, strict=True)
        yield "  ".join(cell + " " * (width - columns(cell)) for cell, width in pairs)


def human_size(count: int) -> str:
    """Bytes for people: "87 MB" (of 1,000,000)."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 9.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@contextlib.contextmanager
def progress(label: str, unit: str = "", scale: bool = False) -> Iterator[Progress | None]:
    """A bar on stderr, if that is a terminal; else None. `scale`: the unit takes k, M, G."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from tqdm import tqdm

    size = {"ncols": _width(sys.stderr), "nrows": 20}  # tqdm hides bars where a size is 0
    with tqdm(desc=label, unit=unit, unit_scale=scale, leave=False, file=sys.stderr, **size) as bar:

        def show(done: int, total: int | None) -> None:
            bar.total = total
            bar.update(done - bar.n)

        bar.refresh()
        yield show


def _width(stream: TextIO) -> int:
    """Columns of a terminal; 80 where it does not say."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _show_warning(text: Warning | str, *_: object) -> None:
    note(f"warning: {text}")
