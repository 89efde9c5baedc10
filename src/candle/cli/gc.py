"""`candle gc`: the space that no installed package needs."""

from __future__ import annotations

import click

from ..package.store import Store
from . import output

EPILOG = """\
\b
Example:
  candle gc
"""


@click.command("gc", epilog=EPILOG)
def command() -> None:
    """Free the space of removed packages."""
    output.say(f"{output.human_size(Store().gc())} freed")
