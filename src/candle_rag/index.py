"""`VectorIndex`: nearest neighbours among vectors alone."""

from candle.rag.index import VectorIndex

__all__ = ["VectorIndex"]
