"""Text that knows which of its characters the chat template itself wrote.

What a user wrote must never become a control token, whatever the template does to it. So trust is
kept for the template's own text: `Marked` carries one flag a character, and these functions keep
it through joining, cutting, stripping and replacing. Plain `str` is trusted nowhere, and anything
else that is done to text gives plain `str` again: what is forgotten is distrusted.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

from ..errors import TemplateError
from .budget import spend_text, spend_value

_LONGEST_WIDTH = 3  # digits of a width or precision in a format


class Marked(str):
    """A text with a flag (1 is trusted) for each character, in `mask`."""

    mask: bytes

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        index = key if isinstance(key, slice) else slice(key, (key.__index__() + 1) or None)
        return marked(super().__getitem__(key), self.mask[index])


def marked(text: str, mask: bytes) -> str:
    """`text` with that mask; plain text where nothing in it is trusted."""
    if len(mask) != len(text) or 1 not in mask:
        return str.__str__(text)
    made = Marked(text)
    made.mask = mask
    return made


def trusted(text: str) -> str:
    """`text`, trusted throughout."""
    return marked(text, b"\1" * len(text))


def mask_of(text: str) -> bytes:
    """The flags of any text."""
    return text.mask if isinstance(text, Marked) else bytes(len(text))


def concat(parts: Iterable[str]) -> str:
    """The parts joined, with their trust."""
    parts = list(parts)
    spend_text(sum(map(len, parts)))
    if any(isinstance(part, Marked) for part in parts):
        return marked("".join(parts), b"".join(map(mask_of, parts)))
    return "".join(parts)


def _cut(text: str, start: int, length: int) -> str:
    return marked(str.__getitem__(text, slice(start, start + length)), _slice(text, start, length))


def _slice(text: str, start: int, length: int) -> bytes:
    return mask_of(text)[start : start + length]


def _same_length(change: Callable[[str], str]) -> Callable[[str], str]:
    """A change of letters: keeps trust where no character became two."""

    def changed(text: str) -> str:
        spend_text(len(text))
        return marked(change(text), mask_of(text))

    return changed


def strip(text: str, chars: str | None = None) -> str:
    return rstrip(lstrip(text, chars), chars)


def lstrip(text: str, chars: str | None = None) -> str:
    spend_text(len(text))
    left = str.lstrip(text, chars)
    return _cut(text, len(text) - len(left), len(left))


def rstrip(text: str, chars: str | None = None) -> str:
    spend_text(len(text))
    return _cut(text, 0, len(str.rstrip(text, chars)))


def removeprefix(text: str, prefix: str) -> str:
    spend_text(len(text))
    left = str.removeprefix(text, prefix)
    return _cut(text, len(text) - len(left), len(left))


def removesuffix(text: str, suffix: str) -> str:
    spend_text(len(text))
    return _cut(text, 0, len(str.removesuffix(text, suffix)))


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """`str.replace`: what is put in has the trust of `new`."""
    spend_text(len(text))
    found = len(text) + 1 if old == "" else str.count(text, old)
    times = found if count < 0 else min(found, count)
    spend_text(len(text) + times * max(len(new) - len(old), 0))
    if old == "" or not (isinstance(text, Marked) or isinstance(new, Marked)):
        return str.replace(text, old, new, count)
    return concat(_interleaved(split(text, old, times), new)) if times else text


def _interleaved(parts: Sequence[str], between: str) -> list[str]:
    joined = [part for part in parts for part in (between, part)]
    return joined[1:]


def join(text: str, items: Iterable[str]) -> str:
    """`str.join`."""
    return concat(_interleaved(list(items), text))


def split(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    """`str.split`."""
    spend_text(2 * len(text))
    return _found_again(text, str.split(text, sep, maxsplit), sep)


def rsplit(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    """`str.rsplit`."""
    spend_text(2 * len(text))
    return _found_again(text, str.rsplit(text, sep, maxsplit), sep)


def splitlines(text: str, keepends: bool = False) -> list[str]:
    """`str.splitlines`."""
    spend_text(2 * len(text))
    lines, place, found = str.splitlines(text, True), 0, []
    for line in lines:
        kept = line if keepends else str.splitlines(line)[0]
        found.append(_cut(text, place, len(kept)))
        place += len(line)
    return found


def _found_again(text: str, parts: list[str], sep: str | None) -> list[str]:
    """The parts with their trust: each stands behind the one before and the separator."""
    spend_value(parts)
    if not isinstance(text, Marked):
        return parts
    place, found = 0, []
    for part in parts:
        if sep is None:
            place = str.index(text, part, place)
        found.append(_cut(text, place, len(part)))
        place += len(part) + len(sep or "")
    return found


def formatted(
    template: str, args: Sequence[object], kwargs: Mapping[str, object], field: _FieldGetter
) -> str:
    """`str.format`: literal text keeps its trust, and so does a text put in as it is."""
    parts: list[str] = []
    place = automatic = 0
    for literal, name, spec, conversion in string.Formatter().parse(template):
        place = _literal(template, literal, place, parts)
        if name is None:
            continue
        if name == "" or name[0] in ".[":
            name, automatic = f"{automatic}{name}", automatic + 1
        value = field(name, args, kwargs)
        parts.append(_shown(value, conversion, spec or ""))
        place = _field_end(template, place)
    return concat(parts)


_FieldGetter = Callable[[str, Sequence[object], Mapping[str, object]], object]


def _literal(template: str, literal: str, place: int, parts: list[str]) -> int:
    """Adds a literal run; `{{` and `}}` in the template are one character each. Its end."""
    for character in literal:
        parts.append(_cut(template, place, 1))
        if parts[-1] != character:
            raise TemplateError("chat template", "a plain format", template[:40])
        place += 2 if character in "{}" and str.startswith(template, character * 2, place) else 1
    return place


def _field_end(template: str, place: int) -> int:
    """The place behind the `{...}` that begins there."""
    depth = 0
    for at in range(place, len(template)):
        depth += {"{": 1, "}": -1}.get(str.__getitem__(template, at), 0)
        if depth == 0:
            return at + 1
    return len(template)


def _shown(value: object, conversion: str | None, spec: str) -> str:
    if "{" in spec or any(len(digits) > _LONGEST_WIDTH for digits in _numbers(spec)):
        raise TemplateError("chat template", "a plain format", f"{{:{spec[:40]}}}")
    spend_value(value)
    if conversion is None and not spec and isinstance(value, str):
        return value
    if conversion is not None:
        value = string.Formatter().convert_field(value, conversion)
    return str.__str__(format(value, spec))


def _numbers(spec: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in spec).split()


def percent(template: str, values: object) -> str:
    """`template % values`, as plain text."""
    if "*" in template or any(len(digits) > _LONGEST_WIDTH for digits in _numbers(template)):
        raise TemplateError("chat template", "a plain % format", template[:40])
    spend_value(template)
    spend_value(values)
    return template % values


METHODS: Mapping[str, Callable[..., Any]] = {
    "strip": strip,
    "lstrip": lstrip,
    "rstrip": rstrip,
    "removeprefix": removeprefix,
    "removesuffix": removesuffix,
    "replace": replace,
    "join": join,
    "split": split,
    "rsplit": rsplit,
    "splitlines": splitlines,
    "upper": _same_length(str.upper),
    "lower": _same_length(str.lower),
    "title": _same_length(str.title),
    "capitalize": _same_length(str.capitalize),
}


def ask(question: str, text: str, *args: Any) -> Any:
    """A method of `str` that makes no text."""
    spend_text(len(text))
    return getattr(str, question)(text, *args)


ASKING = frozenset(
    {
        *("startswith", "endswith", "find", "rfind", "index", "rindex", "count"),
        *("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower"),
        *("isnumeric", "isspace", "isupper"),
    }
)
