"""`candle ask`: an answer from a knowledge base, with the sources it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from ..llm import Generator
from ..rag.answer import Answer, ask
from ..rag.retriever import Document, Retriever
from . import output
from .options import (
    NAME,
    TEXT,
    embedder,
    filters,
    json_flag,
    max_tokens,
    parse_filters,
    stream,
    top_k,
)
from .search import as_object

EPILOG = """\
\b
Examples:
  candle ask wiki_en "Who invented the transistor?"
  candle ask wiki_en "Who invented the transistor?" --top-k=5 --json

The nearest chunks are shown to the model with the question; it answers from them. The answer goes
to stdout, and the sources below it. With --json both are one object: answer, sources (as `candle
search` gives them), shortened and left_out (ids), and finish_reason.
"""
WIDTH = 96
_ENDS = {
    "length": "at --max-tokens",
    "repeat": "where the model began to repeat itself",
}


@click.command("ask", epilog=EPILOG)
@click.argument("name", type=NAME)
@click.argument("question", type=TEXT)
@click.option(
    "--model",
    type=NAME,
    default="smollm2-135m-instruct",
    show_default=True,
    help="The language model: a name or a path.",
)
@top_k
@filters
@embedder
@max_tokens
@stream
@json_flag("Print one JSON object.")
def command(
    name: str,
    question: str,
    model: str,
    top_k: int,
    conditions: tuple[str, ...],
    embedder: str | None,
    max_tokens: int,
    stream: bool | None,
    as_json: bool,
) -> None:
    """Answer a question from a knowledge base, with sources."""
    keep = parse_filters(conditions)
    streamed = not as_json and (output.is_terminal() if stream is None else stream)
    on_text = output.say_now if streamed else None
    with Retriever.load(name, embedder) as retriever:
        generator = Generator.load(model)
        answer = ask(
            retriever, generator, question, top_k, keep, max_tokens=max_tokens, on_text=on_text
        )
    if as_json:
        output.say_json(as_json_object(answer))
        return
    output.say_now("\n" if streamed else answer.text + "\n")
    show_sources(answer)


def as_json_object(answer: Answer) -> dict[str, object]:
    """The answer as JSON has it."""
    return {
        "answer": answer.text,
        "sources": [as_object(document) for document in answer.sources],
        "shortened": answer.shortened,
        "left_out": [document.id for document in answer.left_out],
        "finish_reason": answer.finish_reason,
    }


def show_sources(answer: Answer) -> None:
    """The numbered sources, and on stderr what the model did not see."""
    if not answer.sources:
        output.note("nothing found to answer from")
        return
    output.say("\nSources:")
    for line in source_lines(answer.sources):
        output.say(line)
    if answer.finish_reason in _ENDS:
        output.note(f"note: the answer ends {_ENDS[answer.finish_reason]}")
    for identifier in answer.shortened:
        output.note(f"warning: only the beginning of {identifier} fitted into the model's context")
    for document in answer.left_out:
        output.note(f"warning: {document.id} did not fit into the model's context")


def source_lines(sources: Sequence[Document]) -> Iterator[str]:
    """A source a line: number, score, id, and how it begins, in columns."""
    heads = [(f"[{n}]", f"{d.score:.3f}", d.id) for n, d in enumerate(sources, 1)]
    for head, document in zip(output.aligned(heads), sources, strict=True):
        rest = max(20, WIDTH - output.columns(head))
        yield f"  {head}  {output.one_line(document.text, rest)}"
