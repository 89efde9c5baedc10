"""A knowledge base on disk: consistent reads, one writer at a time, merging in the background.

The layout and the rules of crash safety are in docs/reference/knowledge-base.md.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ..errors import LockedError, OptionError, StoreError
from ..formats.atomic import atomic_file, sync_folder
from ..formats.mapped import Closing
from .batch import Batch
from .location import Location
from .lock import WriterLock
from .merge import segments_to_merge
from .pool import Pool, open_checked
from .schema import REMEDY, Settings, create_tables, guard, read_generation, read_settings
from .snapshot import FindSegment, Snapshot, View, check_counts, load_snapshot

_RETRIES = 100


class BaseChangedWarning(UserWarning):
    """A knowledge base was changed, and then another version of its package installed."""


class Store(Closing):
    """An open knowledge base. Any thread may read and write; `close` waits for a merge."""

    def __init__(self, location: Location, *, check: bool = True) -> None:
        """Opens it, and checks it unless told not to. Raises NameNotFoundError, StoreError."""
        self.location = location
        self._lock = WriterLock(location.lock)
        self._cache_lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._pool = self._new_pool()
        self._merger: threading.Thread | None = None
        self._merge_error: Exception | None = None
        self._closed = False
        self._pid = os.getpid()
        self._tidy = False
        if check:
            self._check()

    @staticmethod
    def create(folder: Path, settings: Settings) -> None:
        """An empty knowledge base in `folder`. Raises OptionError if there is something there."""
        location = Location(folder)
        try:
            if folder.exists() and not folder.is_dir():
                raise OptionError("create", "a folder", f"the file {folder}")
            folder.mkdir(parents=True, exist_ok=True)
        except OptionError:
            raise
        except (OSError, ValueError) as error:  # under a file, too long, a NUL character
            raise OptionError("create", "a folder that can be made", str(error)) from error
        with WriterLock(location.lock).hold():
            strange = [f.name for f in folder.iterdir() if not _is_ours(f.name)]
            if strange:
                raise OptionError("create", "an empty folder", f"{folder} with {strange[0]}")
            if location.database.exists():
                hint = "Retriever.load opens it"
                raise OptionError("create", "a new folder", f"a knowledge base at {folder}", hint)
            with _new_database(location.database) as connection:
                create_tables(connection, settings)

    @property
    def path(self) -> Path:
        """The database that is read at present."""
        return self._pool.path

    @property
    def settings(self) -> Settings:
        """The present settings."""
        with self.reading() as view:
            return view.snapshot.settings

    def __len__(self) -> int:
        """The number of chunks."""
        with self.reading() as view:
            return len(view)

    @contextlib.contextmanager
    def reading(self) -> Iterator[View]:
        """One consistent state, whatever is written meanwhile. Raises StoreError."""
        pool = self._current_pool()
        connection = pool.borrow()
        try:
            with guard("read", pool.path):
                find = self.location.base_segment if pool.immutable else self.location.segment
                yield View(connection, self._begin(pool, connection, find), pool.path, find)
        finally:
            pool.give_back(connection)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Batch]:
        """A transaction: committed when the block ends, taken back if it raises.

        Raises LockedError when another process writes, StoreError.
        """
        self._raise_merge_error()
        with self._lock.hold():
            self._require_open()
            with self._transaction() as batch:
                yield batch
                merge = segments_to_merge(batch.connection) is not None
        if merge:
            self._start_merger()

    def merge(self) -> bool:
        """One step of merging, now; False when there is nothing to merge. Raises LockedError."""
        with self._lock.hold(), self._transaction() as batch:
            chosen = segments_to_merge(batch.connection)
            if chosen is not None:
                batch.merge(chosen)
        return chosen is not None

    def compact(self) -> None:
        """Everything into one segment without dead rows; what was deleted leaves the disk."""
        with self._lock.hold():
            self._require_open()
            with self._transaction() as batch:
                rows = batch.connection.execute("SELECT number, dead FROM segments").fetchall()
                (pending,) = batch.connection.execute("SELECT count(*) FROM pending").fetchone()
                if pending or len(rows) > 1 or any(dead for _, dead in rows):
                    batch.merge([number for number, _ in rows])
            with self._writer() as connection, guard("compact", self.path):
                connection.execute("VACUUM")
                # a reader may hold the journal's end: then a later writer shortens the file
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def verify(self) -> None:
        """Reads everything: database, counts, hashes of all segments. Raises StoreError."""
        with self.reading() as view:
            for (line,) in view.connection.execute("PRAGMA integrity_check"):
                if line != "ok":
                    raise StoreError(f"verify {self.path}", "a sound database", line, REMEDY)
            check_counts(view.connection, self.path)
            for (file,) in view.connection.execute("SELECT file FROM segments").fetchall():
                view.find(file).verify()

    def close(self) -> None:
        """Waits for a merge that runs, then gives all files up; safe to call twice."""
        self._closed = True
        if self._pid == os.getpid() and self._merger is not None:
            self._merger.join()
            self._merger = None
        self._pool.close()
        self._snapshot = None
        if self.location.temporary is not None:
            self.location.temporary.cleanup()
        self._raise_merge_error()

    def wait(self) -> None:
        """Waits until the background has nothing left to merge."""
        while self._merger is not None and self._merger.is_alive():
            self._merger.join()
        self._raise_merge_error()

    def _require_open(self) -> None:
        if self._closed:
            raise StoreError("write", "an open knowledge base", "a closed one")

    def _check(self) -> None:
        try:
            with self.reading() as view:
                check_counts(view.connection, self.path)
                made_from = view.snapshot.settings.base
        except BaseException:
            self.close()
            raise
        base = self.location.base
        if base is not None and made_from not in ("", base.digest):
            message = (
                f"{self.location.folder} holds changes to another version of the installed"
                " package, and is what is read; remove that folder to read the package"
            )
            warnings.warn(BaseChangedWarning(message), stacklevel=4)

    # -- reading -------------------------------------------------------------------------------

    def _new_pool(self) -> Pool:
        base = self.location.base
        if base is not None and self.location.on_base():
            return Pool(base.database, immutable=True)
        return Pool(self.location.database)

    def _current_pool(self) -> Pool:
        """The pool of the installed package, until something was written over it."""
        if self._pid != os.getpid():
            self._after_fork()
        pool = self._pool
        if pool.immutable and self.location.database.exists() and not self._closed:
            with self._cache_lock:
                if self._pool is pool:
                    self._pool, self._snapshot = self._new_pool(), None
            pool.close()
        return self._pool

    def _after_fork(self) -> None:
        self._pid = os.getpid()
        self._cache_lock = threading.Lock()
        self._lock.after_fork()
        self._merger = None

    def _begin(self, pool: Pool, connection: sqlite3.Connection, find: FindSegment) -> Snapshot:
        """Opens a transaction and gives the snapshot that it sees."""
        for _ in range(_RETRIES):
            connection.execute("BEGIN")
            generation = read_generation(connection)
            before = self._snapshot
            if before is not None and before.generation == generation and pool is self._pool:
                return before
            try:
                snapshot = load_snapshot(connection, pool.path, find, before)
            except FileNotFoundError as error:
                connection.execute("ROLLBACK")
                if read_generation(connection) != generation:
                    continue  # a merge replaced the segment after this transaction began
                raise StoreError(
                    f"open {pool.path}", "its segment file", f"no {error.filename}", REMEDY
                ) from None
            self._keep(pool, snapshot)
            return snapshot
        raise StoreError(f"open {pool.path}", "a state that lasts", f"{_RETRIES} changes in a row")

    def _keep(self, pool: Pool, snapshot: Snapshot) -> None:
        with self._cache_lock:
            before = self._snapshot
            newer = before is None or before.generation < snapshot.generation
            if pool is self._pool and newer:
                self._snapshot = snapshot

    # -- writing, with the lock held -----------------------------------------------------------

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sqlite3.Connection]:
        if self.location.read_only:
            raise StoreError(
                f"write to {self.path}",
                "an installed knowledge base or a folder",
                "a package that was only opened",
                "candle install it",
            )
        if self.location.on_base():
            self._copy_base()
        connection = open_checked(self.location.database, write=True)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Batch]:
        with self._writer() as connection, guard("write", self.location.database):
            connection.execute("BEGIN IMMEDIATE")
            if not self._tidy:
                self._remove_strays(connection)
                self._tidy = True
            settings, _ = read_settings(connection, self.location.database)
            try:
                with contextlib.ExitStack() as stack:
                    batch = Batch(connection, self.location, settings, stack)
                    yield batch
                    changed = batch.finish()
                connection.execute("COMMIT" if changed else "ROLLBACK")
            except BaseException:
                self._tidy = False  # a segment may lie there that no commit names
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        for file in batch.retired:
            _remove_file(self.location.index / file)

    def _remove_strays(self, connection: sqlite3.Connection) -> None:
        """Removes what a killed writer left: nothing names it, and its writer is gone."""
        named = {file for (file,) in connection.execute("SELECT file FROM segments")}
        for folder in (self.location.folder, self.location.index):
            for file in folder.glob(".*.tmp*"):
                _remove_file(file)
        for file in self.location.index.glob("*.seg"):
            if file.name not in named:
                _remove_file(file)

    def _copy_base(self) -> None:
        """The database of the installed package becomes ours, and its segments by hard links.

        So nothing is stored twice, and what was changed outlives the package's removal.
        """
        base = self.location.base
        assert base is not None
        self.location.index.mkdir(parents=True, exist_ok=True)
        with _new_database(self.location.database, copy_of=base.database) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for (file,) in connection.execute("SELECT file FROM segments").fetchall():
                _link(self.location.base_segment(file).path, self.location.index / file)
            settings, _ = read_settings(connection, base.database)
            rows = [(v, k) for k, v in replace(settings, base=base.digest).rows()]
            connection.executemany("UPDATE settings SET value = ? WHERE key = ?", rows)
            connection.execute("COMMIT")

    # -- merging -------------------------------------------------------------------------------

    def _start_merger(self) -> None:
        with self._cache_lock:
            if self._closed or (self._merger is not None and self._merger.is_alive()):
                return
            merger = threading.Thread(target=self._merge_all, name="candle-merge")
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                merger.start()
                self._merger = merger

    def _merge_all(self) -> None:
        try:
            while self.merge() and not self._closed:
                pass
        except LockedError:
            pass  # who writes now will merge
        except Exception as error:  # shown by the next write, or by close
            self._merge_error = error

    def _raise_merge_error(self) -> None:
        error, self._merge_error = self._merge_error, None
        if error is not None:
            raise error


@contextlib.contextmanager
def _new_database(path: Path, copy_of: Path | None = None) -> Iterator[sqlite3.Connection]:
    """A database that takes the name `path` when the block ends without an error."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        if copy_of is not None:
            shutil.copyfile(copy_of, partial)
        with guard("create", path):
            connection = sqlite3.connect(partial, isolation_level=None)
            try:
                yield connection
                connection.execute("PRAGMA journal_mode = WAL")
            finally:
                connection.close()
        _sync_file(partial)
        os.replace(partial, path)
        sync_folder(path.parent)
    finally:
        for leftover in path.parent.glob(f"{partial.name}*"):
            _remove_file(leftover)


def _link(source: Path, target: Path) -> None:
    """`target` becomes another name of the file `source`, or a copy where that cannot be."""
    _remove_file(target)  # from a copy of the base that was interrupted
    try:
        os.link(source, target)
    except OSError:
        with atomic_file(target) as copy, source.open("rb") as original:
            shutil.copyfileobj(original, copy, 1 << 20)
    sync_folder(target.parent)


def _sync_file(path: Path) -> None:
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _remove_file(path: Path) -> None:
    with contextlib.suppress(OSError):  # Windows keeps mapped files; a later writer tries again
        path.unlink()


def _is_ours(name: str) -> bool:
    """May `name` be in a folder in which a creation was interrupted?"""
    location = Location(Path())
    known = (location.database.name, location.lock.name, location.index.name)
    return name in known or name.startswith((".documents.", location.database.name))
