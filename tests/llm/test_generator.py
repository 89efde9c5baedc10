"""Generator on real models: what an answer is, where it ends, and that nothing else decides it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import candle
from candle.errors import (
    ContextLengthError,
    NameNotFoundError,
    OptionError,
    RangeError,
    TemplateError,
)
from candle_llm import Generation, Generator

pytestmark = pytest.mark.model
GEMMA = Path(__file__).resolve().parents[2] / ".models/gemma-3-270m-q4_k_m.gguf"
ALPHABET = "A B C D E F G H I J K"


@pytest.fixture(scope="module")
def smol() -> Generator:
    try:
        return Generator.load("smollm2-135m-instruct")
    except NameNotFoundError:
        pytest.skip("SmolLM2 is absent: python tools/models.py test")


@pytest.fixture(scope="module")
def gemma() -> Generator:
    if not GEMMA.exists():
        pytest.skip("Gemma 3 270M is absent: python tools/models.py test")
    return Generator.load(GEMMA)


def test_an_answer_is_a_str_that_knows_how_it_ended(smol: Generator) -> None:
    answer = smol.generate("The capital of France is", max_tokens=8)
    assert isinstance(answer, Generation)
    assert "Paris" in answer
    assert answer.finish_reason == "length"
    assert answer.prompt_tokens == len(smol.tokenize("The capital of France is"))
    assert len(answer.tokens) == 8
    assert smol.detokenize(answer.tokens) == answer


def test_chat_uses_the_template_and_stops_at_the_end_of_the_turn(smol: Generator) -> None:
    answer = smol.chat([{"role": "user", "content": "What is 2+2?"}], max_tokens=64)
    assert "4" in answer
    assert answer.finish_reason == "stop"
    assert "<|im_end|>" not in answer


def test_a_base_model_has_no_chat(gemma: Generator) -> None:
    with pytest.raises(TemplateError, match="generate"):
        gemma.chat([{"role": "user", "content": "hello"}])


def test_a_bos_is_added_once_where_the_model_wants_one(gemma: Generator) -> None:
    """llama-cpp-python#1501: a text that begins with the BOS gets no second one."""
    assert gemma.tokenize("hello")[0] == 2
    assert gemma.tokenize("<bos>hello")[:2].count(2) == 1


def test_streamed_text_is_the_text(smol: Generator) -> None:
    for seed in range(3):
        options = {"max_tokens": 40, "temperature": 1.2, "seed": seed, "stop": ["the ", "\n\n"]}
        pieces = list(smol.stream("Once upon a time 😸", **options))
        assert "".join(pieces) == smol.generate("Once upon a time 😸", **options)
        assert all(pieces)


def test_a_stop_text_over_several_tokens_ends_the_answer_before_it(smol: Generator) -> None:
    """llama.cpp#11538, vllm#3574: nothing of the stop text is sent, streamed or not."""
    plain = smol.generate(ALPHABET, max_tokens=24)
    stop = plain[4:13]
    assert len(smol.tokenize(stop)) > 3
    whole = smol.generate(ALPHABET, max_tokens=24, stop=stop)
    assert whole == plain[: plain.index(stop)]
    assert whole.finish_reason == "stop"
    assert "".join(smol.stream(ALPHABET, max_tokens=24, stop=[stop])) == whole


def test_a_special_token_as_stop_text_matches_by_id(smol: Generator) -> None:
    """koboldcpp#812."""
    assert smol.tokenizer.token_to_id("<|im_end|>") in smol.stop_ids(["<|im_end|>"])
    prompt = "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>assistant\n"
    answer = smol.generate(prompt, max_tokens=60, stop="<|im_end|>")
    assert answer.finish_reason == "stop"
    assert "im_end" not in answer


@pytest.mark.parametrize("bad", [-1, -2, 1.5, True, "8"])
def test_max_tokens_that_are_no_count_are_refused(smol: Generator, bad: object) -> None:
    """llama.cpp PR 22873: no special meaning of negative numbers."""
    with pytest.raises(OptionError, match="max_tokens"):
        smol.generate("a", max_tokens=bad)


def test_max_tokens_zero_gives_no_text_and_none_fills_the_context() -> None:
    small = Generator.load("smollm2-135m-instruct", context=24)
    empty = small.generate("The", max_tokens=0)
    assert (empty, empty.finish_reason, empty.tokens) == ("", "length", [])
    full = small.generate("The capital of France is", max_tokens=None)
    assert full.prompt_tokens + len(full.tokens) == 24
    assert full.finish_reason == "length"


