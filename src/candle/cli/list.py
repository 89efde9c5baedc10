"""`candle list`: what is installed."""

from __future__ import annotations

import click

from ..package.store import Store
from . import output
from .install import as_object
from .options import json_flag

EPILOG = """\
\b
Examples:
  candle list
  candle list --json
"""


@click.command("list", epilog=EPILOG)
@json_flag("Print one JSON object a package.")
def command(as_json: bool) -> None:
    """List installed packages."""
    store = Store()
    packages = store.list()
    if as_json:
        for package in packages:
            output.say_json(as_object(package))
        return
    output.table(
        [
            (p.name, p.version, p.manifest.kind, output.human_size(p.size), p.manifest.description)
            for p in packages
        ]
    )
    if not packages:
        output.note(f"nothing is installed in {store.home}")
