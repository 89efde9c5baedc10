"""Questions answered from what was found, with the sources named.

The prompt holds as many sources as the model's context takes. Nothing is cut in silence: the
answer says which sources were shortened and which were left out. An answer ends where the model
begins to repeat itself, or to ask the next question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..errors import ContextLengthError, OptionError
from ..llm.stop import StopMatcher
from .chunk import chunk_text
from .repeats import RepeatGuard
from .retriever import DENSE, Document, Retriever, has_words

MAX_TOKENS = 256
_TEMPLATE_TOKENS = 64  # what a chat template may put around one message
_LEAST_PART = 32  # tokens: a shorter piece of a source says too little to be worth a place
_TASK = "Answer the question briefly, from this text."  # more words mislead small models
_QUESTION = "Question:"

Messages = list[dict[str, str]]


class ChatModel(Protocol):
    """What `ask` needs of a language model; `candle_llm.Generator` is one."""

    @property
    def context(self) -> int: ...
    def tokenize(self, text: str) -> list[int]: ...
    def stream_chat(
        self, messages: Messages, *, max_tokens: int, temperature: float
    ) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, and from what.

    `sources` stand in the prompt in this order; `shortened` are ids of those of which only the
    beginning was shown, and `left_out` were found but had no room. Without any source the model is
    not asked and `text` is empty. `finish_reason` is the model's ("stop", or "length" where
    `max_tokens` cut the answer), or "repeat" where the model began to repeat itself.
    """

    text: str
    sources: list[Document]
    shortened: list[str] = field(default_factory=list)
    left_out: list[Document] = field(default_factory=list)
    finish_reason: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The messages for the model and which documents are in them."""

    messages: Messages
    sources: list[Document]
    shortened: list[str]
    left_out: list[Document]


def ask(
    retriever: Retriever,
    generator: ChatModel,
    question: str,
    top_k: int = 3,
    filter: Mapping[str, Any] | None = None,
    mode: str = DENSE,
    max_tokens: int = MAX_TOKENS,
    temperature: float = 0.0,
    on_text: Callable[[str], None] | None = None,
) -> Answer:
    """Searches for `question` and has the model answer from what was found.

    `on_text` gets the answer piece by piece while it is made. Raises OptionError for a question
    without words, ContextLengthError for one that leaves no room for an answer.
    """
    if not isinstance(question, str) or not has_words(question):
        raise OptionError("ask", "a question", repr(question))
    found = retriever.search(question, top_k, filter, mode)
    if not found:
        return Answer("", [])
    prompt = build_prompt(generator, question, found, max_tokens)
    pieces = generator.stream_chat(prompt.messages, max_tokens=max_tokens, temperature=temperature)
    text, reason = _read(pieces, on_text)
    return Answer(text, prompt.sources, prompt.shortened, prompt.left_out, reason)


def build_prompt(
    generator: ChatModel, question: str, found: list[Document], max_tokens: int = MAX_TOKENS
) -> Prompt:
    """One message with the task, the sources and the question, within the context.

    Sources go in by rank; the first that does not fit whole is shortened at a sentence, those
    after it are left out. Raises ContextLengthError when not even the question fits.
    """
    budget = generator.context - max_tokens
    shown: list[str] = []
    for document in found:
        if _size(generator, [*shown, document.text], question) <= budget:
            shown.append(document.text)
            continue
        part = _beginning(generator, shown, document.text, question, budget)
        if part:
            shown.append(part)
        break
    if not shown:
        need = _size(generator, [], question) + _LEAST_PART + max_tokens
        raise ContextLengthError("ask", f"a context of at least {need} tokens", generator.context)
    sources = found[: len(shown)]
    shortened = [d.id for d, text in zip(sources, shown, strict=True) if text != d.text]
    return Prompt(_messages(shown, question), sources, shortened, found[len(shown) :])


def _messages(texts: list[str], question: str) -> Messages:
    parts = [_TASK, *(text.strip() for text in texts), f"{_QUESTION} {question.strip()}"]
    return [{"role": "user", "content": "\n\n".join(parts)}]


def _size(generator: ChatModel, texts: list[str], question: str) -> int:
    """Tokens of the prompt: exact where the model can lay out a conversation, else estimated."""
    messages = _messages(texts, question)
    chat_ids = getattr(generator, "chat_ids", None)
    if chat_ids is not None:
        return len(chat_ids(messages))
    return len(generator.tokenize(messages[0]["content"])) + _TEMPLATE_TOKENS


def _beginning(
    generator: ChatModel, shown: list[str], text: str, question: str, budget: int
) -> str:
    """The longest beginning of `text` that still fits, cut at a sentence; "" if too little does."""
    pieces = chunk_text(text, max(1, len(text) // 8), 0)
    low, high = 0, len(pieces) - 1
    while low < high:
        middle = (low + high + 1) // 2
        fits = _size(generator, [*shown, text[: pieces[middle - 1].end]], question) <= budget
        low, high = (middle, high) if fits else (low, middle - 1)
    part = text[: pieces[low - 1].end].rstrip() if low else ""
    return part if len(generator.tokenize(part)) >= _LEAST_PART else ""


def _read(pieces: Iterator[str], on_text: Callable[[str], None] | None) -> tuple[str, str]:
    """The answer, without white space around it, and why it ended."""
    guard, echo = RepeatGuard(), StopMatcher([f"\n{_QUESTION}"])
    said: list[str] = []
    for piece in pieces:
        _say(guard.feed(echo.feed(piece)), said, on_text)
        if guard.stopped or echo.stopped:
            break
    _say(guard.feed(echo.finish()) + guard.finish(), said, on_text)
    reason = "stop" if echo.stopped else str(getattr(pieces, "finish_reason", ""))
    return "".join(said).strip(), "repeat" if guard.stopped else reason


def _say(piece: str, said: list[str], on_text: Callable[[str], None] | None) -> None:
    if piece:
        said.append(piece)
        if on_text is not None:
            on_text(piece)