def test_a_prompt_over_the_context_is_an_error_with_both_lengths(smol: Generator) -> None:
    """ollama#8531, #17427: never cut silently, never halved."""
    long = "word " * (smol.context + 6)
    with pytest.raises(ContextLengthError) as caught:
        smol.generate(long)
    assert str(smol.context) in str(caught.value)
    assert str(len(smol.tokenize(long))) in str(caught.value)


def test_a_prompt_far_over_the_context_is_refused_before_it_is_tokenized(
    smol: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 MB took a minute to be told too long: no token stands for more than some characters."""
    monkeypatch.setattr(smol.tokenizer._engine, "encode", None)
    with pytest.raises(ContextLengthError, match=r"100,000,000 characters, at least [\d,]+ tokens"):
        smol.generate("word " * 20_000_000)
    with pytest.raises(ContextLengthError, match=r"characters, at least [\d,]+ tokens"):
        smol.chat([{"role": "user", "content": "word " * 800_000}])


def test_the_whole_context_can_be_used_by_the_prompt() -> None:
    small = Generator.load("smollm2-135m-instruct", context=8)
    ids = small.tokenize("one two three four five six seven")[:7]
    text = small.detokenize(ids)
    assert len(small.tokenize(text)) == 7
    assert len(small.generate(text, max_tokens=50).tokens) == 1


def test_an_empty_prompt_needs_a_bos(smol: Generator, gemma: Generator) -> None:
    with pytest.raises(OptionError, match="BOS"):
        smol.generate("")
    assert gemma.generate("", max_tokens=3).prompt_tokens == 1


def test_the_same_seed_gives_the_same_text_beside_other_requests(smol: Generator) -> None:
    """llama.cpp#2838, #7052: eight at once, and each as if alone."""
    options = {"max_tokens": 24, "temperature": 0.7, "seed": 42}
    alone, found = smol.generate("The sea", **options), {}

    def run(k: int) -> None:
        found[k] = smol.generate("The sea" if k % 2 else "My cat", **options)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {found[k] for k in range(1, 8, 2)} == {alone}
    assert len({found[k] for k in range(0, 8, 2)}) == 1


def test_threads_and_blocks_of_the_prompt_do_not_change_a_bit(gemma: Generator) -> None:
    ids = gemma.tokenize("The sea is calm tonight. The tide is full, the moon lies fair. " * 3)
    before = candle.threads()
    try:
        seen = []
        for count in (1, 2, 3):
            candle.set_threads(count)
            seen.append(bytes(gemma.logits(ids).buffer()))
    finally:
        candle.set_threads(before)
    assert seen[0] == seen[1] == seen[2]
    cache = gemma.new_cache()
    last = [gemma.model([k], cache) for k in ids][-1]
    assert bytes(last.buffer()) == seen[0][-gemma.model.vocabulary * 4 :]


def test_ids_outside_the_vocabulary_are_refused(smol: Generator) -> None:
    with pytest.raises(RangeError):
        smol.logits([smol.model.vocabulary])
    with pytest.raises(RangeError):
        smol.detokenize([10**6])


def test_an_unknown_option_is_named(smol: Generator) -> None:
    for call in (smol.generate, smol.stream):
        with pytest.raises(OptionError, match=r"generate options.*'temprature'.*'temperature'"):
            call("a", temprature=1)
    with pytest.raises(OptionError, match=r"chat options.*'max_token'.*'max_tokens'"):
        smol.chat([{"role": "user", "content": "a"}], max_token=1)
    with pytest.raises(OptionError, match="stop"):
        smol.generate("a", stop=[""])


def test_precision_and_context_are_checked() -> None:
    with pytest.raises(OptionError, match="precision"):
        Generator.load("smollm2-135m-instruct", precision="f16")
    with pytest.raises(OptionError, match="8192"):
        Generator.load("smollm2-135m-instruct", context=8193)


def test_an_unknown_name_says_how_to_get_it() -> None:
    with pytest.raises(NameNotFoundError, match="smollm2-135m-instruct"):
        Generator.load("smollm2-135m-instrct")


def test_closing_a_stream_ends_the_work(smol: Generator) -> None:
    stream = smol.stream("Once upon a time", max_tokens=500)
    next(stream)
    stream.close()
    assert list(stream) == []
    assert len(stream.tokens) <= 3


def test_ids_over_the_context_are_refused_before_any_work(smol: Generator) -> None:
    with pytest.raises(ContextLengthError, match=str(smol.context + 1)):
        smol.logits([1] * (smol.context + 1))


@pytest.mark.parametrize("stop", [None, 1, b"x", ["a", 2], [""], "\ud800"])
def test_stops_are_texts(smol: Generator, stop: Any) -> None:
    with pytest.raises(OptionError, match="stop"):
        smol.generate("tea", max_tokens=2, stop=stop)


def test_ids_are_integers_of_any_kind(smol: Generator) -> None:
    ids = smol.tokenize("The capital")
    assert smol.detokenize(np.array(ids)) == "The capital"
    assert smol.logits(np.array(ids)).to_vec() == smol.logits(ids).to_vec()
    wrong: list[Any] = [None, [1.5], "abc", [None], 3]
    for bad in wrong:
        with pytest.raises(OptionError):
            smol.detokenize(bad)
        with pytest.raises(OptionError):
            smol.logits(bad)


@pytest.mark.parametrize("name", [None, 3, b"smollm2-135m-instruct", []])
def test_what_is_loaded_has_a_name(name: Any) -> None:
    with pytest.raises(OptionError, match="a name or a path"):
        Generator.load(name)


def test_a_stream_closed_early_says_so(smol: Generator) -> None:
    stream = smol.stream("Once upon a time", max_tokens=50)
    assert next(stream) and stream.finish_reason == ""
    stream.close()
    assert stream.finish_reason == "closed" and list(stream) == []
    whole = smol.stream("Once upon a time", max_tokens=2)
    assert "".join(whole) and whole.finish_reason == "length"
    whole.close()
    assert whole.finish_reason == "length"


def test_threads_share_a_stream(smol: Generator) -> None:
    """Each piece goes to one of them; none gets an error of Python's."""
    expected = smol.generate("Once upon a time", max_tokens=40)
    stream = smol.stream("Once upon a time", max_tokens=40)
    pieces: list[str] = []
    threads = [threading.Thread(target=lambda: pieces.extend(stream)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted("".join(pieces)) == sorted(expected)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers")
def test_a_signal_handler_may_close_a_stream(smol: Generator) -> None:
    """It runs in the midst of a piece, in the same thread: nothing must wait for itself."""
    stream = smol.stream("Once upon a time", max_tokens=2000)
    before = signal.signal(signal.SIGALRM, lambda *_: stream.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        pieces = list(stream)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stream.finish_reason == "closed" and len(pieces) < 1900


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "top_k", "seed", "max_tokens"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), -1, "1", True, 1j])
def test_numbers_out_of_range_are_named(smol: Generator, name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=name):
        smol.generate("tea", **{"max_tokens": 2, name: value})


def test_numbers_of_numpy_are_numbers(smol: Generator) -> None:
    options = {"top_k": 5, "seed": 7, "max_tokens": 3}
    given = {name: np.int64(value) for name, value in options.items()}
    text = smol.generate("tea", temperature=np.float32(0.5), **given)
    assert text == smol.generate("tea", temperature=0.5, **options)


@pytest.mark.parametrize("wrong", [-1, 10**6, 2**40, 2**70])
def test_ids_outside_the_vocabulary_are_named(smol: Generator, wrong: int) -> None:
    for call in (smol.detokenize, smol.logits):
        with pytest.raises(RangeError, match=f"from 0 to 49151, got {wrong}"):
            call([5, wrong])


def test_a_context_is_no_truth_value() -> None:
    with pytest.raises(OptionError, match="context"):
        Generator.load("smollm2-135m-instruct", context=True)


def test_a_message_without_content_is_told_by_the_template(smol: Generator) -> None:
    with pytest.raises(TemplateError, match=r"can render these messages.* 'content'"):
        smol.chat([{"role": "user"}])


def test_a_prompt_may_fill_the_context_where_no_text_is_asked_for() -> None:
    small = Generator.load("smollm2-135m-instruct", context=8)
    full = "a b c d e f g h"
    assert len(small.tokenize(full)) == 8
    assert small.generate(full, max_tokens=0) == ""
    with pytest.raises(ContextLengthError, match="fewer than 8 tokens"):
        small.generate(full, max_tokens=1)
    assert len(small.generate(full[:-2], max_tokens=None).tokens) == 1
