"""One write transaction: chunks with their vectors in, documents out, segments merged.

Few vectors wait in SQLite beside their texts; many go into a segment that is written while the
transaction is open and becomes durable just before it commits. Nothing shows until then.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..dtype import DType
from ..errors import OptionError, StoreError
from ..formats.atomic import atomic_file
from .location import Location
from .schema import REMEDY, Settings
from .segment import VECTORS, SegmentWriter

SEGMENT_ROWS = 1024  # from here on vectors go into a segment of their own
_NEW = "INSERT INTO chunks (id, document, start, stop, metadata, text) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A chunk to be stored; `metadata` is canonical JSON."""

    id: str
    start: int
    stop: int
    text: str
    metadata: str


class Batch:
    """What one transaction changes. Made by `Store.writing`, which commits or takes it all back."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        location: Location,
        settings: Settings,
        stack: contextlib.ExitStack,
    ) -> None:
        self.connection = connection
        self.location = location
        self.settings = settings
        self.changed = False
        self.retired: list[str] = []  # segment files that nothing names after the commit
        self._stack = stack
        self._writer: SegmentWriter | None = None
        self._number = 0
        self._file = ""
        self._rows = 0
        self._new_rows = 0

    def digests(self, ids: Sequence[str]) -> dict[str, str]:
        """The content digests of those of the documents that are there."""
        query = "SELECT digest FROM documents WHERE id = ?"
        found = ((name, self.connection.execute(query, (name,)).fetchone()) for name in ids)
        return {name: row[0] for name, row in found if row}

    def put(
        self, document: str, digest: str, chunks: Sequence[NewChunk], vectors: memoryview
    ) -> None:
        """Stores a document, in place of the one with its id if there is one.

        `vectors` holds one row of f32 bytes a chunk. Raises OptionError when a chunk's id is
        taken by a chunk of another document.
        """
        self.changed = True
        query = "SELECT 1 FROM documents WHERE id = ?"
        if self.connection.execute(query, (document,)).fetchone():
            self._remove_documents([document])
        if chunks:
            self.connection.execute("INSERT INTO documents VALUES (?, ?)", (document, digest))
            self._put_chunks(document, chunks, vectors)

    def delete(self, ids: Iterable[str]) -> int:
        """Removes documents by id, or single chunks by theirs; answers how many were there."""
        documents: list[str] = []
        chunks: list[str] = []
        for name in dict.fromkeys(ids):
            for table, names in (("documents", documents), ("chunks", chunks)):
                query = f"SELECT 1 FROM {table} WHERE id = ?"
                if self.connection.execute(query, (name,)).fetchone():
                    names.append(name)
                    break
        self._remove_chunks(chunks)
        self._remove_documents(documents)
        found = len(documents) + len(chunks)
        self.changed = self.changed or found > 0
        return found

    def drop_vectors(self, settings: Settings) -> None:
        """Forgets all vectors, whatever state they are in, and takes other settings.

        For a rebuild: `set_vectors` and `replace` must then give every chunk a vector again.
        """
        files = [file for (file,) in self.connection.execute("SELECT file FROM segments")]
        for table in ("pending", "segments", "tombstones"):
            self.connection.execute(f"DELETE FROM {table}")
        self.connection.execute("UPDATE chunks SET segment = NULL, row = NULL")
        update = "UPDATE settings SET value = ? WHERE key = ?"
        self.connection.executemany(update, [(v, k) for k, v in settings.rows()])
        self.retired += files
        self.settings = settings
        self.changed = True

    def set_vectors(self, chunks: Sequence[int], vectors: memoryview) -> None:
        """Gives chunks, by number, their vectors."""
        self.changed = True
        for number, vector in zip(chunks, self._rows_of(vectors, len(chunks)), strict=True):
            self._store(number, vector)

    def replace(self, chunk: int, parts: Sequence[NewChunk], vectors: memoryview) -> None:
        """Puts `parts` in the place of a chunk that has no vector."""
        query = "SELECT document FROM chunks WHERE number = ?"
        (document,) = self.connection.execute(query, (chunk,)).fetchone()
        self.connection.execute("DELETE FROM chunks WHERE number = ?", (chunk,))
        self._put_chunks(document, parts, vectors)

    def merge(self, segments: Sequence[int]) -> None:
        """Moves all pending rows, and the live rows of `segments`, into one new segment."""
        numbers, sources = self._sources(segments)
        if not numbers:
            self._drop_segments(segments)
            return
        self._open_segment(move_pending=False)
        update = "UPDATE chunks SET segment = ?, row = ? WHERE number = ?"
        for number, vector in zip(numbers, sources, strict=True):
            self._append(vector)
            self.connection.execute(update, (self._number, self._rows - 1, number))
        self.connection.execute("DELETE FROM pending")
        self._drop_segments(segments)

    def finish(self) -> bool:
        """Makes a segment durable if one was written; True if there is something to commit."""
        if self._writer:
            digest = self._writer.finish(self._rows)
            self._stack.close()  # fsync and rename
            query = "SELECT count(*) FROM tombstones WHERE segment = ?"
            (dead,) = self.connection.execute(query, (self._number,)).fetchone()
            row = (self._number, self._file, digest, self._rows, dead)
            self.connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
        if self.changed:
            self.connection.execute(
                "UPDATE settings SET value = CAST(value AS INTEGER) + 1 WHERE key = 'generation'"
            )
        return self.changed

    def _put_chunks(self, document: str, chunks: Sequence[NewChunk], vectors: memoryview) -> None:
        for chunk, vector in zip(chunks, self._rows_of(vectors, len(chunks)), strict=True):
            self._store(self._insert(document, chunk), vector)

    def _rows_of(self, vectors: memoryview, count: int) -> list[memoryview]:
        width = 4 * self.settings.dimension
        if vectors.nbytes != width * count:
            raise StoreError("put", f"{count} vectors of {width} bytes", vectors.nbytes)
        data = vectors.cast("B")
        return [data[i * width : (i + 1) * width] for i in range(count)]

    def _insert(self, document: str, chunk: NewChunk) -> int:
        fields = (chunk.id, document, chunk.start, chunk.stop, chunk.metadata, chunk.text)
        try:
            return int(self.connection.execute(_NEW, fields).lastrowid or 0)
        except sqlite3.IntegrityError:
            query = "SELECT document FROM chunks WHERE id = ?"
            (other,) = self.connection.execute(query, (chunk.id,)).fetchone()
            raise OptionError(
                f"add document {document!r}",
                f"the id {chunk.id!r} to be free",
                f"a chunk of document {other!r} by that name",
            ) from None

    def _store(self, number: int, vector: memoryview) -> None:
        if self._writer is None and self._new_rows >= SEGMENT_ROWS:
            self._open_segment(move_pending=True)
        self._new_rows += 1
        if self._writer is None:
            self.connection.execute("INSERT INTO pending VALUES (?, ?)", (number, bytes(vector)))
            return
        self._append(vector)
        self.connection.execute(
            "UPDATE chunks SET segment = ?, row = ? WHERE number = ?",
            (self._number, self._rows - 1, number),
        )

    def _append(self, vector: bytes | memoryview) -> None:
        assert self._writer is not None
        self._writer.write(vector)
        self._rows += 1

    def _open_segment(self, move_pending: bool) -> None:
        query = "SELECT value FROM settings WHERE key = 'next_segment'"
        self._number = int(self.connection.execute(query).fetchone()[0])
        self._file = f"{self._number:08d}-{secrets.token_hex(8)}.seg"
        self.connection.execute(
            "UPDATE settings SET value = ? WHERE key = 'next_segment'", (str(self._number + 1),)
        )
        self.location.index.mkdir(exist_ok=True)
        file = self._stack.enter_context(atomic_file(self.location.index / self._file))
        self._writer = SegmentWriter(file, {VECTORS: (DType.F32, self.settings.dimension)})
        self.changed = True
        if move_pending:
            self._move_pending()

    def _move_pending(self) -> None:
        rows = self.connection.execute("SELECT chunk, vector FROM pending ORDER BY chunk")
        places = []
        for number, vector in rows:
            self._append(vector)
            places.append((self._number, self._rows - 1, number))
        self.connection.executemany(
            "UPDATE chunks SET segment = ?, row = ? WHERE number = ?", places
        )
        self.connection.execute("DELETE FROM pending")

    def _sources(self, segments: Sequence[int]) -> tuple[array[int], list[memoryview]]:
        """Chunk numbers in order, and where the vector of each lies."""
        width = 4 * self.settings.dimension
        found: list[tuple[int, memoryview]] = []
        for number, vector in self.connection.execute("SELECT chunk, vector FROM pending"):
            found.append((number, memoryview(vector)))
        for segment in segments:
            query = "SELECT file FROM segments WHERE number = ?"
            (file,) = self.connection.execute(query, (segment,)).fetchone()
            source = self.location.segment(file)
            source.verify()  # damage must not get a hash of its own
            data = source.vectors(self.settings.dimension)
            query = "SELECT number, row FROM chunks WHERE segment = ?"
            for number, row in self.connection.execute(query, (segment,)):
                found.append((number, data[row * width : (row + 1) * width]))
        found.sort(key=lambda pair: pair[0])
        if any(len(vector) != width for _, vector in found):
            raise StoreError("merge", f"vectors of {width} bytes", "one of another size", REMEDY)
        return array("q", (n for n, _ in found)), [v for _, v in found]

    def _drop_segments(self, segments: Sequence[int]) -> None:
        for number in segments:
            query = "SELECT file FROM segments WHERE number = ?"
            self.retired += [file for (file,) in self.connection.execute(query, (number,))]
            self.connection.execute("DELETE FROM segments WHERE number = ?", (number,))
            self.connection.execute("DELETE FROM tombstones WHERE segment = ?", (number,))
            self.changed = True

    def _remove_documents(self, ids: Sequence[str]) -> None:
        self._remove("document", ids)
        rows = [(name,) for name in ids]
        self.connection.executemany("DELETE FROM documents WHERE id = ?", rows)

    def _remove_chunks(self, ids: Sequence[str]) -> None:
        """Single chunks; what is left of their documents is no longer what was added."""
        owners = "SELECT document FROM chunks WHERE id = ?"
        documents = [row for name in ids for row in self.connection.execute(owners, (name,))]
        self._remove("id", ids)
        self.connection.executemany("UPDATE documents SET digest = '' WHERE id = ?", documents)
        self.connection.executemany(
            "DELETE FROM documents WHERE id = ? AND NOT EXISTS"
            " (SELECT 1 FROM chunks WHERE document = documents.id)",
            documents,
        )

    def _remove(self, column: str, names: Sequence[str]) -> None:
        """Deletes the chunks whose `column` is one of `names`, one statement a name: no limit."""
        run = self.connection.execute
        run("CREATE TEMP TABLE IF NOT EXISTS doomed (number INTEGER PRIMARY KEY)")
        self.connection.executemany(
            f"INSERT OR IGNORE INTO doomed SELECT number FROM chunks WHERE {column} = ?",
            [(name,) for name in names],
        )
        if run("SELECT 1 FROM doomed").fetchone() is None:
            return
        run(
            "INSERT INTO tombstones SELECT segment, row FROM chunks JOIN doomed USING (number)"
            " WHERE segment IS NOT NULL"
        )
        counts = run(
            "SELECT count(*), segment FROM chunks JOIN doomed USING (number)"
            " WHERE segment IS NOT NULL GROUP BY segment"
        ).fetchall()
        self.connection.executemany("UPDATE segments SET dead = dead + ? WHERE number = ?", counts)
        run("DELETE FROM pending WHERE chunk IN (SELECT number FROM doomed)")
        run("DELETE FROM chunks WHERE number IN (SELECT number FROM doomed)")
        run("DELETE FROM doomed")
