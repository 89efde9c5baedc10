"""`documents.sqlite`: its tables, how it is opened, and how its errors become ours.

A file is trusted only after its application id, version and whole schema were compared with what
this module would write: a foreign trigger, view or table is refused before anything is read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import LockedError, StoreError

DATABASE = "documents.sqlite"
APPLICATION_ID = 0x43444C4B  # "CDLK"
VERSION = 1
MAX_DIMENSION = 1 << 16
METRICS = ("cosine",)

TABLES = (
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE documents (id TEXT PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE chunks (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " document TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, segment INTEGER,"
    " row INTEGER, metadata TEXT NOT NULL, text TEXT NOT NULL)",
    "CREATE INDEX chunks_document ON chunks (document)",
    "CREATE UNIQUE INDEX chunks_place ON chunks (segment, row)",
    "CREATE TABLE pending (chunk INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
    "CREATE TABLE segments (number INTEGER PRIMARY KEY, file TEXT NOT NULL, digest TEXT NOT NULL,"
    " rows INTEGER NOT NULL, dead INTEGER NOT NULL)",
    "CREATE TABLE tombstones (segment INTEGER NOT NULL, row INTEGER NOT NULL,"
    " PRIMARY KEY (segment, row)) WITHOUT ROWID",
)
_SCHEMA = frozenset(TABLES)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a knowledge base says of itself: which model made its vectors, and how."""

    embedder: str
    digest: str  # of the model: equal digests make equal vectors
    dimension: int
    chunk_size: int
    overlap: int
    metric: str = "cosine"
    created_by: str = ""
    base: str = ""  # digest of the installed package that this is an overlay of

    def rows(self) -> list[tuple[str, str]]:
        """As rows of the `settings` table."""
        return [
            ("embedder", self.embedder),
            ("embedder_digest", self.digest),
            ("dimension", str(self.dimension)),
            ("metric", self.metric),
            ("chunk_size", str(self.chunk_size)),
            ("overlap", str(self.overlap)),
            ("created_by", self.created_by),
            ("base", self.base),
        ]


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def guard(op: str, path: Path) -> Iterator[None]:
    """SQLite's errors as ours: LockedError where another process holds it, else StoreError.

    A full disk is a StoreError too, whoever meets it.
    """
    try:
        yield
    except UnicodeDecodeError as error:  # of a message in which SQLite quotes a damaged schema
        got = f"text that is not UTF-8 ({error.reason})"
        raise StoreError(f"{op} {path}", "a sound knowledge base", got, REMEDY) from error
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreError(f"{op} {path}", "a disk that takes it", error.strerror) from error
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or type(error).__name__
        got = f"{error} [{name}]"
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise LockedError(f"{op} {path}", "a free database", got) from error
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise StoreError(f"{op} {path}", "a disk that takes it", got) from error
        raise StoreError(f"{op} {path}", "a sound knowledge base", got, REMEDY) from error


REMEDY = "restore it from a copy or build it again from the documents"


def connect(path: Path, *, write: bool = False, immutable: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; never creates the file. Call inside `guard`.

    `write`: statements may change the database; else they only read, though a file that may be
    written is opened so, for only then can the last one to close tidy the journal away.
    `immutable`: the file cannot change (an installed package): no lock, no journal is looked for.
    """
    path = path.absolute()
    mode = "rw" if write or (is_writable(path) and not immutable) else "ro"
    # a journal cannot be made beside a file on a read-only disk; with none there, none is missed
    sealed = not os.access(path.parent, os.W_OK) and not path.with_name(path.name + "-wal").exists()
    uri = f"{path.as_uri()}?mode={mode}" + ("&immutable=1" if immutable or sealed else "")
    connection = sqlite3.connect(
        uri, uri=True, timeout=10.0, isolation_level=None, check_same_thread=False
    )
    try:
        _configure(connection, write)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection, write: bool) -> None:
    # what a hostile file's schema names is not run, and its cells are checked before use
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA query_only = {'OFF' if write else 'ON'}")


def create_tables(connection: sqlite3.Connection, settings: Settings) -> None:
    """Fills an empty database, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in TABLES:
        connection.execute(statement)
    rows = [*settings.rows(), ("generation", "1"), ("next_segment", "1")]
    connection.executemany("INSERT INTO settings VALUES (?, ?)", rows)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError unless this is a knowledge base of a version known here."""
    op = f"open {path}"
    (identity,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if identity != APPLICATION_ID:
        raise StoreError(op, "a knowledge base", f"SQLite application id {identity:#x}")
    if version != VERSION:
        hint = "made by a newer Candle" if version > VERSION else ""
        raise StoreError(op, f"knowledge base version {VERSION}", version, hint)
    rows = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    found = [sql for (sql,) in rows]
    if len(found) != len(TABLES) or set(found) != _SCHEMA:
        odd = next((sql for sql in found if sql not in _SCHEMA), "a table too few")
        raise StoreError(op, f"the tables of version {VERSION}", str(odd)[:120])


def read_settings(connection: sqlite3.Connection, path: Path) -> tuple[Settings, int]:
    """The settings and the generation. Raises StoreError for values outside what is allowed."""
    values: dict[str, str] = dict(connection.execute("SELECT key, value FROM settings"))
    op = f"open {path}"
    try:
        settings = Settings(
            embedder=values["embedder"],
            digest=values["embedder_digest"],
            dimension=int(values["dimension"]),
            chunk_size=int(values["chunk_size"]),
            overlap=int(values["overlap"]),
            metric=values["metric"],
            created_by=values["created_by"],
            base=values["base"],
        )
        generation = int(values["generation"])
    except KeyError as error:
        raise StoreError(op, "all settings", f"no {error.args[0]!r}", REMEDY) from None
    except (ValueError, TypeError):
        raise StoreError(op, "settings that are numbers", _short(values), REMEDY) from None
    if not 1 <= settings.dimension <= MAX_DIMENSION:
        raise StoreError(op, f"a dimension of 1 to {MAX_DIMENSION}", settings.dimension)
    if settings.metric not in METRICS:
        raise StoreError(op, f"one of the metrics {METRICS}", repr(settings.metric))
    if not 0 <= settings.overlap < settings.chunk_size:
        raise StoreError(op, "an overlap below the chunk size", settings)
    return settings, generation


def read_generation(connection: sqlite3.Connection) -> int:
    """The number that every change raises by one. Raises StoreError."""
    row = connection.execute("SELECT value FROM settings WHERE key = 'generation'").fetchone()
    if row is None or not str(row[0]).isascii() or not str(row[0]).isdigit():
        raise StoreError("open knowledge base", "the number of its last change", row, REMEDY)
    return int(row[0])


def is_writable(path: Path) -> bool:
    """May this process write the database and its journal?"""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def _short(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={str(value)[:40]!r}" for key, value in sorted(values.items()))[:300]
