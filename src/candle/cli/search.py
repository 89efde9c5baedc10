"""`candle search`: the chunks of a knowledge base nearest to a query."""

from __future__ import annotations

import click

from ..rag.retriever import Document, Retriever
from . import output
from .options import NAME, TEXT, embedder, filters, json_flag, parse_filters, top_k

EPILOG = """\
\b
Examples:
  candle search wiki_en "recent advances in quantum computing"
  candle search wiki_en "tea" --top-k=10 --filter lang=en --json
  candle search ./notes "deadlines" --filter 'year={"$gte": 2024}'

NAME is an installed knowledge base, or the path of a folder or a .candle file. Scores are cosines.
With --json each result is one line: an object with score, scores, id, document, text and metadata.
"""


@click.command("search", epilog=EPILOG)
@click.argument("name", type=NAME)
@click.argument("query", type=TEXT)
@top_k
@filters
@embedder
@json_flag("Print one JSON object a result.")
def command(
    name: str,
    query: str,
    top_k: int,
    conditions: tuple[str, ...],
    embedder: str | None,
    as_json: bool,
) -> None:
    """Find the chunks nearest to a query."""
    keep = parse_filters(conditions)
    with Retriever.load(name, embedder) as retriever:
        found = retriever.search(query, top_k, keep)
    for document in found:
        if as_json:
            output.say_json(as_object(document))
        else:
            show(document)
    if not found:
        output.note("nothing found")


def as_object(document: Document) -> dict[str, object]:
    """A result as JSON has it."""
    return {
        "score": document.score,
        "scores": document.scores,
        "id": document.id,
        "document": document.document,
        "text": document.text,
        "metadata": document.metadata,
    }


def show(document: Document) -> None:
    """A result for people: score and id, then the text, indented."""
    output.say(f"{document.score:.3f}  {document.id}")
    for line in document.text.strip().splitlines():
        output.say(f"       {line}".rstrip())
    output.say()
