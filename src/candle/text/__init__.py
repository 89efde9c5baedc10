"""Tokenizers: from a `tokenizer.json`, or from the vocabulary in a GGUF file."""

from .gguf_vocab import gguf_tokenizer
from .tokenizer import Tokenizer

__all__ = ["Tokenizer", "gguf_tokenizer"]
