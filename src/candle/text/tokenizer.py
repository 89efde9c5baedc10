"""`Tokenizer`: text to token ids and back, the same face for every kind of tokenizer.

How special tokens are treated, in one place:

- `special=True` puts the model's own tokens around the text (a BOS, or `[CLS]` and `[SEP]`). A BOS
  is not put in front of a text that already begins with one.
- `parse_special=True` reads a special token's text inside the text (`<|im_end|>`) as that token.
  With False it is plain text like any other: what a user wrote can then never end a turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Protocol

from ..errors import OptionError, RangeError, TokenizerError
from ..formats.paths import as_path, require_file
from .added import AddedTokens
from .end_tokens import END_TOKENS
from .hf import HfEngine


class Engine(Protocol):
    """What a kind of tokenizer does for `Tokenizer`; ids are checked before they come here."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def strips_first_space(self) -> bool: ...
    def encode(self, text: str, special: bool, parse_special: bool) -> list[int]: ...
    def encode_batch(
        self, texts: Sequence[str], special: bool, parse_special: bool
    ) -> list[list[int]]: ...
    def token_to_id(self, token: str) -> int | None: ...
    def id_to_token(self, token_id: int) -> str | None: ...
    @property
    def special_tokens(self) -> Mapping[str, int]: ...
    def is_special(self, token_id: int) -> bool: ...
    def token_bytes(self, token_id: int) -> bytes | None: ...
    def least_tokens(self, text: str) -> int: ...
    def decode(self, ids: Sequence[int], skip_special: bool) -> str | None: ...


