"""`candle generate`: a text completed, or a message answered."""

from __future__ import annotations

from typing import Any

import click

from ..llm import Generator, TextStream
from . import output
from .options import NAME, TEXT, json_flag, max_tokens, read_prompt, sampling, stream

EPILOG = """\
\b
Examples:
  candle generate smollm2-135m-instruct "The capital of France is" --max-tokens=8
  candle generate smollm2-135m-instruct --chat "Name three rivers." --stream
  echo "Once upon a time" | candle generate ./model.gguf - --temperature=0.8 --seed=1

MODEL is a known name, an installed package, or the path of a GGUF file. The prompt is completed as
it stands; with --chat or --system it is a message, put into the model's template. With --json the
result is one object: text, finish_reason ("stop" or "length"), prompt_tokens and tokens (counts).
"""


@click.command("generate", epilog=EPILOG)
@click.argument("model", type=NAME)
@click.argument("prompt", type=TEXT)
@stream
@max_tokens
@sampling
@click.option("--chat", is_flag=True, help="The prompt is a message to answer.")
@click.option("--system", type=TEXT, help="A system message before it; implies --chat.")
@click.option(
    "--threads", type=click.IntRange(1, 256), help="Threads of the kernels. Default: one a CPU."
)
@click.option(
    "--context",
    type=click.IntRange(min=1),
    help="Most tokens of prompt and answer. Default: what the model has.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "f32"]),
    default="auto",
    show_default=True,
    help="f32 keeps activations exact, and is slower.",
)
@json_flag("Print one JSON object.")
def command(
    model: str,
    prompt: str,
    stream: bool | None,
    max_tokens: int,
    chat: bool,
    system: str | None,
    threads: int | None,
    context: int | None,
    precision: str,
    as_json: bool,
    **sampled: Any,
) -> None:
    """Complete a text, or answer a message.

    PROMPT "-" is read from stdin.
    """
    text = read_prompt(prompt)
    generator = Generator.load(model, precision, threads, context)
    options = {"max_tokens": max_tokens, **sampled}
    if chat or system is not None:
        pieces = generator.stream_chat(messages(text, system), **options)
    else:
        pieces = generator.stream(text, **options)
    if as_json:
        print_json(pieces)
    elif output.is_terminal() if stream is None else stream:
        print_stream(pieces)
    else:
        output.say(pieces.whole())


def messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """The conversation that a single prompt stands for."""
    first = [] if system is None else [{"role": "system", "content": system}]
    return [*first, {"role": "user", "content": prompt}]


def print_stream(pieces: TextStream) -> None:
    """Each piece as it comes, and the end of the line."""
    for piece in pieces:
        output.say_now(piece)
    output.say_now("\n")


def print_json(pieces: TextStream) -> None:
    """The whole answer with its facts."""
    whole = pieces.whole()
    output.say_json(
        {
            "text": str(whole),
            "finish_reason": whole.finish_reason,
            "prompt_tokens": whole.prompt_tokens,
            "tokens": len(whole.tokens),
        }
    )
