"""The Hugging Face `tokenizers` library behind our engine interface. Only this module imports it.

Every exception of the library becomes a TokenizerError, and so does a panic of its Rust code,
which Python sees as a BaseException.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import TokenizerError
from .token_bytes import BYTE_CHARACTERS, TokenBytes, byte_level_bytes, sentencepiece_bytes

_FRAME: Mapping[str, object] = {
    "version": "1.0",
    "model": {"type": "BPE", "vocab": {}, "merges": []},
    "decoder": {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    },
}


@contextmanager
def guarded(op: str, expected: str) -> Iterator[None]:
    """Turns whatever the library raises into a TokenizerError that says what was wanted."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(op, expected, f"{error}"[:300]) from error


@dataclass(frozen=True, slots=True)
class BytePairs:
    """A byte-level BPE vocabulary and what surrounds it, ready for the library.

    merges: pairs in order of rank. pipeline: the `normalizer` and `pre_tokenizer` of a
    `tokenizer.json`. special, user_defined: texts that are found in raw text as they stand.
    prefix, suffix: tokens put around a text.
    """

    ids: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    pipeline: Mapping[str, object]
    ignore_merges: bool
    special: Sequence[str]
    user_defined: Sequence[str]
    prefix: Sequence[str] = field(default=())
    suffix: Sequence[str] = field(default=())


class HfEngine:
    """One library tokenizer, in two forms that share its vocabulary.

    The second form, made when first asked for, reads special tokens in a text as plain text. The
    library has a switch for that, but a switch cannot be flipped while another thread encodes.
    """

    def __init__(self, tokenizer: Any) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._plain: Any = None
        self._bounds: tuple[int, bytes] | None = None
        self._added: dict[int, Any] = tokenizer.get_added_tokens_decoder()
        self._special_ids = frozenset(i for i, token in self._added.items() if token.special)
        self._token_bytes, self.strips_first_space = _reader(_state(tokenizer.decoder))
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_json(cls, data: bytes) -> HfEngine:
        """From the bytes of a `tokenizer.json`. Raises TokenizerError."""
        from tokenizers import Tokenizer

        with guarded("tokenizer.json", "a complete tokenizer"):
            return cls(Tokenizer.from_buffer(data))

    @classmethod
    def from_byte_pairs(cls, pairs: BytePairs) -> HfEngine:
        """From a byte-level BPE vocabulary. Raises TokenizerError."""
        from tokenizers import Tokenizer, models

        with guarded("byte-level BPE", "merges and tokens that fit together"):
            tokenizer = Tokenizer.from_str(json.dumps({**_FRAME, **pairs.pipeline}))
            tokenizer.model = models.BPE(
                dict(pairs.ids), list(pairs.merges), ignore_merges=pairs.ignore_merges
            )
            _add(tokenizer, pairs.user_defined, special=False)
            _add(tokenizer, pairs.special, special=True)
            _surround(tokenizer, pairs)
            return cls(tokenizer)

    def encode(self, text: str, special: bool, parse_special: bool) -> list[int]:
        tokenizer = self._form(parse_special)
        with guarded("encode", "text this tokenizer can read"):
            ids: list[int] = tokenizer.encode(text, add_special_tokens=special).ids
            return ids

    def encode_batch(
        self, texts: Sequence[str], special: bool, parse_special: bool
    ) -> list[list[int]]:
        tokenizer = self._form(parse_special)
        with guarded("encode", "texts this tokenizer can read"):
            found = tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
            return [encoding.ids for encoding in found]

    def token_to_id(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def id_to_token(self, token_id: int) -> str | None:
        token: str | None = None
        if 0 <= token_id < 1 << 32:
            token = self._tokenizer.id_to_token(token_id)
        return token

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return {self._added[i].content: i for i in sorted(self._special_ids)}

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes | None:
        """None where the kind of tokenizer has no exact bytes (WordPiece, Unigram ...)."""
        token = self.id_to_token(token_id)
        if self._token_bytes is None or token is None:
            return None
        literal = token_id in self._added and self._token_bytes is byte_level_bytes
        if literal or token_id in self._special_ids:
            return token.encode()
        return self._token_bytes(token)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least; known for byte-level tokens only."""
        if self._bounds is None:
            self._bounds = _bounds(self._tokenizer, self._added.values())
        longest, dropped = self._bounds
        if not longest or self._token_bytes is not byte_level_bytes:
            return 0
        raw = text.encode("utf-8", "replace")
        return -(-(len(raw) - sum(raw.count(byte) for byte in dropped)) // longest)

    def decode(self, ids: Sequence[int], skip_special: bool) -> str | None:
        """The library's own text where tokens have no exact bytes, else None."""
        if self._token_bytes is not None:
            return None
        with guarded("decode", "ids of this vocabulary"):
            text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special)
            return text

    def _form(self, parse_special: bool) -> Any:
        if parse_special:
            return self._tokenizer
        if self._plain is None:
            with guarded("encode", "a vocabulary whose tokens can be added again"):
                self._plain = _without_special_parsing(self._tokenizer, self._added)
        return self._plain


