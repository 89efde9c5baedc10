"""How a GGUF file's `tokenizer.ggml.pre` cuts text into words before byte-level BPE.

A GGUF file holds only a name; the rules behind the name are those of the model's own
`tokenizer.json`, written here as its `normalizer` and `pre_tokenizer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import TokenizerError

_Step = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WordRule:
    """Steps before BPE; `ignore_merges` takes a whole word that is a token without merging."""

    steps: Sequence[_Step]
    normalizer: _Step | None = None
    ignore_merges: bool = False
    add_bos: bool = False

    def pipeline(self) -> Mapping[str, object]:
        """The two parts as a `tokenizer.json` writes them."""
        sequence = {"type": "Sequence", "pretokenizers": list(self.steps)}
        return {"normalizer": self.normalizer, "pre_tokenizer": sequence}


def word_rule(name: str) -> WordRule:
    """The rule of that name. Raises TokenizerError naming it and the known ones."""
    try:
        return _RULES[name]
    except KeyError:
        known = ", ".join(sorted(_RULES))
        raise TokenizerError("tokenizer.ggml.pre", f"one of {known}", name) from None


def _split(pattern: str) -> _Step:
    return {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }


def _bytes(gpt2_words: bool) -> _Step:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": gpt2_words,
    }


_DIGITS: _Step = {"type": "Digits", "individual_digits": True}
_NFC: _Step = {"type": "NFC"}
_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"


def _modern_words(letters: str, number: str) -> _Step:
    """The rule that GPT-4 began: contractions, words, numbers, signs, line ends, spaces."""
    return _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
        rf"|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+"
        rf"|{number}"
        rf"| ?[^\s{letters}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_GPT2 = WordRule([_bytes(gpt2_words=True)])
_SINGLE_DIGITS = WordRule([_DIGITS, _bytes(gpt2_words=True)])
_LLAMA3 = WordRule(
    [_modern_words(r"\p{L}", r"\p{N}{1,3}"), _bytes(gpt2_words=False)],
    ignore_merges=True,
    add_bos=True,
)
_QWEN2 = WordRule([_modern_words(r"\p{L}", r"\p{N}"), _bytes(gpt2_words=False)], _NFC)
_QWEN35 = WordRule([_modern_words(r"\p{L}\p{M}", r"\p{N}"), _bytes(gpt2_words=False)])
_DEFAULT = WordRule(
    [
        _split(r"[\p{P}\$\+<=>\^~\|]+"),
        _split(_GPT2_WORDS),
        _split(r"\p{N}+"),
        _split(r"[0-9][0-9][0-9]"),
        _bytes(gpt2_words=False),
    ]
)

_RULES: Mapping[str, WordRule] = {
    "default": _DEFAULT,
    "gpt-2": _GPT2,
    "phi-2": _GPT2,
    "olmo": _GPT2,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "refact": _SINGLE_DIGITS,
    "codeshell": _SINGLE_DIGITS,
    "command-r": WordRule(_SINGLE_DIGITS.steps, _NFC),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": _QWEN35,
}
