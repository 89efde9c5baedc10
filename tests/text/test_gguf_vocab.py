"""Tokenizers from GGUF metadata: what is read, and what is refused."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from candle.errors import CandleError, TokenizerError
from candle.text import gguf_tokenizer
from candle.text.token_bytes import BYTE_CHARACTERS

KEY = "tokenizer.ggml."
Metadata = dict[str, Any]


def keyed(values: Metadata) -> Metadata:
    return {KEY + name: value for name, value in values.items()}


def sentencepiece(**changes: Any) -> Metadata:
    """`<unk> <s> </s>`, 256 byte tokens, then pieces whose scores fall with their id."""
    pieces = ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "<t>", "  "]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces]
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(pieces) - 2), 4, 4]
    values = {"model": "llama", "tokens": tokens, "token_type": kinds}
    values["scores"] = [0.0] * 259 + [-float(i) for i in range(len(pieces) - 2)] + [-1000.0] * 2
    return keyed(values | changes)


def byte_level(**changes: Any) -> Metadata:
    tokens = [*BYTE_CHARACTERS, "he", "ll", "hell", "<|im_end|>", "<|x|>", "<u>", "<s>"]
    kinds = [1] * 259 + [3, 3, 4, 3]
    values = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds}
    values["merges"] = ["h e", "l l", "he ll"]
    return keyed(values | changes)


def ids_of(metadata: Metadata, text: str, **flags: bool) -> list[str]:
    tokenizer = gguf_tokenizer(metadata)
    return [tokenizer.id_to_token(i) for i in tokenizer.encode(text, **flags)]


def test_sentencepiece_defaults() -> None:
    """BOS in front, a space before the text, bytes for what no piece holds."""
    assert ids_of(sentencepiece(), "hello") == ["<s>", "▁hello"]
    assert ids_of(sentencepiece(), "é") == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    assert ids_of(sentencepiece(), "") == ["<s>"]
    tokenizer = gguf_tokenizer(sentencepiece())
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, (2,), True)


def test_sentencepiece_settings() -> None:
    quiet = sentencepiece(add_bos_token=False, add_eos_token=True, add_space_prefix=False)
    assert ids_of(quiet, "hello") == ["hello", "</s>"]
    assert ids_of(quiet, "hello", special=False) == ["hello"]


def test_a_space_is_put_before_each_stretch_of_text() -> None:
    assert ids_of(sentencepiece(), "hello</s>hello")[1:] == ["▁hello", "</s>", "▁hello"]


def test_decoding_takes_the_first_space_away_and_no_other() -> None:
    tokenizer = gguf_tokenizer(sentencepiece())
    for text in ("hello", " hello", "  hello", "hello  hello ", "", "é\n"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_user_defined_tokens_are_found_in_plain_text_too() -> None:
    assert ids_of(sentencepiece(), "<t>", special=False, parse_special=False) == ["<t>"]
    assert ids_of(sentencepiece(), "</s>", special=False, parse_special=False)[0] == "▁"


def test_user_defined_spaces_join_before_words() -> None:
    """Gemma's vocabulary: files write runs of spaces plainly, the model with U+2581."""
    quiet = sentencepiece(add_bos_token=False, add_space_prefix=False)
    assert ids_of(quiet, "o   hello") == ["o", "▁▁", "▁hello"]
    assert gguf_tokenizer(quiet).decode(gguf_tokenizer(quiet).encode("o   hello")) == "o   hello"


def test_a_vocabulary_without_bytes_uses_the_unknown_token_once() -> None:
    metadata = sentencepiece()
    metadata[KEY + "token_type"] = [1 if k == 6 else k for k in metadata[KEY + "token_type"]]
    assert ids_of(metadata, "éàh") == ["<s>", "▁", "<unk>", "h"]


def test_byte_level_defaults() -> None:
    assert ids_of(byte_level(), "hello") == ["hell", "o"]
    tokenizer = gguf_tokenizer(byte_level())
    assert (tokenizer.bos_id, tokenizer.add_bos) == (None, False)
    assert tokenizer.eos_ids == (259,)


