"""`Retriever`: a knowledge base with the model that made its vectors.

retriever = Retriever.create("notes", embedder="all-minilm-l6-v2")
retriever.add_documents("docs/")
for document in retriever.search("how are backups made?"):
    print(f"{document.score:.3f} {document.text[:80]}")
"""

from __future__ import annotations

import operator
import os
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import OptionError, StoreError
from ..formats.mapped import Closing
from ..formats.paths import as_path
from ..package.manifest import created_by
from .adopt import add_knowledge
from .chunk import CHUNK_SIZE, check_sizes
from .documents import PACKAGE_SUFFIX, check_ids
from .embed import TextEmbedder, load_embedder
from .filter import compile_filter
from .ingest import AddReport, Progress, add_all, open_source
from .knowledge import find_knowledge, verify_package
from .location import Location
from .origin import open_embedder, portable_name, remember
from .rebuild import embed_again
from .schema import DATABASE, Settings
from .snapshot import Found
from .store import Store
from .topk import refuse_nonfinite

DENSE = "dense"
MODES = ("hybrid", "dense", "lexical")


@dataclass(frozen=True, slots=True)
class Document:
    """A chunk that a search found.

    `id` names the chunk and `document` the document it is part of; `score` orders the results
    and `scores` holds that of each leg: {"dense": cosine}.
    """

    id: str
    text: str
    score: float
    scores: dict[str, float]
    metadata: dict[str, Any] = field(default_factory=dict)
    document: str = ""


class Retriever(Closing):
    """An open knowledge base. Several threads may search and add at once; a context manager."""

    def __init__(self, store: Store, embedder: TextEmbedder) -> None:
        """Joins a store and its model. Raises StoreError if the vectors are another model's."""
        self._store = store
        self._embedder = embedder
        check_model(store.settings, embedder, str(store.path))

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        embedder: str | os.PathLike[str] | TextEmbedder = "all-minilm-l6-v2",
        chunk_size: int = CHUNK_SIZE,
        overlap: int | None = None,
    ) -> Retriever:
        """A new knowledge base in the folder `path`; `chunk_size` and `overlap` in characters.

        Without an `overlap` it is an eighth of the chunk size.
        Raises OptionError when something is there already, NameNotFoundError for the embedder.
        """
        overlap = check_sizes(chunk_size, overlap)
        folder = as_path(path, "knowledge base")
        model = load_embedder(embedder)
        Store.create(folder, new_settings(model, chunk_size, overlap))
        remember(model)
        return cls(Store(Location(folder)), model)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str],
        embedder: str | os.PathLike[str] | TextEmbedder | None = None,
    ) -> Retriever:
        """An installed knowledge base by its name, or one at a path.

        `embedder` says where its model is, if not under the name that the knowledge base has for
        it; another model is refused. A path in the knowledge base is not followed: one that is
        given here is remembered on this machine. Raises NameNotFoundError, StoreError for a
        damaged one.
        """
        store = Store(find_knowledge(name))
        try:
            if embedder is None:
                return cls(store, open_embedder(store.settings, f"{os.fspath(name)!r}"))
            opened = cls(store, load_embedder(embedder))
            remember(opened.embedder)
            return opened
        except BaseException:
            store.close()
            raise

    @classmethod
    def rebuild(
        cls,
        name: str | os.PathLike[str],
        embedder: str | os.PathLike[str] | TextEmbedder | None = None,
        progress: Progress | None = None,
    ) -> Retriever:
        """Makes all vectors anew from the stored texts, with another embedder if one is given.

        Works where `load` refuses: the model changed, or vectors are damaged or missing.
        """
        store = Store(find_knowledge(name), check=False)
        try:
            embed_again(store, embedder, progress)
        finally:
            store.close()
        return cls.load(name, embedder)

    @property
    def embedder(self) -> TextEmbedder:
        """The model that made the vectors."""
        return self._embedder

    @property
    def path(self) -> Path:
        """The database that is read at present."""
        return self._store.path

    @property
    def store(self) -> Store:
        """The files underneath."""
        return self._store

    def __len__(self) -> int:
        """The number of chunks that can be found."""
        return len(self._store)

    def __repr__(self) -> str:
        return f"Retriever({str(self.path)!r}, {self._embedder!r})"

    def add_documents(
        self, documents: str | os.PathLike[str] | Iterable[object], progress: Progress | None = None
    ) -> AddReport:
        """Adds a file, a folder, a `.candle`, or a list of strings or of mappings with `text`
        and optionally `id` and `metadata`. A document whose id is there replaces that one.

        All or nothing: searchable when this returns, unseen before, and undone if it raises.
        `progress` gets (documents done, documents in all or None). Raises FormatError for what
        cannot be read, LockedError when another process writes.
        """
        if isinstance(documents, str | os.PathLike) and is_knowledge(documents):
            return self._add_knowledge(Path(documents), progress)
        source = open_source(documents)
        with self._store.writing() as batch:
            check_model(batch.settings, self._embedder, str(self.path))
            return add_all(batch, self._embedder, source, progress)

    def delete(self, ids: str | Iterable[str]) -> int:
        """Removes documents, with all their chunks, or single chunks, by id.

        Answers how many of the ids were there.
        """
        names = check_ids(ids)
        with self._store.writing() as batch:
            return batch.delete(names)

    def search(
        self,
        query: str,
        top_k: int = 3,
        filter: Mapping[str, Any] | None = None,
        mode: str = DENSE,
    ) -> list[Document]:
        """The `top_k` chunks nearest to `query` by cosine, best first, equal ones by id.

        `filter` keeps chunks by metadata: {"lang": "en", "year": {"$gte": 2020}}. Fewer than
        `top_k` come back when fewer match. A query without a letter or digit finds nothing.
        Raises OptionError for arguments that make no sense.
        """
        count = _check_search(query, top_k, mode)
        keep = None if filter is None else compile_filter(filter)
        if not has_words(query):
            return []
        vector = self._embedder.embed([query])
        refuse_nonfinite("search query", vector)
        with self._store.reading() as view:
            check_model(view.snapshot.settings, self._embedder, str(self.path))
            found = view.search(vector, count, keep)
        return [_document(f) for f in found]

    def compact(self) -> None:
        """Merges everything into one segment and gives the space of deleted chunks back."""
        self._store.compact()

    def verify(self) -> None:
        """Reads and checks every byte. Raises StoreError for what is damaged."""
        self._store.verify()

    def close(self) -> None:
        """Waits for a merge that runs and gives the files up; safe to call twice."""
        self._store.close()

    def _add_knowledge(self, path: Path, progress: Progress | None) -> AddReport:
        if path.is_file():
            verify_package(path)
        with Store(find_knowledge(path)) as other, self._store.writing() as batch:
            check_model(batch.settings, self._embedder, str(self.path))
            return add_knowledge(batch, self._embedder, other, progress)


