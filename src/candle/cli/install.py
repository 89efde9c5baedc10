"""`candle install`: a `.candle` file into the store."""

from __future__ import annotations

from typing import Any

import click

from ..package.store import InstalledPackage, Store
from . import output
from .options import PACKAGE_NAME, PATH, json_flag

EPILOG = """\
\b
Examples:
  candle install wiki_en.candle
  candle install build/out.candle --as wiki_en --replace

Everything is checked against the package's hashes before any of it is visible. Packages go to
CANDLE_HOME (default ~/.candle) and nowhere else.
"""


@click.command("install", epilog=EPILOG)
@click.argument("file", type=PATH)
@click.option(
    "--as", "as_name", type=PACKAGE_NAME, metavar="NAME", help="Install it under another name."
)
@click.option("--replace", is_flag=True, help="Replace what has its name and version.")
@json_flag("Print one JSON object.")
def command(file: str, as_name: str | None, replace: bool, as_json: bool) -> None:
    """Install a .candle package."""
    with output.progress("installing", "B", scale=True) as progress:
        package = Store().install(file, as_name, progress, replace)
    if as_json:
        output.say_json({**as_object(package), "was_present": package.was_present})
        return
    what = "was installed already" if package.was_present else "installed"
    output.say(f"{package.name} {package.version} {what} ({output.human_size(package.size)})")


def as_object(package: InstalledPackage) -> dict[str, Any]:
    """An installed package as JSON has it."""
    manifest = package.manifest
    return {
        "name": package.name,
        "version": package.version,
        "kind": manifest.kind,
        "bytes": package.size,
        "digest": package.digest,
        "description": manifest.description,
        "license": manifest.license,
    }
