"""Prompts that cannot fit into the context, told by their length before they are tokenized."""

from __future__ import annotations

from ..errors import ContextLengthError
from ..text import Tokenizer

_SHORT = 1 << 18  # characters that are tokenized in a fraction of a second


def refuse_long(op: str, tokenizer: Tokenizer, text: str, context: int) -> None:
    """Raises ContextLengthError for a text longer than `context` tokens can stand for."""
    if len(text) <= max(_SHORT, context):
        return
    least = tokenizer.least_tokens(text)
    if least > context:
        raise too_long(op, context, f"{len(text):,} characters, at least {least:,} tokens")


def too_long(op: str, context: int, got: str) -> ContextLengthError:
    """The error for a prompt that leaves no room for an answer."""
    room = f"a prompt of fewer than {context} tokens (the context)"
    hint = "shorten it, or load with a greater context"
    return ContextLengthError(op, room, got, hint)
