"""Generator: a language model that completes and answers.

generator = Generator.load("smollm2-135m-instruct")
print(generator.generate("The capital of France is", max_tokens=16))
for piece in generator.stream("Once upon a time"): print(piece, end="")
print(generator.chat([{"role": "user", "content": "Name three rivers."}]))
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Generator as Coroutine
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .. import functional
from .._native import set_threads
from ..autograd import no_grad
from ..errors import CandleError, ContextLengthError, OptionError, RangeError, TemplateError
from ..models.decoder import Decoder, DecoderConfig
from ..package.names import resolve
from ..tensor import Tensor
from ..text import Tokenizer, gguf_tokenizer
from .cache import KvCache
from .chat import encode_chat
from .detok import Detokenizer
from .length import refuse_long, too_long
from .options import GenerateOptions
from .package import open_weights
from .sampler import Sampler
from .stop import StopMatcher

DEFAULT_CONTEXT = 4096
BLOCK = 512  # tokens of a prompt worked on at once: bounds memory, and how late a stop is noticed


class Generation(str):
    """The text of an answer, and how it came about.

    finish_reason: "stop" (an end token or a stop text) or "length"; prompt_tokens: tokens of the
    prompt; tokens: ids generated, the end token included.
    """

    finish_reason: str
    prompt_tokens: int
    tokens: list[int]


class TextStream(Iterator[str]):
    """Pieces of an answer as they become certain; the facts of `Generation` grow as it goes.

    `finish_reason` is empty until the end, and "closed" where `close` came before it. Several
    threads may take pieces: each piece goes to one of them.
    """

    def __init__(self, generator: Generator, prompt: Sequence[int], options: GenerateOptions):
        self.prompt_tokens = len(prompt)
        self.tokens: list[int] = []
        self.finish_reason = ""
        self._pieces = self._run(generator, prompt, options)
        self._turn = threading.RLock()
        self._working = self._closing = False

    def __next__(self) -> str:
        with self._turn:
            if self._working:  # a signal handler, in the midst of a piece
                raise CandleError(
                    "stream", "the piece that is being made to be taken first", "next"
                )
            self._working = True
            try:
                return next(self._pieces)
            finally:
                self._working = False

    def close(self) -> None:
        """Stops generating; waits for a piece that another thread is being given."""
        self._closing = True
        with self._turn:
            if not self._working:
                self._pieces.close()
                self.finish_reason = self.finish_reason or "closed"

    def _run(
        self, generator: Generator, prompt: Sequence[int], options: GenerateOptions
    ) -> Coroutine[str, None, None]:
        tokenizer, matcher = generator.tokenizer, StopMatcher(options.stop)
        text, stop_ids = Detokenizer(tokenizer), generator.stop_ids(options.stop)
        for token in generator.tokens(prompt, options):
            self.tokens.append(token)
            if self._closing:
                self.finish_reason = "closed"
                return
            if token in stop_ids:
                self.finish_reason = "stop"
                break
            piece = matcher.feed(text.feed(token))
            if piece:
                yield piece
            if matcher.stopped:
                self.finish_reason = "stop"
                return
        rest = matcher.feed(text.finish()) + matcher.finish()
        if matcher.stopped:
            self.finish_reason = "stop"
        self.finish_reason = self.finish_reason or "length"
        if rest:
            yield rest

    def whole(self) -> Generation:
        """Runs to the end; the text, with its facts."""
        out = Generation("".join(self))
        out.finish_reason, out.tokens = self.finish_reason, self.tokens
        out.prompt_tokens = self.prompt_tokens
        return out


class _Logits:
    """What the sampler asks of the logits of one position."""

    def __init__(self, logits: Tensor) -> None:
        self._logits = logits

    @property
    def size(self) -> int:
        return self._logits.count

    def top(self, k: int) -> tuple[list[int], list[float]]:
        values, ids = self._logits.topk(k)
        return ids.to_vec(), values.to_vec()

    def logsumexp(self, temperature: float) -> float:
        return float(functional.logsumexp(self._logits.div(temperature)))


class Generator:
    """A decoder with its tokenizer and chat template. Several threads may generate at once.

    context: tokens that prompt and answer may take together. template: the chat template, or None.
    """

    def __init__(
        self, model: Decoder, tokenizer: Tokenizer, context: int, template: str | None = None
    ) -> None:
        if tokenizer.vocab_size > model.vocabulary:
            got = f"a tokenizer of {tokenizer.vocab_size}"
            raise OptionError("generator", f"at most {model.vocabulary} ids", got)
        self.model = model
        self.tokenizer = tokenizer
        self.context = context
        self.template = template

    @staticmethod
    def load(
        name: str | os.PathLike[str],
        precision: str = "auto",
        threads: int | None = None,
        context: int | None = None,
    ) -> Generator:
        """From a path, an installed package or a known name (`candle doctor` lists those found).

        precision: "auto" multiplies block weights by int8 activations, "f32" by f32 ones.
        threads: size of the kernels' pool (of the process). context: default min(model's, 4096).
        Raises NameNotFoundError, FormatError, OptionError.
        """
        if precision not in ("auto", "f32"):
            raise OptionError("precision", "'auto' or 'f32'", repr(precision))
        if threads is not None:
            set_threads(threads)
        weights = open_weights(resolve(name))
        config = DecoderConfig.read(weights.metadata)
        template = weights.metadata.get("tokenizer.chat_template")
        return Generator(
            Decoder(weights, config, exact=precision == "f32"),
            gguf_tokenizer(weights.metadata),
            _context(context, config.context),
            template if isinstance(template, str) else None,
        )

    # -- text ------------------------------------------------------------------------------------

    def generate(self, prompt: str, **options: Any) -> Generation:
        """Completes the prompt as given (with a BOS where the model wants one).

        Options: max_tokens=256, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=None,
        stop=(). Raises ContextLengthError if the prompt leaves no room, OptionError.
        """
        return self.stream(prompt, **options).whole()

    def stream(self, prompt: str, **options: Any) -> TextStream:
        """The same in pieces; none of them holds a part of a character or of a stop text."""
        checked = GenerateOptions.named("generate", options)
        if isinstance(prompt, str):
            refuse_long("generate", self.tokenizer, prompt, self.context)
        return self._start(self.tokenize(prompt), checked)

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Generation:
        """Answers a list of {"role", "content"} through the model's template.

        Raises TemplateError if the model has no template; options as for `generate`.
        """
        return self.stream_chat(messages, **options).whole()

    def stream_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> TextStream:
        """The same in pieces."""
        checked = GenerateOptions.named("chat", options)
        return self._start(self.chat_ids(messages), checked)

    def chat_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Token ids of a conversation, up to where the answer begins. Raises TemplateError."""
        if self.template is None:
            hint = "a base model: use generate()"
            raise TemplateError("chat", "a model with a chat template", "none in its file", hint)
        return encode_chat(self.tokenizer, self.template, messages, self.context)

    def _start(self, prompt: list[int], checked: GenerateOptions) -> TextStream:
        if len(prompt) + (checked.max_tokens != 0) > self.context:
            raise too_long("generate", self.context, f"{len(prompt)} tokens")
        if not prompt:
            hint = "the model has no BOS to start from"
            raise OptionError("generate", "a prompt of at least one token", "an empty one", hint)
        return TextStream(self, prompt, checked)

    # -- tokens ----------------------------------------------------------------------------------

    def tokenize(self, text: str, special: bool = True) -> list[int]:
        """Ids of a text; `special` adds the BOS where the model wants one."""
        return self.tokenizer.encode(text, special=special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """Text of ids, without special tokens."""
        return self.tokenizer.decode(_ids("detokenize", ids, self.tokenizer.vocab_size))

    def stop_ids(self, stop: Sequence[str] = ()) -> frozenset[int]:
        """Ids that end an answer: the model's own, and stop texts that are one special token."""
        ids = set(self.tokenizer.eos_ids)
        for text in stop:
            found = self.tokenizer.token_to_id(text)
            if found is not None and self.tokenizer.is_special(found):
                ids.add(found)
        return frozenset(ids)

    def new_cache(self) -> KvCache:
        """Room for one conversation."""
        return KvCache(self.model.config.layers, self.context)

    def tokens(self, prompt: Sequence[int], options: GenerateOptions) -> Iterator[int]:
        """Sampled ids after a prompt, end tokens included; ends at max_tokens or the context."""
        room = self.context - len(prompt)
        count = room if options.max_tokens is None else min(options.max_tokens, room)
        if count <= 0:
            return
        sampler, cache = Sampler(options.sampler), self.new_cache()
        for start in range(0, len(prompt), BLOCK):
            logits = self.model(prompt[start : start + BLOCK], cache)
        for k in range(count):
            token = sampler.pick(_Logits(logits))
            yield token
            if k + 1 < count:
                logits = self.model([token], cache)

    def logits(self, ids: Sequence[int]) -> Tensor:
        """Logits f32 [len(ids), vocabulary]: row i scores what follows ids[: i + 1].

        Raises ContextLengthError, RangeError, OptionError.
        """
        ids = _ids("logits", ids, self.model.vocabulary)
        if not ids:
            return Tensor.zeros((0, self.model.vocabulary))
        if len(ids) > self.context:
            raise ContextLengthError("logits", f"at most {self.context} ids", len(ids))
        cache = self.new_cache()
        with no_grad():
            parts = [
                self.model(ids[k : k + BLOCK], cache, all_rows=True)
                for k in range(0, len(ids), BLOCK)
            ]
            return parts[0] if len(parts) == 1 else Tensor.cat(parts)


def _ids(name: str, ids: Iterable[int], count: int) -> list[int]:
    """Token ids below `count` as plain integers. Raises OptionError, RangeError."""
    try:
        whole = [operator.index(i) for i in ids]
    except TypeError as error:
        raise OptionError(name, "a list of token ids", str(error)) from error
    wrong = next((i for i in whole if not 0 <= i < count), None)
    if wrong is not None:
        raise RangeError(name, f"token ids from 0 to {count - 1}", wrong)
    return whole


def _context(asked: int | None, most: int) -> int:
    if asked is None:
        return min(most, DEFAULT_CONTEXT)
    if not isinstance(asked, int) or isinstance(asked, bool) or not 1 <= asked <= most:
        raise OptionError("context", f"1 to {most} (the model's)", asked)
    return asked