class Tokenizer:
    """Text to ids and back. Immutable, so several threads may use one at once.

    bos_id: the token that begins a text, or None. eos_ids: the tokens that end one, or a turn.
    add_bos: whether `encode(..., special=True)` puts the BOS in front.
    """

    def __init__(
        self,
        engine: Engine,
        bos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        add_bos: bool = False,
    ) -> None:
        self._engine = engine
        self.bos_id = bos_id
        self.eos_ids = tuple(dict.fromkeys(eos_ids))
        self.add_bos = add_bos

    @classmethod
    def from_file(cls, path: str | Path) -> Tokenizer:
        """From a `tokenizer.json`, and the `tokenizer_config.json` beside it where there is one.

        Everything about the text comes from `tokenizer.json`; the configuration only names the
        BOS and EOS. Raises FormatError, OptionError, and OSError where the file cannot be read.
        """
        path = as_path(path, "tokenizer.json")
        require_file(path, f"tokenizer {path}")
        beside = path.with_name("tokenizer_config.json")
        config = _json_object(beside.read_bytes(), beside.name) if beside.is_file() else {}
        return cls.from_bytes(path.read_bytes(), config)

    @classmethod
    def from_bytes(cls, data: bytes, config: Mapping[str, object] | None = None) -> Tokenizer:
        """From the bytes of a `tokenizer.json`. Truncation and padding set there are switched off.

        `config` is a parsed `tokenizer_config.json`. Raises TokenizerError.
        """
        engine = HfEngine.from_json(bytes(data))
        named = {key: _named_id(engine, config or {}, key) for key in ("bos_token", "eos_token")}
        bos_id = named["bos_token"]
        ends = [named["eos_token"], *map(engine.token_to_id, sorted(END_TOKENS))]
        eos_ids = [i for i in ends if i is not None and (i == ends[0] or engine.is_special(i))]
        first = engine.encode("", True, True)[:1]
        return cls(engine, bos_id, eos_ids, add_bos=bos_id is not None and first == [bos_id])

    def encode(self, text: str, special: bool = True, parse_special: bool = True) -> list[int]:
        """The ids of `text`; see the module's text for the two flags. Raises OptionError."""
        ids = self._engine.encode(_checked(text), special, parse_special)
        return ids[self._doubled(ids, special) :]

    def encode_batch(
        self, texts: Sequence[str], special: bool = True, parse_special: bool = True
    ) -> list[list[int]]:
        """`encode` of each text, on several threads where the engine has them."""
        batch = self._engine.encode_batch([*map(_checked, texts)], special, parse_special)
        return [ids[self._doubled(ids, special) :] for ids in batch]

    def encode_parts(self, parts: Iterable[tuple[str, bool]], special: bool = True) -> list[int]:
        """The ids of a text whose special tokens count only in its trusted parts.

        `parts` are (text, trusted) in order. Where every special token in the whole text stands in
        a trusted part, this is `encode` of the whole; otherwise the text between the trusted ones
        is encoded as plain text. With `special`, a BOS is put in front where the model wants one
        and the text has none; nothing is put behind. Raises OptionError.
        """
        parts = [(_checked(text), trusted) for text, trusted in parts]
        text = "".join(part for part, _ in parts)
        trusted = [*self._trusted_tokens(parts)]
        if trusted == [*self._special_finder.find(text)]:
            ids = self._engine.encode(text, False, True)
        else:
            ids, done = [], 0
            for start, end, token_id in [*trusted, (len(text), len(text), -1)]:
                ids += self._engine.encode(text[done:start], False, False)
                ids += [token_id] if end > start else []
                done = end
        if special and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of `ids`; special tokens are left out unless asked for.

        Bytes that are not UTF-8 become U+FFFD as in `bytes.decode("utf-8", "replace")`.
        Raises RangeError for an id outside the vocabulary.
        """
        checked = [self._in_range(i) for i in ids]
        text = self._engine.decode(checked, skip_special)
        if text is None:
            kept = [i for i in checked if not (skip_special and self.is_special(i))]
            text = b"".join(map(self.id_to_bytes, kept)).decode("utf-8", "replace")
            if self._engine.strips_first_space:
                text = text.removeprefix(" ")
        return text

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least, told from its length alone; 0 if unknown.

        What one token can stand for is bounded by the longest in the vocabulary.
        """
        return self._engine.least_tokens(text)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return self._engine.vocab_size

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Text to id of the tokens that control the model rather than stand for text."""
        return self._engine.special_tokens

    def token_to_id(self, token: str) -> int | None:
        """The id of a token as the vocabulary writes it, or None."""
        return self._engine.token_to_id(token)

    def id_to_token(self, token_id: int) -> str:
        """A token as the vocabulary writes it. Raises RangeError."""
        token = self._engine.id_to_token(token_id)
        if token is None:
            raise RangeError("token id", f"one of the {self.vocab_size} ids", token_id)
        return token

    def id_to_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token, often a part of a character; a special token's own text.

        Raises RangeError, and TokenizerError where tokens of this kind have no exact bytes.
        """
        found = self._engine.token_bytes(self._in_range(token_id))
        if found is None:
            raise TokenizerError(
                "id_to_bytes", "a byte-level or SentencePiece BPE tokenizer", "another kind"
            )
        return found

    def is_special(self, token_id: int) -> bool:
        """Whether the token controls the model rather than stands for text. Raises RangeError."""
        return self._engine.is_special(self._in_range(token_id))

    @cached_property
    def _special_finder(self) -> AddedTokens:
        return AddedTokens(self.special_tokens)

    def _trusted_tokens(self, parts: Iterable[tuple[str, bool]]) -> Iterator[tuple[int, int, int]]:
        """Start, end and id of the special tokens that lie in one stretch of trusted parts."""
        offset = 0
        for trusted, stretch in groupby(parts, key=itemgetter(1)):
            text = "".join(part for part, _ in stretch)
            if trusted:
                for start, end, token_id in self._special_finder.find(text):
                    yield offset + start, offset + end, token_id
            offset += len(text)

    def _in_range(self, token_id: int) -> int:
        self.id_to_token(token_id)
        return token_id

    def _doubled(self, ids: Sequence[int], special: bool) -> bool:
        """Whether the text began with the BOS that was put in front of it."""
        return special and self.add_bos and len(ids) > 1 and ids[0] == ids[1] == self.bos_id


def _checked(text: str) -> str:
    if not isinstance(text, str):
        raise OptionError("encode", "text as str", type(text).__name__)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            lone = f"U+{ord(text[error.start]):04X} at character {error.start}"
            hint = "text.encode('utf-8', 'replace').decode() puts '?' there"
            raise OptionError("encode", "text without lone surrogates", lone, hint) from None
    return text


def _json_object(data: bytes, name: str) -> Mapping[str, object]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(name, "JSON", error) from error
    if not isinstance(value, dict):
        raise TokenizerError(name, "a JSON object", type(value).__name__)
    return value


def _named_id(engine: HfEngine, config: Mapping[str, object], key: str) -> int | None:
    """The id of `bos_token` or `eos_token`, written as a text or as an object with `content`."""
    value = config.get(key)
    token = value.get("content") if isinstance(value, dict) else value
    if token is None:
        return None
    token_id = engine.token_to_id(token) if isinstance(token, str) else None
    if token_id is None:
        raise TokenizerError("tokenizer_config.json", f"{key} to be in the vocabulary", token)
    return token_id
