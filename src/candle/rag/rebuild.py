"""All vectors of a knowledge base made anew, from nothing but the texts in its database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from .batch import Batch, NewChunk
from .chunk import Chunk
from .embed import TextEmbedder, load_embedder
from .ingest import GROUP, Progress, chunk_ids, embed_checked, fit_chunk
from .origin import open_embedder, portable_name, remember
from .snapshot import check_row
from .store import Store

_Row = tuple[int, str, int, str, str]  # number, id, start, metadata, text


def embed_again(
    store: Store,
    embedder: str | os.PathLike[str] | TextEmbedder | None,
    progress: Progress | None = None,
) -> None:
    """Embeds every chunk of `store` again, in one transaction; ids stay.

    A chunk beyond the window of the new model is split into "id#1", "id#2" and so on.
    """
    with store.writing() as batch:
        if embedder is None:
            model: TextEmbedder = open_embedder(batch.settings, str(store.location.folder))
        else:
            model = load_embedder(embedder)
        remember(model)
        batch.drop_vectors(
            replace(
                batch.settings,
                embedder=portable_name(model.name),
                digest=model.digest,
                dimension=model.dimension,
            )
        )
        (total,) = batch.connection.execute("SELECT count(*) FROM chunks").fetchone()
        done = 0
        for group in _groups(batch):
            _embed_group(batch, model, group)
            done += len(group)
            if progress:
                progress(done, total)


def _groups(batch: Batch) -> Iterator[list[_Row]]:
    """All chunks, in the order of their numbers, read ahead of what is written."""
    (last,) = batch.connection.execute("SELECT max(number) FROM chunks").fetchone()
    query = (
        "SELECT number, id, start, metadata, text FROM chunks"
        " WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
    )
    after = 0
    while rows := batch.connection.execute(query, (after, last or 0, GROUP)).fetchall():
        for row in rows:
            check_row(batch.location.database, row, (int, str, int, str, str))
        after = rows[-1][0]
        yield rows


def _embed_group(batch: Batch, model: TextEmbedder, group: list[_Row]) -> None:
    width = 4 * model.dimension
    pieces = [fit_chunk(Chunk(row[4], row[2], row[2] + len(row[4])), model) for row in group]
    data = embed_checked(model, [p.text for part in pieces for p in part]).buffer().cast("B")
    at = 0
    for row, part in zip(group, pieces, strict=True):
        vectors = data[at * width : (at + len(part)) * width]
        at += len(part)
        if len(part) == 1:
            batch.set_vectors([row[0]], vectors)
        else:
            batch.replace(row[0], _new_chunks(row, part), vectors)


def _new_chunks(row: _Row, part: list[Chunk]) -> list[NewChunk]:
    ids = chunk_ids(row[1], len(part))
    return [
        NewChunk(name, p.start, p.end, p.text, row[3]) for name, p in zip(ids, part, strict=True)
    ]
