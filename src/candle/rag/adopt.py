"""One knowledge base into another: chunks keep their ids, and their vectors where they can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from .batch import Batch, NewChunk
from .chunk import Chunk
from .embed import TextEmbedder
from .ingest import AddReport, Counts, Prepared, Progress, chunk_ids, fit_chunk, groups, store_group
from .snapshot import View, check_row
from .store import Store


@dataclass(frozen=True, slots=True)
class _Stored:
    """A chunk as the other knowledge base has it."""

    document: str
    digest: str
    chunk: NewChunk
    vector: memoryview


def add_knowledge(
    batch: Batch, embedder: TextEmbedder, other: Store, progress: Progress | None = None
) -> AddReport:
    """Adds every document of `other` within the open transaction.

    Vectors are taken over when the same model made them; else the chunks are embedded again.
    """
    counts = Counts()
    with other.reading() as view:
        same = view.snapshot.settings.digest == batch.settings.digest
        (total,) = view.connection.execute("SELECT count(*) FROM documents").fetchone()
        if same:
            _take_over(batch, view, counts, progress, total)
        else:
            _embed_chunks(batch, embedder, view, counts, progress, total)
    return counts.report(())


def _take_over(
    batch: Batch, view: View, counts: Counts, progress: Progress | None, total: int
) -> None:
    for done, (document, digest, chunks) in enumerate(_documents(view), 1):
        known = batch.digests([document]).get(document)
        if known == digest and digest:
            counts.unchanged += 1
        else:
            vectors = memoryview(b"".join(c.vector for c in chunks))
            batch.put(document, digest, [c.chunk for c in chunks], vectors)
            counts.stored(len(chunks), known is not None)
        if progress and (done % 256 == 0 or done == total):
            progress(done, total)


def _embed_chunks(
    batch: Batch,
    embedder: TextEmbedder,
    view: View,
    counts: Counts,
    progress: Progress | None,
    total: int,
) -> None:
    done = 0
    for group in groups(_prepare(batch, embedder, view, counts)):
        store_group(batch, embedder, group, counts)
        done += len(group)
        if progress:
            progress(done, total)


def _prepare(
    batch: Batch, embedder: TextEmbedder, view: View, counts: Counts
) -> Iterator[Prepared | None]:
    for document, digest, chunks in _documents(view):
        known = batch.digests([document]).get(document)
        if known == digest and digest:
            counts.unchanged += 1
            yield None
            continue
        fitted = [_fit(c.chunk, embedder) for c in chunks]
        if any(len(part) > 1 for part in fitted):
            counts.split.append(document)
        new = [chunk for part in fitted for chunk in part]
        yield Prepared(document, digest, known is not None, new)


def _fit(chunk: NewChunk, embedder: TextEmbedder) -> list[NewChunk]:
    part = fit_chunk(Chunk(chunk.text, chunk.start, chunk.stop), embedder)
    ids = chunk_ids(chunk.id, len(part))
    return [
        NewChunk(name, p.start, p.end, p.text, chunk.metadata)
        for name, p in zip(ids, part, strict=True)
    ]


def _documents(view: View) -> Iterator[tuple[str, str, list[_Stored]]]:
    """(id, digest, chunks in order) of each document, one at a time."""
    for document, chunks in groupby(_stored(view), attrgetter("document")):
        found = list(chunks)
        yield document, found[0].digest, found


def _stored(view: View) -> Iterator[_Stored]:
    query = (
        "SELECT document, digest, chunks.id, text, metadata, start, stop, number, segment, row"
        " FROM chunks JOIN documents ON documents.id = document ORDER BY document, number"
    )
    for row in view.connection.execute(query):
        check_row(view.path, row[:8], (str, str, str, str, str, int, int, int))
        document, digest, name, text, metadata, start, stop, number, segment, at = row
        view.metadata(metadata)
        vector = view.vector(number, segment, at)
        yield _Stored(document, digest, NewChunk(name, start, stop, text, metadata), vector)
