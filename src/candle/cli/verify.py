"""`candle verify`: every byte of a package against its hashes."""

from __future__ import annotations

import click

from ..package.reader import PackageReader
from ..package.store import Store
from . import output
from .options import INSTALLED_OR_FILE, is_file

EPILOG = """\
\b
Examples:
  candle verify wiki_en
  candle verify wiki_en.candle

NAME is an installed package, or the path of a .candle file. Exits with 1 if anything is damaged.
"""


@click.command("verify", epilog=EPILOG)
@click.argument("name", type=INSTALLED_OR_FILE)
def command(name: str) -> None:
    """Check every byte of a package."""
    if is_file(name):
        with PackageReader.open(name) as reader, output.progress("hashing", "B", True) as progress:
            reader.verify(progress)
        output.say(f"{name}: whole")
    else:
        package = Store().verify(name)
        output.say(f"{package.name} {package.version}: whole")
