"""A `Tokenizer` from the vocabulary inside a GGUF file (`tokenizer.ggml.*`).

Two models are known: `llama` (SentencePiece BPE by scores) and `gpt2` (byte-level BPE by merges).
The ids are those of the model's own `tokenizer.json`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from enum import IntEnum
from typing import Any

from ..errors import TokenizerError
from .end_tokens import END_TOKENS
from .hf import BytePairs, HfEngine
from .pretokenizers import word_rule
from .spm import SpmEngine, SpmVocabulary
from .token_bytes import SPACE_MARK, byte_token_value
from .tokenizer import Tokenizer

_PREFIX = "tokenizer.ggml."


class TokenKind(IntEnum):
    """The numbers of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_SPECIAL = (TokenKind.CONTROL, TokenKind.UNKNOWN)
_NEVER_MERGED = (*_SPECIAL, TokenKind.BYTE)


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describe. Raises TokenizerError."""
    builders: Mapping[str, Callable[[_Vocabulary], Tokenizer]] = {
        "llama": _sentencepiece,
        "gpt2": _byte_level,
    }
    model = metadata.get(_PREFIX + "model")
    if not isinstance(model, str) or model not in builders:
        raise TokenizerError(_PREFIX + "model", "one of " + ", ".join(sorted(builders)), model)
    return builders[model](_Vocabulary(metadata))


class _Vocabulary:
    """The checked arrays and settings that both models share."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.tokens = self._tokens()
        self.ids: dict[str, int] = dict(zip(self.tokens, range(len(self.tokens)), strict=True))
        if len(self.ids) != len(self.tokens):
            self._refuse_twins()
        normal = int(TokenKind.NORMAL)
        self._others = [(i, kind) for i, kind in enumerate(self._kinds()) if kind != normal]

    def text(self, key: str, default: str) -> str:
        return str(self._typed(key, str, default))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._typed(key, bool, default))

    def adds(self, name: str, token_id: int | None, default: bool) -> bool:
        """Whether that token is put around texts; asking for one that is not named is an error."""
        asked = self.flag(f"add_{name}_token", default and token_id is not None)
        if asked and token_id is None:
            raise TokenizerError(
                _PREFIX + f"{name}_token_id", "an id, as it is to be added", "none"
            )
        return asked

    def special_id(self, key: str, default: int | None = None) -> int | None:
        """The id under `key`; the default only where the vocabulary has such an id at all."""
        token_id = self._typed(key, int, None)
        if token_id is None:
            return default if default is not None and default < len(self.tokens) else None
        if not 0 <= token_id < len(self.tokens):
            raise TokenizerError(_PREFIX + key, f"an id below {len(self.tokens)}", token_id)
        return int(token_id)

    def array(self, key: str, length: int | None = None) -> Sequence[Any]:
        """The array under `key`, of that length. Raises TokenizerError."""
        value = self._metadata.get(_PREFIX + key)
        if value is None or isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise TokenizerError(_PREFIX + key, "an array", type(value).__name__)
        if length is not None and len(value) != length:
            raise TokenizerError(_PREFIX + key, f"{length} entries, one a token", len(value))
        return value

    def texts(self, key: str) -> list[str]:
        """The array of texts under `key`. Raises TokenizerError."""
        values = list(self.array(key))
        if set(map(type, values)) - {str}:
            raise TokenizerError(_PREFIX + key, "texts only", "other values among them")
        return values

    def of_kind(self, *kinds: TokenKind) -> dict[str, int]:
        """Text to id of the tokens of these kinds, none of them NORMAL, in order of id."""
        return {self.tokens[i]: i for i, kind in self._others if kind in kinds}

    def end_ids(self) -> list[int]:
        """The ids that end a text or a turn: those the file names, then those known by name."""
        named = (self.special_id(f"{name}_token_id") for name in ("eos", "eot", "eom"))
        by_text = (self.ids[token] for token in sorted(END_TOKENS & self.ids.keys()))
        return [i for i in (*named, *by_text) if i is not None]

    def _typed(self, key: str, kind: type, default: Any) -> Any:
        value = self._metadata.get(_PREFIX + key)
        if value is None:
            return default
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TokenizerError(_PREFIX + key, kind.__name__, value)
        return value

    def _tokens(self) -> list[str]:
        tokens = self.texts("tokens")
        if not tokens:
            raise TokenizerError(_PREFIX + "tokens", "at least one token", "none")
        if "" in tokens:
            tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
        return tokens

    def _kinds(self) -> list[int]:
        if _PREFIX + "token_type" not in self._metadata:
            return [TokenKind.NORMAL] * len(self.tokens)
        kinds = list(self.array("token_type", len(self.tokens)))
        if set(map(type, kinds)) != {int} or not set(kinds) <= set(TokenKind):
            odd = sorted({str(kind) for kind in kinds} - {str(kind.value) for kind in TokenKind})
            raise TokenizerError(_PREFIX + "token_type", "numbers from 1 to 6", ", ".join(odd[:5]))
        for token in END_TOKENS & self.ids.keys():
            kinds[self.ids[token]] = TokenKind.CONTROL
        return kinds

    def _refuse_twins(self) -> None:
        first = next(i for i, token in enumerate(self.tokens) if self.ids[token] != i)
        twin = self.ids[self.tokens[first]]
        raise TokenizerError(
            _PREFIX + "tokens", "no two tokens alike", f"{self.tokens[first]!r} at {first}, {twin}"
        )


