"""Knowledge bases as `.candle` files: one database, one segment, the same bytes each time."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from ..dtype import DType
from ..errors import OptionError
from ..formats.atomic import atomic_file
from ..formats.paths import as_path
from ..package.manifest import Embedder as EmbedderEntry
from ..package.manifest import Manifest
from ..package.writer import write_package as write_entries
from .chunk import CHUNK_SIZE, check_sizes
from .embed import TextEmbedder, load_embedder
from .ingest import AddReport, Progress
from .knowledge import KIND
from .location import INDEX, Location
from .origin import portable_name, remember
from .retriever import Retriever, new_settings
from .schema import DATABASE, create_tables, guard
from .segment import VECTORS, SegmentWriter
from .snapshot import View
from .store import Store

_NOT_IN_NAME = re.compile(r"[^a-z0-9._-]+")
_HEADER_FIELDS = ((24, 1), (92, 1), (96, 3_040_000))  # change counter, and who wrote it last


def write_package(
    retriever: Retriever,
    output: str | os.PathLike[str],
    name: str | None = None,
    version: str = "1.0.0",
    license: str = "",
    description: str = "",
) -> Manifest:
    """Writes a knowledge base to the file `output`; its name is the file's stem by default.

    The file depends on the contents alone: not on the order of changes that led to them, on a
    clock or on this machine. Raises PackageError for a name or version that cannot be one.
    """
    output = as_path(output, "write package")
    with TemporaryDirectory(dir=_existing(output.parent), prefix=".candle-") as folder:
        with retriever.store.reading() as view:
            entries = _write_files(view, Path(folder))
            settings = view.snapshot.settings
        model = EmbedderEntry(portable_name(settings.embedder), settings.digest, settings.dimension)
        manifest = Manifest(
            name=package_name(output) if name is None else name,
            version=version,
            kind=KIND,
            license=license,
            description=description,
            embedder=model,
        )
        return write_entries(output, manifest, entries)


def build_package(
    documents: str | Path | Iterable[object],
    output: str | os.PathLike[str],
    embedder: str | os.PathLike[str] | TextEmbedder = "all-minilm-l6-v2",
    chunk_size: int = CHUNK_SIZE,
    overlap: int | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> AddReport:
    """Documents straight to a `.candle` file. Takes and raises what `add_documents` does.

    Raises OptionError too where there is nothing to be found in them.
    """
    output = as_path(output, "write package")
    package_name(output)
    overlap = check_sizes(chunk_size, overlap)
    model = load_embedder(embedder)
    with TemporaryDirectory(dir=_existing(output.parent), prefix=".candle-") as name_of:
        folder = Path(name_of) / "kb"
        Store.create(folder, new_settings(model, chunk_size, overlap))
        with Retriever(Store(Location(folder)), model) as retriever:
            report = retriever.add_documents(documents, progress)
            if not report.chunks:
                refuse_nothing(documents, report)
            write_package(retriever, output, name)
    remember(model)
    return report


def refuse_nothing(documents: object, report: AddReport) -> NoReturn:
    """An empty knowledge base is nobody's wish: says what was looked at."""
    what = documents if isinstance(documents, str | Path) else "the documents"
    seen = [f"{len(report.empty)} without text"] if report.empty else []
    seen += [f"{len(report.skipped)} files of other kinds"] if report.skipped else []
    raise OptionError(f"package of {what}", "documents with text", ", ".join(seen) or "none")


def package_name(output: Path) -> str:
    """The name that a package file gives: its stem in small letters. Raises OptionError."""
    if output.suffix.lower() != ".candle":
        raise OptionError("write package", "a file name that ends in .candle", output.name)
    name = _NOT_IN_NAME.sub("-", output.stem.lower()).strip("._-")
    if not name:
        raise OptionError("write package", "a file name with a letter or digit", output.name)
    return name


def _existing(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write_files(view: View, folder: Path) -> dict[str, Path]:
    """The database and the segment of a package: entry names to files."""
    chunks = _ordered(view)
    for (file,) in view.connection.execute("SELECT file FROM segments").fetchall():
        view.find(file).verify()  # damage must not get a hash of its own
    entries = {DATABASE: folder / DATABASE}
    row: tuple[str, str, int] | None = None
    if chunks:
        file, digest = _write_segment(view, folder, chunks)
        entries[f"{INDEX}/{file.name}"] = file
        row = (file.name, digest, len(chunks))
    with guard("write", folder / DATABASE):
        _write_database(view, folder / DATABASE, chunks, row)
    _settle_header(folder / DATABASE)
    return entries


def _ordered(view: View) -> list[int]:
    """Chunk numbers by document, then by place in it: not by the history of changes."""
    query = "SELECT number FROM chunks ORDER BY document, start, stop, id"
    return [number for (number,) in view.connection.execute(query)]


def _write_segment(view: View, folder: Path, chunks: list[int]) -> tuple[Path, str]:
    partial = folder / "vectors"
    with atomic_file(partial) as stream:
        writer = SegmentWriter(stream, {VECTORS: (DType.F32, view.snapshot.settings.dimension)})
        query = "SELECT segment, row FROM chunks WHERE number = ?"
        for number in chunks:
            segment, row = view.connection.execute(query, (number,)).fetchone()
            writer.write(view.vector(number, segment, row))
        digest = writer.finish(len(chunks))
    return partial.rename(folder / f"00000001-{digest[:16]}.seg"), digest


def _write_database(
    view: View, path: Path, chunks: list[int], segment: tuple[str, str, int] | None
) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA journal_mode = OFF")  # the file is new: nothing to take back
        connection.execute("PRAGMA synchronous = OFF")  # what reads it copies it
        known = view.snapshot.settings
        create_tables(connection, replace(known, base="", embedder=portable_name(known.embedder)))
        connection.execute("BEGIN")
        documents = view.connection.execute("SELECT id, digest FROM documents ORDER BY id")
        connection.executemany("INSERT INTO documents VALUES (?, ?)", documents)
        connection.executemany(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, 1, ?, ?, ?)", _chunk_rows(view, chunks)
        )
        if segment:
            connection.execute("INSERT INTO segments VALUES (1, ?, ?, ?, 0)", segment)
        connection.execute("UPDATE settings SET value = '2' WHERE key = 'next_segment'")
        connection.execute("COMMIT")
        connection.execute("VACUUM")


def _chunk_rows(view: View, chunks: list[int]) -> Iterator[tuple[object, ...]]:
    query = "SELECT id, document, start, stop, metadata, text FROM chunks WHERE number = ?"
    for row, number in enumerate(chunks):
        name, document, start, stop, metadata, text = view.connection.execute(
            query, (number,)
        ).fetchone()
        yield row + 1, name, document, start, stop, row, metadata, text


def _settle_header(path: Path) -> None:
    """Sets the header fields that count writes and name the library's version to fixed values."""
    with path.open("r+b") as file:
        for offset, value in _HEADER_FIELDS:
            file.seek(offset)
            file.write(struct.pack(">I", value))