def new_settings(embedder: TextEmbedder, chunk_size: int, overlap: int) -> Settings:
    """The settings of a knowledge base made with `embedder`."""
    name = portable_name(embedder.name)
    settings = Settings(name, embedder.digest, embedder.dimension, chunk_size, overlap)
    return replace(settings, created_by=created_by())


def check_model(settings: Settings, embedder: TextEmbedder, where: str) -> None:
    """Raises StoreError unless `embedder` made the vectors; it names both."""
    hint = "Retriever.rebuild makes the vectors anew"
    if settings.dimension != embedder.dimension:
        raise StoreError(
            f"open {where}",
            f"an embedder of dimension {settings.dimension} ({settings.embedder})",
            f"{embedder.dimension} ({embedder.name})",
            hint,
        )
    if settings.digest != embedder.digest:
        raise StoreError(
            f"open {where}",
            f"the embedder {settings.embedder} with digest {settings.digest}",
            f"{embedder.name} with {embedder.digest}",
            hint,
        )


def is_knowledge(path: str | os.PathLike[str]) -> bool:
    """Is `path` a `.candle` file or the folder of a knowledge base, rather than of documents?"""
    path = as_path(path, "add documents")
    return path.suffix.lower() == PACKAGE_SUFFIX or os.path.isfile(path / DATABASE)


def has_words(query: str) -> bool:
    """Is there a letter or a digit, of any script?"""
    return any(unicodedata.category(c)[0] in "LN" for c in query)


def _check_search(query: object, top_k: object, mode: object) -> int:
    if not isinstance(query, str):
        raise OptionError("search query", "a string", type(query).__name__)
    try:
        query.encode()
    except UnicodeEncodeError as error:
        lone = f"U+{ord(query[error.start]):04X} at character {error.start}"
        raise OptionError("search query", "text without lone surrogates", lone) from None
    if mode not in MODES:
        raise OptionError("search mode", f"one of {', '.join(MODES)}", repr(mode))
    if mode != DENSE:
        raise OptionError("search mode", "'dense' in this version", repr(mode))
    try:
        count = operator.index(top_k)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError("search top_k", "a whole number from 1", repr(top_k)) from None
    if isinstance(top_k, bool) or count < 1:
        raise OptionError("search top_k", "a whole number from 1", repr(top_k))
    return count


def _document(found: Found) -> Document:
    scores = {DENSE: found.score}
    return Document(found.id, found.text, found.score, scores, found.metadata, found.document)