def _sentencepiece(vocabulary: _Vocabulary) -> Tokenizer:
    eos_id = vocabulary.special_id("eos_token_id", 2)
    bos_id = vocabulary.special_id("bos_token_id", 1)
    tokens, pieces, user_defined = _space_marked(vocabulary)
    spm = SpmVocabulary(
        tokens=tokens,
        scores=_scores(vocabulary, user_defined),
        pieces=pieces,
        user_defined=user_defined,
        special=vocabulary.of_kind(*_SPECIAL),
        byte_ids=_byte_ids(vocabulary),
        unknown_id=vocabulary.special_id("unknown_token_id", 0),
        bos_id=bos_id,
        eos_id=eos_id,
        add_bos=vocabulary.adds("bos", bos_id, True),
        add_eos=vocabulary.adds("eos", eos_id, False),
        add_space_prefix=vocabulary.flag("add_space_prefix", True),
    )
    if not spm.byte_ids and spm.unknown_id is None:
        raise TokenizerError(_PREFIX + "tokens", "256 byte tokens or an unknown token", "neither")
    ends = vocabulary.end_ids() if eos_id is None else [eos_id, *vocabulary.end_ids()]
    return Tokenizer(SpmEngine(spm), bos_id, ends, spm.add_bos)


def _space_marked(vocabulary: _Vocabulary) -> tuple[list[str], dict[str, int], dict[str, int]]:
    """Tokens by id, pieces and user-defined tokens, all with U+2581 for a space.

    Files write that mark in normal tokens, but a plain space in user-defined ones.
    """
    tokens, pieces = list(vocabulary.tokens), dict(vocabulary.ids)
    for token in vocabulary.of_kind(*_NEVER_MERGED):
        del pieces[token]
    user_defined = {}
    for token, token_id in vocabulary.of_kind(TokenKind.USER_DEFINED).items():
        marked = token.replace(" ", SPACE_MARK)
        if marked != token:
            del pieces[token]
        tokens[token_id] = marked
        pieces[marked] = user_defined[marked] = token_id
    return tokens, pieces, user_defined


def _scores(vocabulary: _Vocabulary, user_defined: Mapping[str, int]) -> list[float]:
    """Scores by id; user-defined tokens hold a filler in files, and 0 in the model itself."""
    scores = list(vocabulary.array("scores", len(vocabulary.tokens)))
    if not set(map(type, scores)) <= {int, float} or any(map(math.isnan, scores)):
        raise TokenizerError(_PREFIX + "scores", "numbers, none of them NaN", "others")
    for token_id in user_defined.values():
        scores[token_id] = 0.0
    return scores


def _byte_ids(vocabulary: _Vocabulary) -> list[int]:
    """The ids of the byte tokens 0 to 255, or none where the vocabulary has not all of them."""
    found = vocabulary.of_kind(TokenKind.BYTE)
    ids = {byte_token_value(token): token_id for token, token_id in found.items()}
    return [ids[byte] for byte in range(256)] if ids.keys() >= set(range(256)) else []


def _byte_level(vocabulary: _Vocabulary) -> Tokenizer:
    rule = word_rule(vocabulary.text("pre", "default"))
    special = vocabulary.of_kind(*_SPECIAL)
    bos_id, eos_id = vocabulary.special_id("bos_token_id"), vocabulary.special_id("eos_token_id")
    add_bos = vocabulary.adds("bos", bos_id, rule.add_bos)
    add_eos = vocabulary.adds("eos", eos_id, False)
    pairs = BytePairs(
        ids=vocabulary.ids,
        merges=_merges(vocabulary, special.keys()),
        pipeline=rule.pipeline(),
        ignore_merges=rule.ignore_merges,
        special=list(special),
        user_defined=list(vocabulary.of_kind(TokenKind.USER_DEFINED)),
        prefix=[vocabulary.tokens[bos_id]] if add_bos and bos_id is not None else [],
        suffix=[vocabulary.tokens[eos_id]] if add_eos and eos_id is not None else [],
    )
    return Tokenizer(HfEngine.from_byte_pairs(pairs), bos_id, vocabulary.end_ids(), add_bos)


def _merges(vocabulary: _Vocabulary, special: Set[str]) -> list[tuple[str, str]]:
    """Merges in order of rank, without any that would make a special token out of plain text."""
    pairs = [tuple(merge.split(" ")) for merge in vocabulary.texts("merges")]
    for rank, pair in enumerate(pairs):
        if len(pair) != 2:
            raise TokenizerError(_PREFIX + "merges", f"two parts at {rank}", " ".join(pair))
    return [(left, right) for left, right in pairs if left + right not in special]
