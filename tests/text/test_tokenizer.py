"""The Tokenizer's own promises, on small vocabularies made here."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from candle.errors import OptionError, RangeError, TokenizerError
from candle.text import Tokenizer
from candle.text.token_bytes import BYTE_CHARACTERS
from support import oracles
from support.awkward import awkward_texts


def added(token_id: int, content: str, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": content, "special": special, **flags}


def word_piece(**normalizer: Any) -> bytes:
    words = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "schön",
        "Größe",
        "café",
        "schon",
        "große",
        "cafe",
        "hello",
        "!",
    ]
    options = {"clean_text": True, "handle_chinese_chars": True, **normalizer}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": {
                "max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right",
            },
            "padding": {
                "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]",
            },
            "added_tokens": [added(i, words[i]) for i in range(3)],
            "normalizer": {"type": "BertNormalizer", **options},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": None,
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {w: i for i, w in enumerate(words)},
            },
        }
    ).encode()  # fmt: skip


def byte_level(bos: bool = True, words_apart: bool = True) -> bytes:
    """Every byte is a token (2 to 257), one merge, `<s>` in front."""
    tool = added(259, "<tool>", special=False)
    vocab = {"<s>": 0, "</s>": 1, **{c: i + 2 for i, c in enumerate(BYTE_CHARACTERS)}, "he": 258}
    process = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
    }
    step = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": words_apart,
    }
    return json.dumps(
        {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [added(0, "<s>"), added(1, "</s>"), tool],
            "pre_tokenizer": step, "post_processor": process if bos else None, "decoder": step,
            "model": {"type": "BPE", "vocab": vocab, "merges": ["h e"]},
        }
    ).encode()  # fmt: skip


CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "tokenizer_class": "LlamaTokenizer"}


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer.from_bytes(byte_level(), CONFIG)


def test_truncation_and_padding_of_the_file_are_off() -> None:
    tokenizer = Tokenizer.from_bytes(word_piece(lowercase=True, strip_accents=None))
    assert tokenizer.encode("hello ! hello ! hello !") == [9, 10] * 3
    assert tokenizer.encode("hello") == [9]


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "expected"),
    [
        (False, False, [3, 4, 5]),
        (True, None, [6, 7, 8]),
        (True, False, [3, 0, 5]),
        (False, True, [6, 0, 8]),
    ],
)
def test_normaliser_options_are_honoured(
    lowercase: bool, strip_accents: bool | None, expected: list[int]
) -> None:
    """llama.cpp PR 24371, PR 23899."""
    data = word_piece(lowercase=lowercase, strip_accents=strip_accents)
    assert Tokenizer.from_bytes(data).encode("schön Größe café") == expected


def test_round_trip_keeps_spaces(tokenizer: Tokenizer) -> None:
    """tokenizers#1543, transformers PR 44915."""
    for text in ("hello !", "x != y", " it 's , ok ", *awkward_texts()):
        if "<s>" not in text and "</s>" not in text:
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_tokens_are_text() -> None:
    """transformers#47473."""
    vocab = {"<unk>": 0, **{f"<0x{b:02X}>": b + 1 for b in range(256)}, "▁": 257, "foo": 258}
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    steps += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    data = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {
            "type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": True,
            "unk_token": "<unk>",
        },
    }  # fmt: skip
    tokenizer = Tokenizer.from_bytes(json.dumps(data).encode())
    text = "\nfoo 🤗 bar   "
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.id_to_bytes(11) == b"\n"


def test_the_file_wins_over_the_class_name() -> None:
    """transformers#48206: the configuration names a class that would drop spaces."""
    tokenizer = Tokenizer.from_bytes(byte_level(), {**CONFIG, "tokenizer_class": "LlamaTokenizer"})
    text = "theorem t (a b : ℕ) : a + b = b + a := by"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["<s>he", "he"])
def test_one_bos_however_the_text_begins(tokenizer: Tokenizer, text: str) -> None:
    """llama-cpp-python#1501 #1561, llama.cpp PR 7107."""
    assert tokenizer.encode(text) == [0, 258]
    assert tokenizer.encode_batch([text, text]) == [[0, 258]] * 2
    assert tokenizer.encode("<s>he", special=False) == [0, 258]


