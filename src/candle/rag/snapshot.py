"""One consistent state of a knowledge base: its vectors, block by block, and exact search.

A snapshot is built inside a read transaction and never changes; blocks that did not change are
taken over from the snapshot before.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..dtype import DType
from ..errors import StoreError
from ..tensor import Tensor
from .filter import Predicate
from .schema import REMEDY, Settings, read_settings
from .segment import Segment
from .topk import best_rows

FindSegment = Callable[[str], Segment]
_FIELDS = (str, str, int, int, str, str)


@dataclass(frozen=True, slots=True)
class Block:
    """Vectors that are searched together: a segment, or what waits to be merged into one."""

    number: int | None  # of the segment; None for the pending rows
    digest: str
    dead: int
    vectors: Tensor  # [rows, dimension] f32
    live: Tensor | None  # [rows] u8, 0 where deleted; None when nothing is
    chunks: array[int] | None  # chunk number of each pending row

    @property
    def rows(self) -> int:
        return int(self.vectors.shape[0])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after change number `generation`."""

    generation: int
    settings: Settings
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A chunk that a search found."""

    id: str
    document: str
    start: int
    stop: int
    text: str
    metadata: dict[str, Any]
    score: float


class View:
    """A snapshot with the open transaction it belongs to; valid inside `Store.reading`."""

    def __init__(
        self, connection: sqlite3.Connection, snapshot: Snapshot, path: Path, find: FindSegment
    ) -> None:
        self.connection = connection
        self.snapshot = snapshot
        self.path = path
        self.find = find
        self._places: dict[int | None, tuple[Block, dict[int, int]]] | None = None

    def __len__(self) -> int:
        (count,) = self.connection.execute("SELECT count(*) FROM chunks").fetchone()
        return int(count)

    def search(self, query: Tensor, top_k: int, keep: Predicate | None = None) -> list[Found]:
        """The `top_k` chunks nearest to `query` [1, d] whose metadata `keep` accepts.

        Ordered by score, then id. Equal scores at the end of the list are resolved by id too, so
        the answer does not depend on where a vector happens to lie.
        """
        blocks = self.snapshot.blocks
        masks = self._masks(keep) if keep else [block.live for block in blocks]
        there = sum(_count(block, mask) for block, mask in zip(blocks, masks, strict=True))
        want = top_k + 1
        while True:
            rows = self._best(query, want, masks)
            if len(rows) < min(want, there):  # a NaN compares with nothing
                raise StoreError(
                    f"search {self.path}",
                    f"{there} vectors that can be compared",
                    f"{len(rows)}",
                    REMEDY,
                )
            if len(rows) < want or rows[top_k - 1][0] != rows[-1][0]:
                break
            want *= 2  # the end of the list is one of several with its score: see them all
        if len(rows) > top_k:
            rows = [row for row in rows if row[0] >= rows[top_k - 1][0]]
        found = [self._chunk(block, row, score) for score, block, row in rows]
        return sorted(found, key=lambda f: (-f.score, f.id))[:top_k]

    def vector(self, number: int, segment: int | None, row: Any) -> memoryview:
        """The bytes of the vector of chunk `number`, which lies at that row of that segment."""
        if self._places is None:
            self._places = {b.number: (b, _pending_rows(b)) for b in self.snapshot.blocks}
        block, rows = self._places.get(segment, (None, {}))
        at = rows.get(number) if segment is None else row
        if block is None or not isinstance(at, int) or not 0 <= at < block.rows:
            raise StoreError(
                f"open {self.path}", f"a vector of chunk {number}", "none where it should be"
            )
        width = 4 * self.snapshot.settings.dimension
        return block.vectors.buffer().cast("B")[at * width : (at + 1) * width]

    def _best(
        self, query: Tensor, want: int, masks: list[Tensor | None]
    ) -> list[tuple[float, Block, int]]:
        """Up to `want` rows over all blocks, best first."""
        rows: list[tuple[float, Block, int]] = []
        for block, mask in zip(self.snapshot.blocks, masks, strict=True):
            (hits,) = best_rows(query, block.vectors, want, mask)
            rows += [(score, block, row) for score, row in hits]
        rows.sort(key=lambda hit: -hit[0])
        return rows[:want]

    def _masks(self, keep: Predicate) -> list[Tensor | None]:
        """For each block, 1 where the metadata of a live row is accepted."""
        blocks = self.snapshot.blocks
        kept = {block.number: bytearray(block.rows) for block in blocks}
        place = {c: row for block in blocks for c, row in _pending_rows(block).items()}
        query = "SELECT number, segment, row, metadata FROM chunks"
        for number, segment, row, metadata in self.connection.execute(query):
            if keep(self.metadata(metadata)):
                self._mark(kept, segment, place.get(number) if segment is None else row)
        masks = [kept[block.number] for block in blocks]
        return [Tensor.from_buffer(m, DType.U8, (len(m),)) if m else None for m in masks]

    def _mark(self, kept: dict[int | None, bytearray], segment: int | None, row: Any) -> None:
        mask = kept.get(segment)
        if mask is None or not isinstance(row, int) or not 0 <= row < len(mask):
            raise StoreError(
                f"open {self.path}",
                "a vector for each chunk",
                f"none at row {row} of segment {segment}",
                REMEDY,
            )
        mask[row] = 1

    def _chunk(self, block: Block, row: int, score: float) -> Found:
        columns = "SELECT id, document, start, stop, text, metadata FROM chunks"
        where, key = "segment = ? AND row = ?", [block.number, row]
        if block.chunks is not None:
            where, key = "number = ?", [block.chunks[row]]
        found = self.connection.execute(f"{columns} WHERE {where}", key).fetchone()
        if found is None:
            raise StoreError(
                f"open {self.path}",
                "a chunk for each vector",
                f"none for row {row} of segment {block.number}",
                REMEDY,
            )
        check_row(self.path, found, _FIELDS)
        name, document, start, stop, text, metadata = found
        known = self.metadata(metadata)
        clipped = min(1.0, max(-1.0, score))
        return Found(name, document, start, stop, text, known, clipped)

    def metadata(self, text: str) -> dict[str, Any]:
        """Metadata as it was given. Raises StoreError."""
        try:
            value = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise StoreError(f"open {self.path}", "metadata in JSON", str(text)[:80], REMEDY)
        return value


def load_snapshot(
    connection: sqlite3.Connection, path: Path, find: FindSegment, before: Snapshot | None
) -> Snapshot:
    """The state that the open transaction sees. Raises StoreError, or FileNotFoundError for a
    segment that a merge in another process has replaced since the transaction began."""
    settings, generation = read_settings(connection, path)
    known = {b.number: b for b in before.blocks} if before else {}
    blocks = [
        _segment_block(connection, path, find, settings, row, known.get(row[0]))
        for row in connection.execute(
            "SELECT number, file, digest, rows, dead FROM segments ORDER BY number"
        ).fetchall()
    ]
    blocks += _pending_block(connection, path, settings.dimension)
    return Snapshot(generation, settings, tuple(blocks))


def _pending_rows(block: Block) -> dict[int, int]:
    return {chunk: row for row, chunk in enumerate(block.chunks or ())}


def _count(block: Block, mask: Tensor | None) -> int:
    return block.rows if mask is None else bytes(mask.buffer()).count(1)


def check_row(path: Path, row: Sequence[object], kinds: Sequence[type]) -> None:
    """Raises StoreError unless the values are of `kinds`: SQLite keeps whatever it was given."""
    if [type(value) for value in row] != list(kinds):
        found = ", ".join(type(value).__name__ for value in row)
        expected = ", ".join(kind.__name__ for kind in kinds)
        raise StoreError(f"open {path}", f"columns of {expected}", found, REMEDY)


def check_counts(connection: sqlite3.Connection, path: Path) -> None:
    """Every vector has its chunk and every chunk its vector, by number. Raises StoreError."""
    counts = dict(connection.execute("SELECT segment, count(*) FROM chunks GROUP BY segment"))
    (pending,) = connection.execute("SELECT count(*) FROM pending").fetchone()
    expected = {
        number: rows - dead
        for number, rows, dead in connection.execute("SELECT number, rows, dead FROM segments")
    }
    expected[None] = pending
    for segment in {*counts, *expected}:
        if counts.get(segment, 0) != expected.get(segment, 0):
            raise StoreError(
                f"open {path}",
                f"{expected.get(segment, 0)} chunks in segment {segment}",
                counts.get(segment, 0),
                REMEDY,
            )


def _segment_block(
    connection: sqlite3.Connection,
    path: Path,
    find: FindSegment,
    settings: Settings,
    row: tuple[int, str, str, int, int],
    known: Block | None,
) -> Block:
    number, file, digest, rows, dead = row
    check_row(path, row, (int, str, str, int, int))
    if known and known.digest == digest and known.dead == dead:
        return known
    if known and known.digest == digest:
        vectors = known.vectors
    else:
        vectors = _map_vectors(find(file), digest, rows, settings.dimension)
    live = _live_rows(connection, path, number, rows, dead) if dead else None
    return Block(number, digest, dead, vectors, live, None)


def _map_vectors(segment: Segment, digest: str, rows: int, dimension: int) -> Tensor:
    if segment.digest != digest or segment.rows != rows:
        raise StoreError(
            f"segment {segment.path}",
            f"{rows} rows with digest {digest[:16]}",
            f"{segment.rows} rows with {segment.digest[:16]}",
            REMEDY,
        )
    return Tensor.from_buffer(segment.vectors(dimension), DType.F32, (rows, dimension))


def _live_rows(
    connection: sqlite3.Connection, path: Path, number: int, rows: int, dead: int
) -> Tensor:
    mask = bytearray(b"\1") * rows
    query = "SELECT row FROM tombstones WHERE segment = ?"
    for (row,) in connection.execute(query, (number,)):
        if not isinstance(row, int) or not 0 <= row < rows:
            raise StoreError(f"open {path}", f"deleted rows below {rows}", row, REMEDY)
        mask[row] = 0
    if mask.count(0) != dead:
        raise StoreError(
            f"open {path}", f"{dead} deleted rows in segment {number}", mask.count(0), REMEDY
        )
    return Tensor.from_buffer(mask, DType.U8, (rows,))


def _pending_block(connection: sqlite3.Connection, path: Path, dimension: int) -> Iterator[Block]:
    data, chunks = bytearray(), array("q")
    query = "SELECT chunk, vector FROM pending ORDER BY chunk"
    for chunk, vector in connection.execute(query):
        if not isinstance(vector, bytes) or len(vector) != 4 * dimension:
            raise StoreError(
                f"open {path}",
                f"vectors of {dimension} f32",
                f"one of another size for chunk {chunk}",
                REMEDY,
            )
        data += vector
        chunks.append(chunk)
    if chunks:
        vectors = Tensor.from_buffer(data, DType.F32, (len(chunks), dimension))
        yield Block(None, "", 0, vectors, None, chunks)
