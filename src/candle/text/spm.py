"""SentencePiece BPE by scores, as the Llama and Gemma families use it.

Characters are joined pair by pair; the pair whose joined text has the best score goes first. Ties
are broken as Hugging Face's converted `tokenizer.json` breaks them (longer left part, longer right
part, lower id, leftmost), so ids equal theirs. No merge list is needed for that: a 262,144-word
vocabulary is ready as soon as one dict is made, where deriving its 514,906 merges and handing them
to a library takes over two seconds. Words are remembered, so running text is not slower either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from .added import AddedTokens
from .token_bytes import SPACE_MARK, sentencepiece_bytes

_CACHED_CHUNKS = 32_768
_CACHED_LENGTH = 48
_NUL = "\0"
_WHOLE = re.compile(r"(?s:.+)")

# -score, -len(left), -len(right), id of the joined text, place of left, place of right, joined text
_Pair = tuple[float, int, int, int, int, int, str]


@dataclass(frozen=True, slots=True)
class SpmVocabulary:
    """A checked vocabulary; `gguf_vocab` makes it from a file.

    tokens, scores: by id. In a piece, a space is written U+2581.
    pieces: what merging may make, to its id: normal, user-defined and unused tokens.
    user_defined, special: found in raw text as they stand; special ones only where asked for.
    byte_ids: ids of the 256 byte tokens, or empty where the vocabulary has none.
    """

    tokens: Sequence[str]
    scores: Sequence[float]
    pieces: Mapping[str, int]
    user_defined: Mapping[str, int]
    special: Mapping[str, int]
    byte_ids: Sequence[int]
    unknown_id: int | None
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    add_space_prefix: bool


class SpmEngine:
    """Text to ids and back over one `SpmVocabulary`; safe to use from several threads."""

    def __init__(self, vocabulary: SpmVocabulary) -> None:
        self._vocabulary = vocabulary
        self._special_ids = frozenset(vocabulary.special.values())
        self._user_defined = AddedTokens(vocabulary.user_defined)
        self._all_added = AddedTokens({**vocabulary.user_defined, **vocabulary.special})
        # Without byte tokens, unknown neighbours share one token, across chunks too.
        self._chunks = chunk_pattern(vocabulary.pieces) if vocabulary.byte_ids else _WHOLE
        self._cache: dict[str, list[int]] = {}

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary.tokens)

    @property
    def strips_first_space(self) -> bool:
        """True where encoding puts a space before the text, which decoding takes away again."""
        return self._vocabulary.add_space_prefix

    def encode(self, text: str, special: bool, parse_special: bool) -> list[int]:
        vocabulary = self._vocabulary
        ids: list[int] = []
        if special and vocabulary.add_bos and vocabulary.bos_id is not None:
            ids.append(vocabulary.bos_id)
        for piece in (self._all_added if parse_special else self._user_defined).split(text):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                self._encode_plain(piece, ids)
        if special and vocabulary.add_eos and vocabulary.eos_id is not None:
            ids.append(vocabulary.eos_id)
        return ids

    def encode_batch(
        self, texts: Sequence[str], special: bool, parse_special: bool
    ) -> list[list[int]]:
        return [self.encode(text, special, parse_special) for text in texts]

    def token_to_id(self, token: str) -> int | None:
        for table in (self._vocabulary.special, self._vocabulary.pieces):
            if token in table:
                return table[token]
        found = [i for i in self._vocabulary.byte_ids if self._vocabulary.tokens[i] == token]
        return found[0] if found else None

    def id_to_token(self, token_id: int) -> str | None:
        return self._vocabulary.tokens[token_id] if 0 <= token_id < self.vocab_size else None

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return self._vocabulary.special

    def is_special(self, token_id: int) -> bool:
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        token = self._vocabulary.tokens[token_id]
        return token.encode() if token_id in self._special_ids else sentencepiece_bytes(token)

    def least_tokens(self, text: str) -> int:
        """A number of tokens that `text` has at least; 0 where unknown neighbours share one."""
        if not self._vocabulary.byte_ids:
            return 0
        return -(-len(text) // max(map(len, self._vocabulary.tokens)))

    def decode(self, ids: Sequence[int], skip_special: bool) -> str | None:
        """None: the bytes of the tokens say it all."""
        return None

    def _encode_plain(self, text: str, ids: list[int]) -> None:
        if self._vocabulary.add_space_prefix:
            text = " " + text
        cache = self._cache
        for chunk in self._chunks.findall(text.replace(" ", SPACE_MARK)):
            known = cache.get(chunk)
            if known is None:
                known = self._merge(chunk)
                if len(chunk) <= _CACHED_LENGTH:
                    if len(cache) >= _CACHED_CHUNKS:
                        cache.clear()
                    cache[chunk] = known
            ids.extend(known)

    def _merge(self, chunk: str) -> list[int]:
        """The ids of one chunk. Parts form a linked list; a joined right part becomes empty."""
        parts = list(chunk)
        before = list(range(-1, len(parts) - 1))
        after = [*range(1, len(parts)), -1]
        queue = [pair for i in range(len(parts) - 1) if (pair := self._pair(parts, i, i + 1))]
        heapify(queue)
        while queue:
            *_, i, j, joined = heappop(queue)
            if after[i] != j or not parts[i] or len(parts[i]) + len(parts[j]) != len(joined):
                continue
            parts[i], parts[j] = joined, ""
            after[i] = k = after[j]
            if k >= 0:
                before[k] = i
                if pair := self._pair(parts, i, k):
                    heappush(queue, pair)
            if before[i] >= 0 and (pair := self._pair(parts, before[i], i)):
                heappush(queue, pair)
        return self._ids_of(filter(None, parts))

    def _pair(self, parts: Sequence[str], i: int, j: int) -> _Pair | None:
        left, right = parts[i], parts[j]
        pieces = self._vocabulary.pieces
        token_id = pieces.get(left + right)
        if token_id is None or left not in pieces or right not in pieces:
            return None
        score = self._vocabulary.scores[token_id]
        return -score, -len(left), -len(right), token_id, i, j, left + right

    def _ids_of(self, parts: Iterable[str]) -> list[int]:
        """Ids of merged parts: one not in the vocabulary becomes its bytes, or the unknown token.

        Neighbouring unknown parts share one unknown token.
        """
        vocabulary = self._vocabulary
        ids: list[int] = []
        unknown = False
        for part in parts:
            token_id = vocabulary.pieces.get(part)
            if token_id is not None:
                ids.append(token_id)
            elif vocabulary.byte_ids:
                ids.extend(vocabulary.byte_ids[byte] for byte in part.encode())
            elif vocabulary.unknown_id is not None and not unknown:
                ids.append(vocabulary.unknown_id)
            unknown = token_id is None
        return ids


def chunk_pattern(pieces: Mapping[str, int]) -> re.Pattern[str]:
    """Cuts text before a space mark wherever no piece spans that place: chunks merge alone.

    A piece may hold a mark after another character only for the few characters found here
    (in Gemma's vocabulary just one); the text is not cut after those.
    """
    joined = _NUL.join(pieces)
    if joined.count(_NUL) != max(len(pieces) - 1, 0):
        return _WHOLE
    spanning = {found[0] for found in re.findall(f"[^{SPACE_MARK}{_NUL}]{SPACE_MARK}", joined)}
    chunk = f"(?:{SPACE_MARK}+[^{SPACE_MARK}]*|[^{SPACE_MARK}]+)"
    if spanning:
        kept = "".join(map(re.escape, sorted(spanning)))
        chunk += f"(?:(?<=[{kept}]){SPACE_MARK}+[^{SPACE_MARK}]*)*"
    return re.compile(chunk)
