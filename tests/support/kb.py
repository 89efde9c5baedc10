"""A knowledge base at the level of its store, for tests that need no documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from candle.rag.batch import Batch, NewChunk
from candle.rag.location import Location
from candle.rag.schema import Settings
from candle.rag.store import Store

from .rag import HashingEmbedder

EMBEDDER = HashingEmbedder(16)


def settings(embedder: HashingEmbedder = EMBEDDER) -> Settings:
    return Settings(embedder.name, embedder.digest, embedder.dimension, 512, 64)


def create(folder: Path) -> Store:
    """A new, empty one."""
    Store.create(folder, settings())
    return Store(Location(folder))


def put(batch: Batch, texts: Mapping[str, str]) -> None:
    """One chunk a document: {id: text}."""
    vectors = EMBEDDER.embed(list(texts.values())).buffer().cast("B")
    width = 4 * EMBEDDER.dimension
    for i, (name, text) in enumerate(texts.items()):
        chunk = NewChunk(name, 0, len(text), text, "{}")
        batch.put(name, text, [chunk], vectors[i * width : (i + 1) * width])


def add(store: Store, texts: Mapping[str, str]) -> None:
    with store.writing() as batch:
        put(batch, texts)


def numbered(numbers: Iterable[int]) -> dict[str, str]:
    return {f"d{i}": f"text number {i} of kind {i % 7}" for i in numbers}


def contents(store: Store) -> dict[str, str]:
    """{id: text} of everything, found by search: vectors and texts agree, or this fails."""
    with store.reading() as view:
        count = len(view)
        if not count:
            return {}
        found = view.search(EMBEDDER.embed(["text number"]), count)
        assert len(found) == count
        for one in found:
            (same,) = EMBEDDER.embed([one.text]).to_vec()
            (query,) = EMBEDDER.embed(["text number"]).to_vec()
            assert abs(sum(x * y for x, y in zip(same, query, strict=True)) - one.score) < 1e-5
        return {one.id: one.text for one in found}
