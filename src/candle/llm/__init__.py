"""Language models: load, complete, chat. Public as `candle_llm`."""

from __future__ import annotations

from .generator import Generation, Generator, TextStream

__all__ = ["Generation", "Generator", "TextStream"]
