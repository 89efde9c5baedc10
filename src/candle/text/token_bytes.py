"""From the text of a token in a vocabulary file to the bytes it stands for.

Two spellings exist. Byte-level BPE (GPT-2 and its heirs) writes every byte as one printable
character. SentencePiece writes a space as U+2581 and a single byte as `<0x0A>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

SPACE_MARK = "\u2581"

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_characters() -> tuple[str, ...]:
    """The 256 characters that stand for the bytes 0 to 255 in byte-level BPE.

    Printable Latin-1 stands for itself; the other 68 bytes take U+0100 onwards, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x100 + 256 - len(printable)))
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


BYTE_CHARACTERS: tuple[str, ...] = byte_characters()
_BYTE_OF_CHARACTER: Mapping[str, int] = {c: byte for byte, c in enumerate(BYTE_CHARACTERS)}


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; a token written outside that alphabet is its own text."""
    try:
        return bytes([_BYTE_OF_CHARACTER[c] for c in token])
    except KeyError:
        return token.encode()


def byte_token_value(token: str) -> int | None:
    """The byte that `<0x0A>` stands for, or None for any other text."""
    match = _BYTE_TOKEN.fullmatch(token)
    return int(match.group(1), 16) if match else None


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token: `<0x0A>` is one byte, U+2581 is a space."""
    byte = byte_token_value(token)
    return token.replace(SPACE_MARK, " ").encode() if byte is None else bytes([byte])


TokenBytes = Callable[[str], bytes]
