"""What one generation is asked for: checked once, before any work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from typing import Any

from ..errors import OptionError
from .sampler import SamplerOptions, check_whole

_MOST_TOKENS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """`max_tokens` None: until the context is full; 0: no text. `stop`: texts that end it."""

    sampler: SamplerOptions
    max_tokens: int | None
    stop: tuple[str, ...]

    @staticmethod
    def named(op: str, options: Mapping[str, Any]) -> GenerateOptions:
        """Options of the function `op`, by name. Raises OptionError, with the nearest name."""
        known = sorted(signature(GenerateOptions.of).parameters)
        for name in options:
            if name not in known:
                near = get_close_matches(name, known, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else ""
                raise OptionError(f"{op} options", ", ".join(known), repr(name[:80]), hint)
        return GenerateOptions.of(**options)

    @staticmethod
    def of(
        max_tokens: int | None = 256,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int | None = None,
        stop: str | Sequence[str] = (),
    ) -> GenerateOptions:
        """Checked options. Temperature 0 is greedy. Raises OptionError naming the field."""
        sampler = SamplerOptions(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
        )
        if max_tokens is not None:
            check_whole("max_tokens", max_tokens, _MOST_TOKENS)
            max_tokens = int(max_tokens)
        return GenerateOptions(sampler, max_tokens, _stops(stop))


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else stop
    if not isinstance(texts, Iterable) or not all(isinstance(t, str) and t for t in texts):
        raise OptionError("stop", "texts that are not empty", repr(stop))
    if not all(map(_is_unicode, texts)):
        raise OptionError("stop", "valid Unicode", repr(stop))
    return tuple(texts)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
