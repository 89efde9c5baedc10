"""Language models as `.candle` packages: the GGUF file as one entry, used in place."""

from __future__ import annotations

import os

from ..errors import NameNotFoundError, PackageError
from ..formats import GgufFile
from ..formats.paths import as_path
from ..models.decoder import DecoderConfig
from ..package.manifest import Manifest, suggest_name
from ..package.names import Resolved
from ..package.reader import PackageReader
from ..package.writer import Progress
from ..package.writer import write_package as write_entries
from ..weights import Weights

KIND = "generator"
MODEL = "model.gguf"


def write_package(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    name: str | None = None,
    version: str = "1.0.0",
    license: str | None = None,
    description: str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Packs a GGUF file that `Generator` can run; name, licence and description are the file's own.

    Raises FormatError for a model that cannot run here, PackageError for a bad name or version.
    """
    model, output = as_path(model, "package model"), as_path(output, "write package")
    with GgufFile.open(model) as file:
        DecoderConfig.read(file.metadata)
        own = {k: file.metadata.get(f"general.{k}") for k in ("license", "name")}
    text = {k: v if isinstance(v, str) else "" for k, v in own.items()}
    manifest = Manifest(
        name=suggest_name(output.stem) if name is None else name,
        version=version,
        kind=KIND,
        license=text["license"] if license is None else license,
        description=text["name"] if description is None else description,
    )
    return write_entries(output, manifest, {MODEL: model}, progress)


def open_weights(found: Resolved) -> Weights:
    """The mapped weights of a resolved name: a GGUF file, or a package of kind "generator".

    Raises NameNotFoundError for another kind of model, FormatError.
    """
    if found.kind == "gguf":
        return Weights.open(found.path)
    if found.kind == "installed" and found.package is not None:
        _require_kind(found, found.package.manifest)
        return Weights.open_gguf(found.package.path(MODEL))
    if found.kind == "package":
        with PackageReader.open(found.path) as reader:
            _require_kind(found, reader.manifest)
            return Weights(GgufFile(reader.part(MODEL)))
    hint = "generation runs from GGUF files so far"
    raise NameNotFoundError("generator", "a GGUF file or a generator package", found.kind, hint)


def _require_kind(found: Resolved, manifest: Manifest) -> None:
    if manifest.kind != KIND:
        raise PackageError(f"package {found.path}", f"kind {KIND!r}", repr(manifest.kind))
