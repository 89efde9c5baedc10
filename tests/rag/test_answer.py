"""Answers: sources numbered, within the context, and nothing cut in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from candle.errors import ContextLengthError, OptionError
from candle.rag.answer import Messages, ask, build_prompt
from candle.rag.retriever import Document, Retriever


class Parrot:
    """A model whose tokens are words, and which repeats the last line of its prompt."""

    def __init__(self, context: int = 4096) -> None:
        self.context = context
        self.asked: list[Messages] = []
        self.options: dict[str, Any] = {}

    def tokenize(self, text: str) -> list[int]:
        return list(range(len(text.split())))

    def chat_ids(self, messages: Messages) -> list[int]:
        return self.tokenize(messages[0]["content"])

    def stream_chat(self, messages: Messages, **options: Any) -> Iterator[str]:
        assert len(self.chat_ids(messages)) + options["max_tokens"] <= self.context
        self.asked.append(messages)
        self.options = options
        yield " You asked: "
        yield messages[0]["content"].splitlines()[-1]


@pytest.fixture
def filled(retriever: Retriever) -> Retriever:
    retriever.add_documents(
        [
            {"id": "owl", "text": "Owls hunt at night. They hear well."},
            {"id": "cod", "text": "Cod swim in cold water."},
        ]
    )
    return retriever


def document(name: str, words: int) -> Document:
    text = " ".join(f"Sentence {i} of {name}." for i in range(words // 4))
    return Document(name, text, 0.5, {"dense": 0.5}, {}, name)


def test_the_answer_names_its_sources(filled: Retriever) -> None:
    model = Parrot()
    answer = ask(filled, model, "When do owls hunt?", max_tokens=50)
    assert answer.text == "You asked: Question: When do owls hunt?"
    assert answer.sources[0].id == "owl" and len(answer.sources) == 2
    assert answer.shortened == [] and answer.left_out == []
    (message,) = model.asked[0]
    assert message["content"].split("\n\n")[1:] == [
        "Owls hunt at night. They hear well.",
        "Cod swim in cold water.",
        "Question: When do owls hunt?",
    ]
    assert model.options == {"max_tokens": 50, "temperature": 0.0}


def test_pieces_arrive_while_it_is_made(filled: Retriever) -> None:
    pieces: list[str] = []
    answer = ask(filled, Parrot(), "owls?", on_text=pieces.append)
    assert "".join(pieces).strip() == answer.text and len(pieces) > 1


def test_without_sources_the_model_is_not_asked(retriever: Retriever) -> None:
    model = Parrot()
    answer = ask(retriever, model, "owls?")
    assert (answer.text, answer.sources, model.asked) == ("", [], [])


@pytest.mark.parametrize("question", ["", "  ", "?!", None, 5])
def test_a_question_has_words(filled: Retriever, question: Any) -> None:
    with pytest.raises(OptionError, match="a question"):
        ask(filled, Parrot(), question)


def test_what_does_not_fit_is_shortened_or_left_out_and_said(filled: Retriever) -> None:
    found = [document("a", 100), document("b", 100), document("c", 100)]
    prompt = build_prompt(Parrot(context=232), "Why?", found, max_tokens=40)
    assert [d.id for d in prompt.sources] == ["a", "b"]
    assert prompt.shortened == ["b"]
    assert [d.id for d in prompt.left_out] == ["c"]
    content = prompt.messages[0]["content"]
    assert len(content.split()) <= 192
    shown = content.split("\n\n")[2]
    assert found[1].text.startswith(shown) and shown.endswith(".")


def test_a_piece_too_short_to_say_anything_is_left_out() -> None:
    found = [document("a", 100), document("b", 100)]
    prompt = build_prompt(Parrot(context=168), "Why?", found, max_tokens=40)
    assert [d.id for d in prompt.sources] == ["a"]
    assert prompt.shortened == [] and [d.id for d in prompt.left_out] == ["b"]


def test_every_context_is_kept_to() -> None:
    found = [document("a", 120), document("b", 80), document("c", 30)]
    for context in range(60, 400, 3):
        try:
            prompt = build_prompt(Parrot(context), "Why is it so?", found, max_tokens=20)
        except ContextLengthError:
            assert context < 100
            continue
        assert len(prompt.messages[0]["content"].split()) <= context - 20
        assert [*prompt.sources, *prompt.left_out] == found


def test_a_context_too_small_for_the_question_is_an_error_with_both_lengths() -> None:
    with pytest.raises(ContextLengthError, match=r"a context of at least \d+ tokens, got 64"):
        build_prompt(Parrot(context=64), "Why " * 60 + "?", [document("a", 100)], 10)


def test_a_model_that_only_tokenizes_leaves_room_for_its_template() -> None:
    class Plain(Parrot):
        chat_ids = None  # type: ignore[assignment]

    prompt = build_prompt(Plain(context=200), "Why?", [document("a", 400)], max_tokens=20)
    assert len(prompt.messages[0]["content"].split()) <= 200 - 20 - 64


class Stream(Iterator[str]):
    """Pieces that say why they ended, as those of `candle_llm` do."""

    def __init__(self, *pieces: str) -> None:
        self.left = list(pieces)
        self.finish_reason = ""

    def __next__(self) -> str:
        if not self.left:
            self.finish_reason = "length"
            raise StopIteration
        return self.left.pop(0)


def answering(*pieces: str) -> Parrot:
    """A model that says this, whatever it is asked."""
    model = Parrot()
    model.stream_chat = lambda messages, **options: Stream(*pieces)  # type: ignore[method-assign]
    return model


def test_the_models_reason_to_end_is_passed_on(filled: Retriever) -> None:
    answer = ask(filled, answering("half ", "an"), "owls?")
    assert (answer.text, answer.finish_reason) == ("half an", "length")


def test_an_answer_ends_where_it_repeats_itself_and_says_so(filled: Retriever) -> None:
    pieces: list[str] = []
    said = "Owls hunt at night, when it is dark and mice come out to eat. "
    answer = ask(filled, answering(*[said] * 9), "owls?", on_text=pieces.append)
    assert (answer.text, answer.finish_reason) == (said.strip(), "repeat")
    assert "".join(pieces).strip() == answer.text


def test_an_answer_does_not_ask_the_next_question(filled: Retriever) -> None:
    answer = ask(filled, answering("At night.\n", "\nQues", "tion: When do cod swim?"), "owls?")
    assert (answer.text, answer.finish_reason) == ("At night.", "stop")
