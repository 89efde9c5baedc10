"""The one check of a path that a caller gives: what can be none is refused before the disk is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ..errors import FormatError, OptionError

LONGEST_PART = 255  # characters between two separators: no file system has more
LONGEST = 32_767  # characters in all: what Windows takes, and eight times what Linux does


def as_path(path: object, op: str) -> Path:
    """`path`, a string or `os.PathLike`, as a Path; `op` begins the message.

    Raises OptionError for another type, an empty text, a NUL character, a lone surrogate, and
    for more characters than any system takes.
    """
    text = path_text(path, op, "a path")
    if "\0" in text:
        raise OptionError(op, "a path without NUL characters", _short(text))
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise OptionError(op, "a path that can be encoded", _short(text)) from None
    found = Path(text)
    if len(text) > LONGEST or any(len(part) > LONGEST_PART for part in found.parts):
        most = f"a path of at most {LONGEST_PART} characters a part"
        raise OptionError(op, most, f"{len(text)} characters that begin {_short(text)}")
    return found


def path_text(path: object, op: str, expected: str) -> str:
    """The text of a path, not empty. Raises OptionError, which expects `expected`."""
    if not isinstance(path, str | os.PathLike):
        raise OptionError(op, expected, _short(path))
    text = os.fspath(path)
    if not isinstance(text, str) or not text:
        raise OptionError(op, expected, _short(text))
    return text


def require_file(path: Path, op: str) -> None:
    """Raises FormatError for a folder, device, pipe or socket, and OSError where nothing is.

    To be asked before opening: opening a pipe waits for its writer, and a device never ends.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        raise FormatError(op, "a file", found)


def _short(value: object) -> str:
    text = repr(value[:60] if isinstance(value, str | bytes) else value)
    return text[:80]