def _bounds(tokenizer: Any, added: Collection[Any]) -> tuple[int, bytes]:
    """Most bytes of text that one token stands for, and the bytes that stand for none.

    The first is 0 where there is no bound.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    absent = (i for i, c in enumerate(BYTE_CHARACTERS) if c not in vocabulary)
    dropped = bytes(i for i in absent if i < 0xF5 and i not in (0xC0, 0xC1))  # those in UTF-8
    longest = max(map(len, vocabulary), default=0)  # a character of a token is a byte of text
    longest = max([longest, *(len(token.content.encode()) for token in added)])
    normalizer = tokenizer.normalizer
    if any(token.lstrip or token.rstrip for token in added) or getattr(
        tokenizer.model, "unk_token", None
    ):
        return 0, b""
    if normalizer is None:
        return longest, dropped
    if dropped or json.loads(normalizer.__getstate__()) != {"type": "NFC"}:
        return 0, b""
    return 3 * longest, b""  # the 3 bytes of U+212A become the 1 of K, a syllable's 9 become 3


def _without_special_parsing(tokenizer: Any, added: Mapping[int, Any]) -> Any:
    from tokenizers import Tokenizer

    twin = Tokenizer(tokenizer.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(tokenizer, part)) is not None:
            setattr(twin, part, value)
    twin.add_tokens([added[token_id] for token_id in sorted(added)])
    if {i: t.content for i, t in twin.get_added_tokens_decoder().items()} != {
        i: t.content for i, t in added.items()
    }:
        twin = Tokenizer.from_str(tokenizer.to_str())
    twin.encode_special_tokens = True
    return twin


def _add(tokenizer: Any, texts: Sequence[str], special: bool) -> None:
    from tokenizers import AddedToken

    tokenizer.add_tokens([AddedToken(t, special=special, normalized=False) for t in texts])


def _surround(tokenizer: Any, pairs: BytePairs) -> None:
    from tokenizers import processors

    around = [*pairs.prefix, *pairs.suffix]
    if around:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*pairs.prefix, "$A", *pairs.suffix],
            special_tokens=[(token, pairs.ids[token]) for token in dict.fromkeys(around)],
        )


def _state(decoder: Any) -> list[Mapping[str, Any]]:
    """The decoder's steps as a `tokenizer.json` writes them."""
    if decoder is None:
        return []
    state = json.loads(decoder.__getstate__())
    return list(state["decoders"]) if state["type"] == "Sequence" else [state]


def _reader(steps: Sequence[Mapping[str, Any]]) -> tuple[TokenBytes | None, bool]:
    """How tokens are turned into bytes, and whether a text's first space is taken away."""
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return byte_level_bytes, False
    if "ByteFallback" in kinds:
        return sentencepiece_bytes, any(s["type"] == "Strip" and s["start"] == 1 for s in steps)
    return None, False
