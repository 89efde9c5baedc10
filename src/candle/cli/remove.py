"""`candle remove`: an installed package out of the store."""

from __future__ import annotations

import click

from ..package.store import Store
from . import output
from .options import INSTALLED, NAME

EPILOG = """\
\b
Examples:
  candle remove wiki_en
  candle remove wiki_en 1.0.0

The space is freed by `candle gc`. Documents that you added to an installed knowledge base are kept.
"""


@click.command("remove", epilog=EPILOG)
@click.argument("name", type=INSTALLED)
@click.argument("version", type=NAME, required=False)
def command(name: str, version: str | None) -> None:
    """Remove an installed package, or one version of it."""
    for removed in Store().remove(name, version):
        output.say(f"{name} {removed} removed")
