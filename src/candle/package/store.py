"""The content-addressed store of installed packages, under CANDLE_HOME (default ~/.candle).

    layers/sha256/ab/<hex>                  an entry's bytes, named by their hash, shared
    packages/<name>/<version>/manifest.toml what makes a package visible: written last, whole
    tmp/                                    work of an installation that runs, or was interrupted
    cache/                                  files that can be made again
    lock                                    one writer at a time

Readers take no lock. Whatever is interrupted leaves files that no manifest names; the next
installation and `gc` remove them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from packaging.version import Version

from ..errors import NameNotFoundError, PackageError, StoreError
from ..formats.atomic import sync_folder
from ..formats.paths import as_path
from .format import MANIFEST
from .lock import FileLock
from .manifest import Entry, Manifest, check_name, check_version, is_digest
from .reader import PackageReader

Progress = Callable[[int, int], None]  # bytes done, bytes in all

WAIT = 600.0  # seconds to wait for another installation
_CHUNK = 4 << 20


def default_home() -> Path:
    """CANDLE_HOME, or `.candle` in the user's home. Raises StoreError if there is neither."""
    chosen = os.environ.get("CANDLE_HOME")
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        return Path.home() / ".candle"
    except RuntimeError:
        raise StoreError("store", "a home folder", "none", "set CANDLE_HOME") from None


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package in the store, under the `name` it was installed as.

    `digest` is of its manifest, and so of all its contents; `was_present` is true if an
    installation found it there already.
    """

    name: str
    manifest: Manifest
    digest: str
    home: Path
    was_present: bool = False

    @property
    def version(self) -> str:
        """The version that its manifest states."""
        return self.manifest.version

    @property
    def size(self) -> int:
        """Bytes of all its entries; layers shared with other packages are counted too."""
        return sum(entry.size for entry in self.manifest.entries)

    def __contains__(self, entry: object) -> bool:
        return any(e.path == entry for e in self.manifest.entries)

    def path(self, entry: str) -> Path:
        """The file that holds an entry, to be read and never written.

        Raises StoreError if the package has no such entry, or its layer is gone.
        """
        for found in self.manifest.entries:
            if found.path == entry:
                return _present(layer_path(self.home, found.sha256), self.name, entry)
        names = ", ".join(e.path for e in self.manifest.entries[:10])
        raise StoreError(f"package {self.name}", f"an entry named {entry!r}", names)


class Store:
    """The store at `home`. Methods that change it take its lock, and wait `wait` s for it."""

    def __init__(self, home: str | os.PathLike[str] | None = None, wait: float = WAIT) -> None:
        """Nothing is created until something is installed."""
        self.home = default_home() if home is None else as_path(home, "store").absolute()
        self._wait = wait

    def install(
        self,
        path: str | os.PathLike[str],
        as_name: str | None = None,
        progress: Progress | None = None,
        replace: bool = False,
    ) -> InstalledPackage:
        """Install a `.candle` file, under another name if `as_name` is given.

        All of it is verified before any of it is visible. The same contents under the same name
        and version change nothing (`was_present`); other contents need `replace`.
        Raises PackageError for the file, StoreError for the store, LockedError, OSError.
        """
        path = as_path(path, "install")
        op = f"install {path}"
        with PackageReader.open(path) as package:
            name = package.manifest.name if as_name is None else as_name
            check_name(name, op)
            with self._writing(op):
                present = self._present(name, package.manifest.version)
                if present is not None and present.digest != package.digest:
                    _refuse_other(op, present, package, replace)
                elif present is not None and self._is_whole(present):
                    package.verify()  # what is here is whole; what was given may not be
                    return dataclasses.replace(present, was_present=True)
                self._add_layers(op, package, progress)
                self._publish(name, package)
        return self.get(name, package.manifest.version)

    def list(self) -> Sequence[InstalledPackage]:
        """All packages, by name, then version. Raises StoreError if a manifest is damaged."""
        found = [self._load(p.parent.parent.name, p) for p in self._manifests("*")]
        return sorted(found, key=lambda p: (p.name, Version(p.version)))

    def get(self, name: str, version: str | None = None) -> InstalledPackage:
        """A package, the latest version if none is given. Raises NameNotFoundError, StoreError."""
        versions = self._versions(name)
        if not versions:
            names = sorted({p.parent.parent.name for p in self._manifests("*")})
            near = ", ".join(difflib.get_close_matches(name, names, 3) or names[:5])
            hint = f"installed are: {near}" if near else "nothing is installed"
            raise NameNotFoundError(f"package {name!r}", "an installed package", "none", hint)
        if version is None:
            version = max(versions, key=Version)
        elif version not in versions:
            here = ", ".join(sorted(versions, key=Version))
            raise NameNotFoundError(f"package {name!r}", f"version {version}", here)
        return self._load(name, self._folder(name, version) / MANIFEST)

    def remove(self, name: str, version: str | None = None) -> Sequence[str]:
        """Remove a package, or one version of it; the versions removed.

        Its layers stay until `gc`. Works on damaged packages too. Raises NameNotFoundError.
        """
        with self._writing(f"remove {name}"):
            versions = self._versions(name)
            chosen = [v for v in versions if version in (None, v)]
            if not chosen:
                raise NameNotFoundError(
                    f"remove {name!r}", version or "an installed package", "none"
                )
            for each in chosen:
                folder = self._folder(name, each)
                (folder / MANIFEST).unlink()
                _remove_empty(folder)
                _remove_empty(folder.parent)
        return sorted(chosen, key=Version)

    def verify(self, name: str, version: str | None = None) -> InstalledPackage:
        """Hash every layer of a package. Raises StoreError that lists the damaged entries."""
        package = self.get(name, version)
        damaged = [
            entry.path
            for entry in package.manifest.entries
            if not _holds(layer_path(self.home, entry.sha256), entry)
        ]
        if damaged:
            names = ", ".join(damaged[:10])
            hint = "install it again to repair it"
            raise StoreError(f"verify {name} {package.version}", "whole layers", names, hint)
        return package

    def gc(self) -> int:
        """Remove layers that no package names, and remains of interruptions; the bytes freed.

        Raises StoreError, and removes nothing, if a manifest is damaged: it may name any layer.
        """
        with self._writing("gc"):
            named = {e.sha256 for package in self.list() for e in package.manifest.entries}
            freed = 0
            for layer in (self.home / "layers" / "sha256").glob("*/*"):
                if layer.name not in named:
                    freed += _unlink(layer)
            for folder in (self.home / "packages").glob("*/*"):
                _remove_empty(folder)
                _remove_empty(folder.parent)
        return freed

    @contextlib.contextmanager
    def _writing(self, op: str) -> Iterator[None]:
        """The lock, with a clean tmp/, and the disk's refusals in words."""
        with _disk_errors(op, self.home):
            self.home.mkdir(parents=True, exist_ok=True)
            with FileLock(self.home / "lock", f"the store {self.home}", self._wait):
                # whoever holds the lock owns tmp/: what is there was interrupted
                shutil.rmtree(self.home / "tmp", ignore_errors=True)
                (self.home / "tmp").mkdir(exist_ok=True)
                yield

    def _manifests(self, name: str) -> Iterator[Path]:
        """The manifests of packages that match `name`; whatever is not ours is passed over."""
        for path in sorted((self.home / "packages").glob(f"{name}/*/{MANIFEST}")):
            with contextlib.suppress(PackageError):
                check_name(path.parent.parent.name, "")
                check_version(path.parent.name, "")
                yield path

    def _folder(self, name: str, version: str) -> Path:
        check_version(version, f"package {name!r}")
        return self.home / "packages" / name / version

    def _versions(self, name: str) -> Sequence[str]:
        check_name(name, "package")
        return [path.parent.name for path in self._manifests(name)]

    def _load(self, name: str, path: Path) -> InstalledPackage:
        try:
            data = path.read_bytes()
            manifest = Manifest.from_toml(data, f"manifest {path}")
        except (OSError, PackageError) as error:
            hint = f"`candle remove {name}`, then install it again"
            raise StoreError(f"package {name}", "a readable manifest", error, hint) from error
        if manifest.version != path.parent.name:
            raise StoreError(f"package {name}", f"version {path.parent.name}", manifest.version)
        return InstalledPackage(name, manifest, f"sha256:{sha256(data).hexdigest()}", self.home)

    def _present(self, name: str, version: str) -> InstalledPackage | None:
        path = self._folder(name, version) / MANIFEST
        return self._load(name, path) if path.exists() else None

    def _is_whole(self, package: InstalledPackage) -> bool:
        """Whether every layer is there with its size; `verify` hashes them too."""
        layers = ((layer_path(self.home, e.sha256), e.size) for e in package.manifest.entries)
        return all(path.is_file() and path.stat().st_size == size for path, size in layers)

    def _add_layers(self, op: str, package: PackageReader, progress: Progress | None) -> None:
        entries = package.manifest.entries
        absent = {e.sha256: e.size for e in entries if not layer_path(self.home, e.sha256).exists()}
        needed, free = sum(absent.values()), shutil.disk_usage(self.home).free
        if needed > free:
            raise StoreError(op, f"{needed} bytes free in {self.home}", free, _DISK_HINT)
        done, total = 0, sum(e.size for e in entries)
        for entry in entries:
            self._add_layer(package, entry)
            done += entry.size
            if progress is not None:
                progress(done, total)

    def _add_layer(self, package: PackageReader, entry: Entry) -> None:
        """The layer of an entry, unless one with its hash is there already."""
        final = layer_path(self.home, entry.sha256)
        if _holds(final, entry):
            return
        partial = self.home / "tmp" / entry.sha256
        package.extract(entry.path, partial)
        if os.name != "nt":  # there, a read-only file could not be removed later
            partial.chmod(0o444)
        final.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, final)
        sync_folder(final.parent)

    def _publish(self, name: str, package: PackageReader) -> None:
        """The step that makes a package visible: its manifest appears, whole."""
        partial = self.home / "tmp" / os.urandom(8).hex()
        package.extract(MANIFEST, partial)
        folder = self._folder(name, package.manifest.version)
        folder.mkdir(parents=True, exist_ok=True)
        os.replace(partial, folder / MANIFEST)
        for parent in (folder, folder.parent, folder.parent.parent):
            sync_folder(parent)


