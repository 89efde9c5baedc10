"""`candle embed`: documents to a knowledge base in one `.candle` file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from ..errors import OptionError
from ..formats.sniff import HEAD, describe
from ..package.manifest import suggest_name
from ..rag.chunk import CHUNK_SIZE
from ..rag.ingest import AddReport
from ..rag.package import build_package, package_name
from . import output
from .options import NAME, PACKAGE_NAME, PATH, json_flag

EPILOG = """\
\b
Examples:
  candle embed --input=chunks.jsonl --output=wiki_en.candle
  candle embed --input=docs/ --output=manual.candle --chunk-size=600

INPUT is a file of JSON lines (each an object with "text", and optionally "id" and "metadata"), a
text or Markdown file, or a folder of those. Documents longer than --chunk-size are cut at
paragraphs and sentences.
"""


@click.command("embed", epilog=EPILOG)
@click.option(
    "--model",
    type=NAME,
    default="all-minilm-l6-v2",
    show_default=True,
    help="The embedding model: a name or a path.",
)
@click.option("--input", "source", type=PATH, required=True, help="A file or a folder.")
@click.option("--output", "target", type=PATH, required=True, help="The .candle file to write.")
@click.option(
    "--name",
    type=PACKAGE_NAME,
    metavar="NAME",
    help="The package's name. Default: the stem of OUTPUT.",
)
@click.option(
    "--chunk-size",
    type=int,
    default=CHUNK_SIZE,
    show_default=True,
    help="Most characters of a chunk.",
)
@click.option(
    "--overlap",
    type=int,
    help="Characters that a chunk repeats of the one before it. Default: an eighth of a chunk.",
)
@json_flag("Print the report as one JSON object.")
def command(
    model: str,
    source: str,
    target: str,
    name: str | None,
    chunk_size: int,
    overlap: int | None,
    as_json: bool,
) -> None:
    """Make a knowledge base from documents."""
    refuse_other_file(Path(target))
    chosen = name or suggest_name(package_name(Path(target)))
    if name is None and chosen != Path(target).stem:
        output.note(
            f"note: the package's name is {chosen}, since names are of 1 to 64 of a-z 0-9 . _ -"
        )
    with output.progress("embedding", " documents") as progress:
        report = build_package(source, target, model, chunk_size, overlap, chosen, progress)
    warn(report)
    counts = {"documents": report.added, "chunks": report.chunks}
    size = Path(target).stat().st_size
    if as_json:
        lists = {"split": report.split, "empty": report.empty, "skipped": report.skipped}
        output.say_json({"output": target, "bytes": size, **counts, **lists})
    else:
        told = f"{counted(report.added, 'document')} in {counted(report.chunks, 'chunk')}"
        output.say(f"{target}: {told}, {output.human_size(size)}")


def warn(report: AddReport) -> None:
    """What the user may not expect, on stderr."""
    for path in report.skipped:
        output.note(f"warning: skipped {path}: not a .txt, .md or .jsonl file that can be read")
    if report.empty:
        output.note(f"warning: no text in {some(report.empty)}")
    if report.split:
        output.note(f"warning: cut further, to fit the model's window: {some(report.split)}")


def counted(count: int, what: str) -> str:
    """ "1 document", "2 documents"."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def some(ids: Sequence[str]) -> str:
    """How many documents, and the first."""
    return f"{counted(len(ids), 'document')} ({ids[0]!r}{', ...' if len(ids) > 1 else ''})"


def refuse_other_file(target: Path) -> None:
    """Raises OptionError unless `target` is new, or a package that may be replaced."""
    if not target.exists():
        return
    found = "a folder" if target.is_dir() else "a device, pipe or socket"
    if target.is_file():
        with target.open("rb") as stream:
            found = describe(stream.read(HEAD), target.stat().st_size)
    if found != "a .candle package":
        raise OptionError(f"write {target}", "a new file or a .candle package to replace", found)
