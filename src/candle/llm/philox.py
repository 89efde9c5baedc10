"""Philox4x32-10: random numbers by counting, the same on every machine and Python.

Each block of four 32-bit words is a function of (seed, number of the block) alone; the published
known answers are in the tests. (Salmon, Moraes, Dror, Shaw: Parallel random numbers, 2011.)
"""

from __future__ import annotations

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF

Words = tuple[int, int, int, int]


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Four 32-bit words from a counter of four and a key of two."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = (second >> 32) ^ c1 ^ k0, second & _WORD
        c2, c3 = (first >> 32) ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _WEYL[0]) & _WORD, (k1 + _WEYL[1]) & _WORD
    return c0, c1, c2, c3


class Random:
    """A stream of doubles in [0, 1) for one request: the draws 0, 1, 2 ... of a 64-bit seed."""

    def __init__(self, seed: int) -> None:
        self._key = (seed & _WORD, seed >> 32 & _WORD)
        self._drawn = 0

    def double(self) -> float:
        """The next number: 53 random bits. Each block of four words gives two."""
        block, half = divmod(self._drawn, 2)
        self._drawn += 1
        words = philox4x32((block & _WORD, block >> 32 & _WORD, 0, 0), self._key)
        low, high = words[2 * half], words[2 * half + 1]
        return float((high << 32 | low) >> 11) * 2.0**-53
