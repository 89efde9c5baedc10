"""`VectorIndex`: exact nearest neighbours among vectors alone, without documents.

index = VectorIndex.build(vectors)
ids, scores = index.search(queries, k=10)
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..dtype import DType
from ..errors import DTypeError, OptionError, ShapeError, StoreError
from ..formats.atomic import atomic_file
from ..formats.paths import as_path
from ..functional import normalize
from ..tensor import Tensor
from .segment import IDS, INFO, VECTORS, Segment, SegmentWriter
from .topk import best_rows, refuse_nonfinite

METRICS = ("cosine", "dot")
_MAX_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class _Block:
    vectors: Tensor  # [n, d] f32
    ids: array[int]
    mask: bytearray  # 0 where removed


class VectorIndex:
    """Vectors with ids that stay theirs for ever. Not safe to change while it is searched."""

    def __init__(self, dimension: int, metric: str = "cosine") -> None:
        """An empty index. Raises OptionError for an unknown metric or no dimension."""
        if metric not in METRICS:
            raise OptionError("index metric", f"one of {', '.join(METRICS)}", repr(metric))
        if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
            raise OptionError("index dimension", "a whole number from 1", repr(dimension)[:80])
        self.dimension = dimension
        self.metric = metric
        self._blocks: list[_Block] = []
        self._rows: dict[int, tuple[int, int]] = {}  # id to block and row
        self._next = 0

    @classmethod
    def build(
        cls, vectors: Any, metric: str = "cosine", ids: Sequence[int] | None = None
    ) -> VectorIndex:
        """An index of `vectors` [n, d]: a Tensor or any array of f32.

        Ids are 0, 1, ... unless given. Raises ShapeError, DTypeError, and OptionError naming the
        row of a NaN.
        """
        rows = _as_tensor("build", vectors)
        index = cls(int(rows.shape[1]), metric)
        index.add(rows, ids)
        return index

    def __len__(self) -> int:
        """Vectors that can be found."""
        return len(self._rows)

    def add(self, vectors: Any, ids: Sequence[int] | None = None) -> list[int]:
        """Adds rows; answers their ids, new ones unless given. All or nothing.

        Raises OptionError for NaN or infinity (naming the row) or an id that is taken.
        """
        rows = self._prepare("add", vectors)
        chosen = self._choose_ids(int(rows.shape[0]), ids)
        if not chosen:
            return chosen
        if self.metric == "dot":
            rows = rows.copy()  # it may be the caller's memory
        order = sorted(range(len(chosen)), key=chosen.__getitem__)
        if ids is not None:  # equal scores are ordered by row, and so by id
            rows = rows.index_select(rows.new_indices(order))
        self._append(_Block(rows, array("q", sorted(chosen)), bytearray(b"\1") * len(chosen)))
        self._next = max(self._next, max(chosen) + 1)
        return chosen

    def remove(self, ids: Iterable[int]) -> int:
        """Removes vectors by id; answers how many were there. An id is never given out again."""
        found = 0
        for name in ids:
            place = self._rows.pop(int(name), None)
            if place is not None:
                self._blocks[place[0]].mask[place[1]] = 0
                found += 1
        if found and 4 * len(self._rows) <= 3 * sum(len(b.ids) for b in self._blocks):
            self._compact()
        return found

    def search(self, queries: Any, k: int) -> tuple[Tensor, Tensor]:
        """(ids i64, scores f32), both [m, min(k, len(index))], best first, equal ones by id.

        Raises ShapeError for another dimension, OptionError for a k below 1 or a NaN query.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise OptionError("search k", "a whole number from 1", repr(k))
        rows = self._prepare("search", queries)
        count = min(k, len(self))
        ids, scores = array("q"), array("f")
        for hits in self._hits(rows, count) if count else ():
            ids.extend(name for _, name in hits)
            scores.extend(score for score, _ in hits)
        shape = (int(rows.shape[0]), count)
        return _tensor(ids, DType.I64, shape), _tensor(scores, DType.F32, shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the index to one file, atomically."""
        self._compact()
        sections = {
            VECTORS: (DType.F32, self.dimension),
            IDS: (DType.I64, 1),
            INFO: (DType.U8, 1),
        }
        with atomic_file(path) as file:
            writer = SegmentWriter(file, sections)
            for block in self._blocks:
                writer.write(block.vectors.buffer().cast("B"))
            writer.next_section()
            for block in self._blocks:
                writer.write(block.ids.tobytes())
            writer.next_section()
            info = {"metric": self.metric, "next": self._next, "dimension": self.dimension}
            writer.write(json.dumps(info, sort_keys=True).encode())
            writer.finish(len(self))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> VectorIndex:
        """Maps a saved index, vectors in place. Raises OptionError, StoreError, OSError."""
        path = as_path(path, "open index")
        segment = Segment.open(path)
        try:
            info = json.loads(bytes(segment.data(INFO)))
            index = cls(int(info["dimension"]), info["metric"])
            index._next = int(info["next"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"open {path}", "an index with its metric", error) from None
        if segment.rows:
            ids = array("q")
            ids.frombytes(segment.data(IDS))
            shape = (segment.rows, index.dimension)
            vectors = Tensor.from_buffer(segment.vectors(index.dimension), DType.F32, shape)
            index._append(_Block(vectors, ids, bytearray(b"\1") * len(ids)))
        if len(index) != segment.rows or index._next <= max(index._rows, default=-1):
            raise StoreError(f"open {path}", f"{segment.rows} ids, each once", len(index))
        return index

    def _prepare(self, op: str, vectors: Any) -> Tensor:
        rows = _as_tensor(op, vectors)
        if int(rows.shape[1]) != self.dimension:
            raise ShapeError(op, f"vectors of dimension {self.dimension}", list(rows.shape))
        refuse_nonfinite(op, rows)
        return normalize(rows) if self.metric == "cosine" else rows

    def _choose_ids(self, count: int, ids: Sequence[int] | None) -> list[int]:
        if ids is None:
            return list(range(self._next, self._next + count))
        chosen = [int(name) for name in ids]
        if len(chosen) != count or len(set(chosen)) != count:
            raise OptionError("add ids", f"{count} ids, each once", f"{len(set(chosen))}")
        for name in chosen:
            if name in self._rows or not 0 <= name < 1 << 62:
                raise OptionError("add ids", "free ids from 0 to 2**62", name)
        return chosen

    def _append(self, block: _Block) -> None:
        at = len(self._blocks)
        self._blocks.append(block)
        self._rows.update((name, (at, row)) for row, name in enumerate(block.ids))
        if len(self._blocks) > _MAX_BLOCKS:
            self._compact()

    def _hits(self, queries: Tensor, count: int) -> list[list[tuple[float, int]]]:
        found: list[list[tuple[float, int]]] = [[] for _ in range(int(queries.shape[0]))]
        for block in self._blocks:
            mask = Tensor.from_buffer(block.mask, DType.U8, (len(block.mask),))
            whole = None if all(block.mask) else mask
            for row, hits in zip(
                found, best_rows(queries, block.vectors, count, whole), strict=True
            ):
                row += [(self._score(score), block.ids[at]) for score, at in hits]
        return [sorted(row, key=lambda hit: (-hit[0], hit[1]))[:count] for row in found]

    def _score(self, score: float) -> float:
        return min(1.0, max(-1.0, score)) if self.metric == "cosine" else score

    def _compact(self) -> None:
        """One block, in the order of ids, without removed rows."""
        if len(self._blocks) <= 1 and all(all(block.mask) for block in self._blocks):
            return
        width = 4 * self.dimension
        data = bytearray()
        ids = array("q", sorted(self._rows))
        for name in ids:
            block, row = self._rows[name]
            vectors = self._blocks[block].vectors.buffer().cast("B")
            data += vectors[row * width : (row + 1) * width]
        self._blocks, self._rows = [], {}
        if ids:
            shape = (len(ids), self.dimension)
            mask = bytearray(b"\1") * len(ids)
            self._append(_Block(Tensor.from_buffer(data, DType.F32, shape), ids, mask))


def _as_tensor(op: str, vectors: Any) -> Tensor:
    """A contiguous [n, d] tensor of f32. Raises ShapeError, DTypeError."""
    if isinstance(vectors, Tensor):
        rows = vectors
    elif hasattr(vectors, "__array_interface__"):
        rows = Tensor.from_numpy(vectors)
    else:
        rows = Tensor(vectors)
    if rows.dtype is not DType.F32:
        raise DTypeError(op, "vectors of f32", rows.dtype, "to_dtype or astype converts")
    if rows.rank != 2:
        raise ShapeError(op, "vectors [n, d]", list(rows.shape))
    return rows.contiguous()


def _tensor(values: array[Any], dtype: DType, shape: tuple[int, int]) -> Tensor:
    return Tensor.from_buffer(values, dtype, shape) if values else Tensor.zeros(shape, dtype)
