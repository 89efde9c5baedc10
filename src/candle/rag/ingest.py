"""Documents into a knowledge base: split, embed, store, in groups of bounded size."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ..errors import OptionError
from ..formats.paths import as_path
from ..tensor import Tensor
from .batch import Batch, NewChunk
from .chunk import Chunk, chunk_markdown, chunk_text, split_to_fit
from .documents import (
    SourceDocument,
    check_documents,
    encode_metadata,
    folder_files,
    read_documents,
)
from .embed import TextEmbedder
from .topk import refuse_nonfinite

GROUP = 512  # chunks embedded together: enough to sort by length, little enough to hold

Progress = Callable[[int, "int | None"], None]


@dataclass(frozen=True, slots=True)
class AddReport:
    """What `add_documents` did. Counts are of documents, but for `chunks`."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0  # already there with the same content
    chunks: int = 0  # stored with their vectors
    split: tuple[str, ...] = ()  # ids of documents with a chunk beyond the model's window
    empty: tuple[str, ...] = ()  # ids of documents without text: nothing is stored of them
    skipped: tuple[str, ...] = ()  # files in a folder that are of no known kind


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document that is new or changed, split and ready to be embedded."""

    id: str
    digest: str
    known: bool
    chunks: list[NewChunk]


@dataclass(slots=True)
class Counts:
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    chunks: int = 0
    split: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)

    def stored(self, chunks: int, known: bool) -> None:
        """Counts a document that was stored, with none of its chunks if it says nothing."""
        self.chunks += chunks
        self.updated += known
        self.added += not known and chunks > 0

    def report(self, skipped: tuple[str, ...]) -> AddReport:
        """As what the user gets."""
        return AddReport(
            self.added,
            self.updated,
            self.unchanged,
            self.chunks,
            tuple(self.split),
            tuple(self.empty),
            skipped,
        )


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be added: documents to iterate over, how many if known, files left out."""

    documents: Iterable[SourceDocument]
    total: int | None
    skipped: tuple[str, ...] = ()


def open_source(documents: object) -> Source:
    """A path, or a list of strings and mappings, as a Source.

    Files are read once to the end here, so that an error in their last line shows before
    anything is embedded. Raises FormatError, NameNotFoundError, OptionError.
    """
    if isinstance(documents, str | os.PathLike):
        path = as_path(documents, "add documents")
        count = sum(1 for _ in read_documents(path))
        other = folder_files(path)[1] if os.path.isdir(path) else []
        return Source(read_documents(path), count, tuple(str(file) for file in other))
    if isinstance(documents, Iterable):
        total = len(documents) if isinstance(documents, (list, tuple)) else None
        return Source(check_documents(documents), total)
    raise OptionError("add documents", "a path or a list of documents", type(documents).__name__)


def add_all(
    batch: Batch, embedder: TextEmbedder, source: Source, progress: Progress | None = None
) -> AddReport:
    """Adds every document within the open transaction. Raises what reading and embedding raise."""
    counts = Counts()
    done = 0
    for group in groups(_prepare(batch, embedder, source.documents, counts)):
        store_group(batch, embedder, group, counts)
        done += len(group)
        if progress:
            progress(done, source.total)
    return counts.report(source.skipped)


def split_document(
    document: SourceDocument, chunk_size: int, overlap: int, embedder: TextEmbedder
) -> tuple[list[Chunk], bool]:
    """The chunks of a document that say something, all within the model's window.

    True when a chunk had to be split for the window.
    """
    cut = chunk_markdown if document.format == "markdown" else chunk_text
    whole = [c for c in cut(document.text, chunk_size, overlap) if says_something(c.text)]
    parts = [fit_chunk(chunk, embedder) for chunk in whole]
    return [p for part in parts for p in part], any(len(part) > 1 for part in parts)


def fit_chunk(chunk: Chunk, embedder: TextEmbedder) -> list[Chunk]:
    """`chunk` in pieces that the model takes whole."""
    pieces = split_to_fit(chunk.text, lambda t: len(embedder.tokenize(t)), embedder.max_tokens)
    return [
        Chunk(p.text, chunk.start + p.start, chunk.start + p.end, chunk.metadata)
        for p in pieces
        if says_something(p.text)
    ]


def says_something(text: str) -> bool:
    """Is there any character but white space and invisible ones?"""
    return any(not c.isspace() and unicodedata.category(c)[0] != "C" for c in text)


def chunk_ids(document: str, count: int) -> list[str]:
    """The ids of a document's chunks: its own for a single one, else "id#1", "id#2", ..."""
    return [document] if count == 1 else [f"{document}#{n}" for n in range(1, count + 1)]


def embed_checked(embedder: TextEmbedder, texts: list[str]) -> Tensor:
    """Normalised vectors, none of a cut text. Raises OptionError for NaN or infinity in one."""
    vectors = embedder.embed(texts, normalize=True, truncate="error")
    refuse_nonfinite(f"embed with {embedder.name}", vectors)
    return vectors


def _prepare(
    batch: Batch, embedder: TextEmbedder, documents: Iterable[SourceDocument], counts: Counts
) -> Iterator[Prepared | None]:
    """Each document, split; None for one that is there already, as it is."""
    seen: dict[str, int] = {}  # the start of the digest: a million documents must fit
    for document in documents:
        digest = document.digest()
        short = int(digest[:16], 16)
        twice = document.id in seen
        if seen.setdefault(document.id, short) != short:
            raise OptionError(document.where, "an id used once", f"{document.id!r} again")
        stored = batch.digests([document.id]).get(document.id)
        if twice or stored == digest:
            counts.unchanged += 1
            yield None
        else:
            chunks = _new_chunks(document, batch, embedder, counts)
            yield Prepared(document.id, digest, stored is not None, chunks)


def _new_chunks(
    document: SourceDocument, batch: Batch, embedder: TextEmbedder, counts: Counts
) -> list[NewChunk]:
    settings = batch.settings
    chunks, split = split_document(document, settings.chunk_size, settings.overlap, embedder)
    if split:
        counts.split.append(document.id)
    if not chunks:
        counts.empty.append(document.id)
    ids = chunk_ids(document.id, len(chunks))
    where = document.where
    return [
        NewChunk(
            name, c.start, c.end, c.text, encode_metadata(document.metadata | c.metadata, where)
        )
        for name, c in zip(ids, chunks, strict=True)
    ]


def groups(prepared: Iterable[Prepared | None]) -> Iterator[list[Prepared | None]]:
    """Documents in groups of about GROUP chunks."""
    group: list[Prepared | None] = []
    size = 0
    for item in prepared:
        group.append(item)
        size += len(item.chunks) if item else 0
        if size >= GROUP or len(group) >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def store_group(
    batch: Batch, embedder: TextEmbedder, group: list[Prepared | None], counts: Counts
) -> None:
    """Embeds the chunks of a group together, and stores its documents."""
    items = [item for item in group if item is not None]
    texts = [chunk.text for item in items for chunk in item.chunks]
    data = embed_checked(embedder, texts).buffer().cast("B") if texts else memoryview(b"")
    width = 4 * batch.settings.dimension
    at = 0
    for item in items:
        end = at + len(item.chunks)
        batch.put(item.id, item.digest, item.chunks, data[at * width : end * width])
        at = end
        counts.stored(len(item.chunks), item.known)
