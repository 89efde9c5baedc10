"""What a chat template may use up: one budget of steps for a whole rendering.

A model file is not to be trusted, and a template is a program. Each loop turn, call and operation
costs steps, and so does each text or list in proportion to its size, before it is made. A template
that runs for ever, or makes a gigabyte, is stopped early.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Sized, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar

from ..errors import TemplateError

STEPS = 500_000
STEPS_PER_INPUT_STEP = 50
LONGEST = 1 << 23  # characters of any one text
_CHARACTERS_PER_STEP = 64
_LARGEST_BITS = 1024

_left: ContextVar[list[int]] = ContextVar("candle_template_steps")


@contextmanager
def budget(given: object = None) -> Iterator[None]:
    """Everything rendered inside shares these steps; more of them, the more was given to it."""
    token = _left.set([1 << 62])
    spend_value(given)
    used = (1 << 62) - _left.get()[0]
    _left.set([STEPS + STEPS_PER_INPUT_STEP * used])
    try:
        yield
    finally:
        _left.reset(token)


def spend(steps: int = 1) -> None:
    """Uses steps up. Raises TemplateError when none are left."""
    left = _left.get()
    left[0] -= steps
    if left[0] < 0:
        raise TemplateError("chat template", "an end within its steps", "more", "an endless loop?")


def spend_text(length: int) -> None:
    """Uses up what a text of that many characters costs. Raises TemplateError."""
    if length > LONGEST:
        raise TemplateError("chat template", f"texts of at most {LONGEST} characters", length)
    spend(1 + length // _CHARACTERS_PER_STEP)


def spend_value(value: object) -> None:
    """Uses up what a value costs with all it holds; what it holds twice counts twice."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            spend_text(len(value))
        elif isinstance(value, dict):
            spend(1 + len(value))
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
            spend(1 + len(value))
            waiting.extend(value)
        else:
            spend()


class Counted:
    """An iterable each of whose turns costs a step; as long as the one it wraps."""

    def __init__(self, items: object) -> None:
        self._items = items

    def __iter__(self) -> Iterator[object]:
        for item in self._items:  # type: ignore[attr-defined]
            spend()
            yield item


class CountedSized(Counted):
    """The same over something whose length is known."""

    def __init__(self, items: Sized) -> None:
        super().__init__(items)
        self._length = len(items)

    def __len__(self) -> int:
        return self._length


def counted(items: object) -> Counted:
    """`items`, with each turn over them counted."""
    return CountedSized(items) if isinstance(items, Sized) else Counted(items)


def check_power(base: object, exponent: object) -> None:
    """Raises TemplateError for whole numbers whose power would have too many digits."""
    if isinstance(base, int) and isinstance(exponent, int):
        check_bits(base.bit_length() * max(exponent, 0))


def check_product(left: object, right: object) -> None:
    """Charges a repetition by its length; refuses whole numbers with too many digits."""
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() + right.bit_length())
    for items, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(items, str):
            spend_text(len(items) * max(times, 0))
        elif isinstance(times, int) and isinstance(items, list | tuple):
            spend(len(items) * max(times, 0))


def check_bits(bits: int) -> None:
    """Raises TemplateError for whole numbers of more than that many bits."""
    if bits > _LARGEST_BITS:
        raise TemplateError("chat template", f"numbers of at most {_LARGEST_BITS} bits", bits)
