"""A knowledge base of this Python's own documentation, and an answer from it.

    python examples/demo.py ["a question"]

The public docstrings of the standard library, about 6,500, are embedded by all-MiniLM-L6-v2 and
installed as the knowledge base `pydocs`; SmolLM2 answers from the nearest. The first run builds it,
in a minute or two; later runs open it. It lies in CANDLE_HOME if that is set, else in .demo/.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from pydocs import library_documents

from candle.cli import output
from candle.errors import CandleError, NameNotFoundError
from candle.package.store import Store
from candle_llm import Generator
from candle_rag import Document, Retriever, ask, write_package

T = TypeVar("T")
QUESTION = "How do I convert a string to lower case?"
OTHERS = ("How do I find the length of a list?", "How do I get the current working directory?")
MAX_TOKENS = 160
ENDED = {"length": "it was getting long", "repeat": "it went round in circles"}
NAME = "pydocs"
VERSION = ".".join(re.findall(r"\d+", platform.python_version())[:3])


def main(arguments: list[str]) -> int:
    """Builds or opens the knowledge base, then asks."""
    output.configure()
    os.environ.setdefault("CANDLE_HOME", str(Path(__file__).resolve().parent.parent / ".demo"))
    start = perf_counter()
    if not is_installed():
        build()
    retriever = timed("opened the knowledge base", lambda: Retriever.load(NAME))
    generator = timed("opened the language model", lambda: Generator.load("smollm2-135m-instruct"))
    print(f"{len(retriever):,} chunks of the documentation of Python {VERSION}\n")
    show(retriever, generator, arguments[0] if arguments else QUESTION)
    print(f"\n{perf_counter() - start:.1f} s in all. Ask another:")
    suggest()
    return 0


def suggest() -> None:
    """Two ways to ask something else, as they are typed."""
    home = shlex.quote(os.path.relpath(os.environ["CANDLE_HOME"]))
    program = shlex.quote(os.path.relpath(Path(sys.executable).with_name("candle")))
    print(f'  make demo QUESTION="{OTHERS[0]}"')
    print(f'  CANDLE_HOME={home} {program} ask {NAME} "{OTHERS[1]}" --top-k=1')


def is_installed() -> bool:
    """Whether this Python's documentation was installed by an earlier run."""
    try:
        Store().get(NAME, VERSION)
    except NameNotFoundError:
        return False
    return True


def build() -> None:
    """Docstrings to an installed knowledge base; nothing of it is visible before it is whole."""
    documents = timed("read the standard library", library_documents)
    print(f"embedding {len(documents):,} docstrings, once ...", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, f"{NAME}.candle")
        start = perf_counter()
        with (
            Retriever.create(Path(folder, "kb")) as retriever,
            output.progress("embedding", " docstrings") as progress,
        ):
            retriever.add_documents(documents, progress)
            write_package(retriever, package, NAME, VERSION, description="Python's docstrings")
        print(f"embedded them in {perf_counter() - start:.1f} s", file=sys.stderr)
        timed("installed the package", lambda: Store().install(package, replace=True))


def show(retriever: Retriever, generator: Generator, question: str) -> None:
    """The question, the answer as it is made from the nearest source, and what else was found."""
    print(f"Question: {question}\n\nAnswer: ", end="", flush=True)
    start = perf_counter()
    # one source: a model of this size mixes up several
    answer = ask(retriever, generator, question, 1, max_tokens=MAX_TOKENS, on_text=output.say_now)
    if answer.finish_reason in ENDED:
        print(f" ... (ended: {ENDED[answer.finish_reason]})", end="")
    seconds = perf_counter() - start
    print(
        f"\n\n(made in {seconds:.1f} s from [1] alone by SmolLM2-135M: a model as small as this is"
    )
    print("often wrong. What the documentation says:)\n")
    show_found(retriever.search(question, 3))


def show_found(documents: list[Document]) -> None:
    """One line each: score, name, and how its text begins."""
    for number, document in enumerate(documents, 1):
        text = output.one_line(document.text, 70)
        print(f"  [{number}] {document.score:.3f}  {document.id:<24} {text}")


def timed(what: str, work: Callable[[], T]) -> T:
    """The result of `work`, with a line that says how long it took."""
    start = perf_counter()
    result = work()
    print(f"{what} in {perf_counter() - start:.1f} s", file=sys.stderr)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CandleError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
