"""Memory: where each temporary lies in the arena.

Two that live at the same time lie apart. Finding the least arena is NP-hard; several orders of
placing are tried, each at the lowest offset that is free (Pisarchyk and Lee 2020), and the best is
taken. No arena can be smaller than the most bytes that live at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .graph import Buffer, Graph, Kind

ALIGN = 64


@dataclass
class Life:
    """A temporary, from the first node that has it to the last."""

    buffer: Buffer
    first: int
    last: int

    @property
    def size(self) -> int:
        """Bytes it takes in the arena."""
        return -(-int(self.buffer.nbytes) // ALIGN) * ALIGN


@dataclass
class Arena:
    """Offsets of the temporaries; `bound` is what no arrangement can go below."""

    offsets: dict[Buffer, int]
    nbytes: int
    bound: int


def lives(graph: Graph) -> list[Life]:
    """The lives of all temporaries, in the order of their first node."""
    found: dict[Buffer, Life] = {}
    for at, node in enumerate(graph.nodes):
        for ref in node.refs():
            if ref.buffer.kind is Kind.TEMP:
                found.setdefault(ref.buffer, Life(ref.buffer, at, at)).last = at
    return list(found.values())


def arrange(graph: Graph) -> Arena:
    """The best of several arrangements."""
    temporaries = [life for life in lives(graph) if life.size]
    orders: list[Callable[[Life], tuple[int, ...]]] = [
        lambda life: (-life.size, life.first),
        lambda life: (life.first, -life.size),
        lambda life: (-life.size * (life.last - life.first + 1), life.first),
        lambda life: (life.first - life.last, -life.size),
    ]
    tried = [_place(sorted(temporaries, key=order)) for order in orders]
    offsets, nbytes = min(tried, key=lambda found: found[1])
    return Arena(offsets, nbytes, bound_of(temporaries))


def bound_of(temporaries: list[Life]) -> int:
    """The most bytes that live at once."""
    changes: dict[int, int] = {}
    for life in temporaries:
        changes[life.first] = changes.get(life.first, 0) + life.size
        changes[life.last + 1] = changes.get(life.last + 1, 0) - life.size
    now = most = 0
    for at in sorted(changes):
        now += changes[at]
        most = max(most, now)
    return most


def _place(order: list[Life]) -> tuple[dict[Buffer, int], int]:
    placed: list[tuple[int, Life]] = []  # by offset
    offsets, end = {}, 0
    for life in order:
        at = 0
        for start, other in placed:
            if other.last < life.first or life.last < other.first:
                continue
            if at + life.size <= start:
                break
            at = max(at, start + other.size)
        placed.append((at, life))
        placed.sort(key=lambda found: found[0])
        offsets[life.buffer] = at
        end = max(end, at + life.size)
    return offsets, end