def test_byte_level_bos() -> None:
    with_bos = byte_level(
        bos_token_id=262, add_bos_token=True, eos_token_id=260, add_eos_token=True
    )
    assert ids_of(with_bos, "he<u>") == ["<s>", "he", "<u>", "<|x|>"]
    assert ids_of(with_bos, "<s>he") == ["<s>", "he", "<|x|>"]
    assert gguf_tokenizer(with_bos).eos_ids == (260, 259)
    assert ids_of(byte_level(bos_token_id=262, pre="llama-bpe"), "he") == ["<s>", "he"]


def test_a_merge_never_makes_a_special_token() -> None:
    tokens = [*BYTE_CHARACTERS, "he"]
    metadata = byte_level(tokens=tokens, token_type=[1] * 256 + [3], merges=["h e"])
    assert ids_of(metadata, "he", parse_special=False) == ["h", "e"]
    assert ids_of(metadata, "he") == ["he"]


def test_a_known_end_token_counts_as_special_even_if_the_file_forgot() -> None:
    tokenizer = gguf_tokenizer(byte_level(token_type=[1] * 263))
    assert tokenizer.is_special(259) and tokenizer.eos_ids == (259,)


def test_an_unknown_pre_tokenizer_is_named_with_the_known_ones() -> None:
    with pytest.raises(TokenizerError, match=r"gpt-2.*llama-bpe.*qwen2.*smollm.*got klingon"):
        gguf_tokenizer(byte_level(pre="klingon"))


@pytest.mark.parametrize("model", [None, "bert", 7, ["llama"]])
def test_an_unknown_model_is_named(model: Any) -> None:
    with pytest.raises(TokenizerError, match=r"gpt2, llama"):
        gguf_tokenizer({KEY + "model": model})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tokens", None), ("tokens", []), ("tokens", "abc"), ("tokens", [1, 2]), ("tokens", [b"a"]),
        ("tokens", ["a", "a"]), ("scores", None), ("scores", [0.0]), ("scores", ["x"] * 271),
        ("scores", [math.nan] * 271), ("token_type", [1]), ("token_type", [9] * 271),
        ("token_type", ["1"] * 271), ("bos_token_id", 271), ("bos_token_id", -1),
        ("bos_token_id", "1"),
        ("bos_token_id", True), ("eos_token_id", 1 << 40), ("add_bos_token", 1),
        ("add_space_prefix", "yes"), ("unknown_token_id", 1e9),
    ],
)  # fmt: skip
def test_damaged_sentencepiece_metadata(key: str, value: Any) -> None:
    with pytest.raises(TokenizerError, match=KEY):
        gguf_tokenizer(sentencepiece(**{key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merges", None), ("merges", ["he"]), ("merges", ["h e l"]), ("merges", [3]), ("pre", 3),
        ("merges", ["h zz"]), ("merges", ["zz h"]), ("merges", ["h h"]), ("add_bos_token", True),
        ("add_eos_token", True), ("tokens", ["", ""]),
    ],
)  # fmt: skip
def test_damaged_byte_level_metadata(key: str, value: Any) -> None:
    with pytest.raises(TokenizerError):
        gguf_tokenizer(byte_level(**{key: value}))


def test_empty_tokens_get_names() -> None:
    metadata = sentencepiece()
    metadata[KEY + "tokens"][261:263] = ["", ""]
    assert gguf_tokenizer(metadata).id_to_token(262) == "[EMPTY_262]"


def test_junk_metadata_raise_only_our_errors() -> None:
    dice = random.Random(3)
    junk: list[Any] = [
        None,
        "",
        "x",
        -1,
        0,
        1,
        1 << 70,
        math.inf,
        True,
        [],
        [""],
        ["a b"],
        [None],
        {},
    ]
    for _ in range(2000):
        metadata = sentencepiece() if dice.random() < 0.5 else byte_level()
        for _ in range(dice.randrange(1, 3)):
            key = dice.choice([*metadata, KEY + "bos_token_id", KEY + "add_eos_token", KEY + "pre"])
            if isinstance(metadata.get(key), list) and metadata[key] and dice.random() < 0.7:
                values = list(metadata[key])
                values[dice.randrange(len(values))] = dice.choice(junk)
                metadata[key] = values
            else:
                metadata[key] = dice.choice(junk)
        try:
            tokenizer = gguf_tokenizer(metadata)
            tokenizer.decode(tokenizer.encode("hello </s> é <t>  x"))
        except CandleError:
            pass
