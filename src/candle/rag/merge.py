"""When segments are merged, and which: few segments, few dead rows, little rewriting.

A row is rewritten about once for each time the data grows by the factor `_GROWTH`.
"""

from __future__ import annotations

import sqlite3

from .batch import SEGMENT_ROWS

MAX_SEGMENTS = 8
_GROWTH = 2
_DEAD_SHARE = 0.25


def segments_to_merge(connection: sqlite3.Connection) -> list[int] | None:
    """Numbers of the segments to be merged with what is pending; None when nothing is due."""
    (pending,) = connection.execute("SELECT count(*) FROM pending").fetchone()
    rows = connection.execute("SELECT number, rows, dead FROM segments").fetchall()
    chosen = [number for number, size, dead in rows if dead >= _DEAD_SHARE * size]
    live = sorted((size - dead, number) for number, size, dead in rows if number not in chosen)
    if len(live) > MAX_SEGMENTS:
        chosen += _smallest(live)
    if chosen or pending >= SEGMENT_ROWS:
        return sorted(chosen)
    return None


def _smallest(live: list[tuple[int, int]]) -> list[int]:
    """The two smallest segments, and each next one that is not much larger than those together."""
    total = 0
    chosen: list[int] = []
    for size, number in live:
        if len(chosen) >= 2 and size > _GROWTH * total:
            break
        chosen.append(number)
        total += size
    return chosen
