"""Reading configuration files and metadata: every value checked, every miss named."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..errors import FormatError

T = TypeVar("T")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises FormatError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"config {path}", "a JSON object", str(error)) from error
    if not isinstance(value, dict):
        raise FormatError(f"config {path}", "a JSON object", type(value).__name__)
    return value


def field(values: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """One value of a kind (an int will do for a float). Raises FormatError if absent or other."""
    value = values.get(name, default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        if value.bit_length() > 64:
            raise FormatError(f"config {name}", "a number of at most 64 bits", "a longer one")
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FormatError(f"config {name}", f"a value of type {kind.__name__}", repr(value)[:80])
    return value


def epsilon(values: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """What a norm adds to a variance: finite, 0 or more. Raises FormatError."""
    value = field(values, name, float, default)
    if not 0.0 <= value < math.inf:
        raise FormatError(f"config {name}", "a finite number of 0 or more", value)
    return value


def size(
    values: Mapping[str, Any], name: str, default: int | None = None, most: int = 1 << 24
) -> int:
    """A size of 1 to `most`. Raises FormatError."""
    value = field(values, name, int, default)
    if not 1 <= value <= most:
        raise FormatError(f"config {name}", f"1 to {most}", value)
    return value
