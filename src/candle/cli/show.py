"""`candle show`: what a package holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..package.manifest import Manifest
from ..package.reader import PackageReader
from ..package.store import Store
from . import output
from .options import INSTALLED_OR_FILE, is_file, json_flag

EPILOG = """\
\b
Examples:
  candle show wiki_en
  candle show wiki_en.candle --json

NAME is an installed package, or the path of a .candle file.
"""


@click.command("show", epilog=EPILOG)
@click.argument("name", type=INSTALLED_OR_FILE)
@json_flag("Print one JSON object.")
def command(name: str, as_json: bool) -> None:
    """Show what a package holds."""
    facts, manifest = read(name)
    if as_json:
        facts["entries"] = [asdict(entry) for entry in manifest.entries]
        output.say_json(facts)
        return
    output.table([(key, text(value)) for key, value in facts.items() if value])
    output.say()
    rows = [(output.human_size(entry.size), entry.path) for entry in manifest.entries]
    output.table(rows, indent="  ")


def read(name: str) -> tuple[dict[str, Any], Manifest]:
    """The facts of a package, installed or in a file, and its manifest."""
    if is_file(name):
        with PackageReader.open(name) as reader:
            where, manifest, digest = str(Path(name).resolve()), reader.manifest, reader.digest
            known_as = manifest.name
    else:
        package = Store().get(name)
        where, manifest, digest = str(package.home), package.manifest, package.digest
        known_as = package.name
    facts = {
        "name": known_as,
        "version": manifest.version,
        "kind": manifest.kind,
        "description": manifest.description,
        "license": manifest.license,
        "created_by": manifest.created_by,
        "embedder": asdict(manifest.embedder) if manifest.embedder else None,
        "requirements": {k: v for k, v in asdict(manifest.requirements).items() if v},
        "bytes": sum(entry.size for entry in manifest.entries),
        "digest": digest,
        "where": where,
    }
    return facts, manifest


def text(value: object) -> str:
    """A fact for people."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)
