"""Language models on a small engine. The code lives in `candle.llm`."""

from candle.llm import Generation, Generator, TextStream

__all__ = ["Generation", "Generator", "TextStream"]