def test_bos_in_plain_text_stays_plain(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<s>he</s>", parse_special=False)
    assert ids[0] == 0 and 0 not in ids[1:] and 1 not in ids
    assert tokenizer.decode(ids) == "<s>he</s>"


@pytest.mark.parametrize("text", ["he</s>he", "<s>he</s>", "</s></s>he", "no markers"])
def test_parts_that_are_all_trusted_are_the_whole(tokenizer: Tokenizer, text: str) -> None:
    for cut in range(len(text)):
        parts = [(text[:cut], True), (text[cut:], True)]
        assert tokenizer.encode_parts(parts, special=False) == tokenizer.encode(text, special=False)


def test_special_tokens_count_in_trusted_parts_only(tokenizer: Tokenizer) -> None:
    def ids(*parts: tuple[str, bool]) -> list[int]:
        return tokenizer.encode_parts(parts, special=False)

    plain = tokenizer.encode("</s>", special=False, parse_special=False)
    assert ids(("</s>", True), ("he</s>", False), ("</s>", True)) == [1, 258, *plain, 1]
    assert ids(("</", True), ("s>", False)) == plain
    assert ids(("</", False), ("s>", True)) == plain
    assert ids(("h", True), ("e</s>", False)) == [258, *plain]
    assert ids(("</s", False), ("></s>", True)) == [*plain, 1]


def test_parts_have_one_bos(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode_parts([("he", False)]) == [0, 258]
    assert tokenizer.encode_parts([("<s>", True), ("he", False)]) == [0, 258]
    assert tokenizer.encode_parts([]) == [0]
    forged = tokenizer.encode_parts([("<s>he", False)])
    assert forged[0] == 0 and 0 not in forged[1:] and tokenizer.decode(forged) == "<s>he"


def test_bos_and_eos_come_from_the_configuration(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (0, (1,), True)
    bare = Tokenizer.from_bytes(byte_level())
    assert (bare.bos_id, bare.eos_ids, bare.add_bos) == (None, (), False)
    assert not Tokenizer.from_bytes(byte_level(bos=False), CONFIG).add_bos


def test_special_tokens_are_not_shown(tokenizer: Tokenizer) -> None:
    """llama.cpp#6772, ctransformers#124: an end token is shown where asked for only."""
    ids = [0, 258, 1, 259]
    assert tokenizer.decode(ids) == "he<tool>"
    assert tokenizer.decode(ids, skip_special=False) == "<s>he</s><tool>"
    assert [tokenizer.is_special(i) for i in ids] == [True, False, True, False]
    assert tokenizer.id_to_bytes(1) == b"</s>"


def test_bytes_of_a_split_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("😸", special=False)
    assert [tokenizer.id_to_bytes(i) for i in ids] == [b"\xf0", b"\x9f", b"\x98", b"\xb8"]
    assert tokenizer.decode(ids[:3]) == "\ufffd"


@pytest.mark.parametrize("token_id", [-1, 260, 1 << 31, 1 << 40])
def test_an_id_outside_the_vocabulary(tokenizer: Tokenizer, token_id: int) -> None:
    for call in (tokenizer.id_to_bytes, tokenizer.is_special, tokenizer.id_to_token):
        with pytest.raises(RangeError, match=str(token_id)):
            call(token_id)
    with pytest.raises(RangeError):
        tokenizer.decode([2, token_id])


def test_word_pieces_have_no_exact_bytes() -> None:
    tokenizer = Tokenizer.from_bytes(word_piece(lowercase=True))
    with pytest.raises(TokenizerError, match="byte-level"):
        tokenizer.id_to_bytes(9)
    assert tokenizer.decode([9, 10]) == "hello!"


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "é\ud83d"])
def test_lone_surrogates_are_named(tokenizer: Tokenizer, text: str) -> None:
    """llama.cpp#6396: text that is not Unicode is refused with the place, not mangled."""
    place = next(i for i, c in enumerate(text) if "\ud800" <= c <= "\udfff")
    with pytest.raises(OptionError, match=f"at character {place}"):
        tokenizer.encode(text)
    with pytest.raises(OptionError):
        tokenizer.encode_batch(["ok", text])


@pytest.mark.parametrize("text", [b"bytes", None, 3, ["a"]])
def test_only_text_is_encoded(tokenizer: Tokenizer, text: Any) -> None:
    with pytest.raises(OptionError, match="str"):
        tokenizer.encode(text)


def test_batches_equal_single_texts(tokenizer: Tokenizer) -> None:
    texts = list(awkward_texts()[:300])
    for flags in ((True, True), (True, False), (False, True), (False, False)):
        single = [tokenizer.encode(t, *flags) for t in texts]
        assert tokenizer.encode_batch(texts, *flags) == single
    assert tokenizer.encode_batch([]) == []


def test_threads_may_mix_both_readings_of_special_tokens(tokenizer: Tokenizer) -> None:
    text, failures = "he<s>he</s>" * 50, []
    expected = {p: tokenizer.encode(text, parse_special=p) for p in (True, False)}

    def work(parse: bool) -> None:
        for _ in range(200):
            if tokenizer.encode(text, parse_special=parse) != expected[parse]:
                failures.append(parse)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and expected[True] != expected[False]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", b"[]", b"null", b"\xff\xfe", b"{" * 100_000, byte_level()[:-40]]
)
def test_a_damaged_file(data: bytes) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.from_bytes(data)


def test_a_merge_of_unknown_tokens() -> None:
    with pytest.raises(TokenizerError, match="out of vocabulary"):
        Tokenizer.from_bytes(byte_level().replace(b'"h e"', b'"h ee"'))


def test_a_panic_of_the_library_is_our_error(capfd: pytest.CaptureFixture[str]) -> None:
    broken = {"type": "Precompiled", "precompiled_charsmap": "ALQCAACE"}
    data = json.loads(byte_level()) | {"normalizer": broken}
    with pytest.raises(TokenizerError):
        Tokenizer.from_bytes(json.dumps(data).encode()).encode("x")
    capfd.readouterr()


def test_mutated_files_raise_only_our_error(capfd: pytest.CaptureFixture[str]) -> None:
    dice = random.Random(7)
    junk = [b"-1", b"null", b"1e999", b'"x"', b"[]", b"{}", b"99999999999999999999", b"true", b""]
    for _ in range(400):
        data = bytearray(byte_level() if dice.random() < 0.5 else word_piece(lowercase=True))
        start = dice.choice([dice.randrange(len(data)), dice.randrange(900)])
        place = data.find(b":", start) + 1
        data[place : place + dice.randrange(1, 12)] = dice.choice(junk)
        try:
            tokenizer = Tokenizer.from_bytes(bytes(data))
            tokenizer.decode(tokenizer.encode("hello <s> é", parse_special=dice.random() < 0.5))
        except TokenizerError:
            pass
    capfd.readouterr()


def test_from_file_reads_the_configuration_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(byte_level())
    assert Tokenizer.from_file(path).bos_id is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    assert Tokenizer.from_file(path).bos_id == 0


@pytest.mark.parametrize(
    "config",
    ["{", "[]", '{"bos_token": "<nope>"}', '{"eos_token": 3}', '{"eos_token": {"content": []}}'],
)
def test_a_bad_configuration(tmp_path: Path, config: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes(byte_level())
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(TokenizerError, match="tokenizer_config"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_importing_the_room_does_not_load_the_library() -> None:
    code = "import sys, candle.text; assert not {'tokenizers', 'numpy'} & sys.modules.keys()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_minilm_has_no_bos_and_keeps_pasted_markers() -> None:
    tokenizer = Tokenizer.from_file(oracles.minilm_tokenizer())
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.vocab_size) == (None, (), 30522)
    assert tokenizer.encode("[CLS] hello") == [101, 101, 7592, 102]
    assert tokenizer.encode("[CLS]", parse_special=False) == [101, 1031, 18856, 2015, 1033, 102]