_DISK_HINT = "set CANDLE_HOME to a folder on another disk"


def layer_path(home: Path, digest: str) -> Path:
    """Where the layer of a SHA-256 lies. Raises StoreError unless it is 64 hex digits."""
    if not is_digest(digest):  # a digest from a file becomes a path only if it is nothing else
        raise StoreError("layer", "64 hex digits", repr(digest)[:120])
    return home / "layers" / "sha256" / digest[:2] / digest


def _present(path: Path, name: str, entry: str) -> Path:
    if not path.is_file():
        hint = "install it again to repair it"
        raise StoreError(f"package {name}", f"the layer of entry {entry!r}", "no file", hint)
    return path


def _refuse_other(
    op: str, present: InstalledPackage, package: PackageReader, replace: bool
) -> None:
    if not replace:
        raise StoreError(
            op,
            f"the contents of {present.name} {present.version} that is installed",
            "other contents under the same name and version",
            f"{present.digest} is here, {package.digest} is new: install it with --replace, or "
            "under another name with --as",
        )


def _holds(path: Path, entry: Entry) -> bool:
    """Whether the file `path` is there and has the bytes of `entry`."""
    hasher, size = sha256(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                hasher.update(chunk)
                size += len(chunk)
    except FileNotFoundError:
        return False
    return size == entry.size and hasher.hexdigest() == entry.sha256


def _unlink(path: Path) -> int:
    """Remove a file; its bytes, or 0 if another process has it open where that forbids it."""
    size = path.stat().st_size
    try:
        path.unlink()
    except PermissionError:
        return 0
    return size


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty
        folder.rmdir()


@contextlib.contextmanager
def _disk_errors(op: str, home: Path) -> Iterator[None]:
    """OSError of the store's disk as StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(op, f"space in {home}", "a full disk", _DISK_HINT) from error
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise StoreError(op, f"a writable {home}", error.strerror, _DISK_HINT) from error
        raise StoreError(op, f"a usable {home}", error, _DISK_HINT) from error
