"""Conversations to prompts, through the model's own chat template.

The rendered text is exactly Hugging Face's. Beyond it, each piece says whether the template wrote
it: control tokens such as `<|im_end|>` count only there, and stay plain text wherever a message, a
role, a tool or anything else given to the template put them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import OptionError, TemplateError
from ..formats.tree import refuse_huge
from ..text import Tokenizer
from . import marked, sandbox
from .budget import budget
from .length import refuse_long

_DEEPEST = 64
_LONGEST_DATE_FORMAT = 200


class Piece(NamedTuple):
    """A run of the rendered text; `trusted` where the template itself wrote it."""

    text: str
    trusted: bool


def render_chat(
    template: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    bos_token: str = "",
    eos_token: str = "",
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    now: datetime | None = None,
    **variables: Any,
) -> list[Piece]:
    """The prompt of a conversation, in pieces.

    `messages` are objects with a `role`; entries that are None are left out. `now` is the time
    that `strftime_now` tells (the clock's where None); other `variables` reach the template as
    they are. Raises TemplateError: malformed, refused the messages, left the sandbox or ran too
    long; OptionError: values a template cannot take.
    """
    given = {name: _copied(value, name) for name, value in variables.items()}
    given |= {"tools": _copied(tools, "tools"), "documents": given.get("documents")}
    given |= {"messages": _plain_messages(messages), "add_generation_prompt": add_generation_prompt}
    given |= {"bos_token": marked.trusted(bos_token), "eos_token": marked.trusted(eos_token)}
    given["strftime_now"] = _clock(now)
    return list(_pieces(_render(template, given)))


def encode_chat(
    tokenizer: Tokenizer,
    template: str,
    messages: Sequence[Mapping[str, Any]],
    context: int | None = None,
    **options: Any,
) -> list[int]:
    """Token ids of a conversation up to where the answer begins; `options` as in `render_chat`.

    There is exactly one BOS in front where the model wants one, whether the template writes it
    or not. Raises ContextLengthError where the text cannot fit into `context` tokens, if given.
    """
    names = {"bos_token": tokenizer.bos_id, "eos_token": next(iter(tokenizer.eos_ids), None)}
    tokens = {n: "" if i is None else tokenizer.id_to_token(i) for n, i in names.items()}
    parts = render_chat(template, messages, **{**tokens, **options})
    if context is not None:
        refuse_long("chat", tokenizer, "".join(part.text for part in parts), context)
    return tokenizer.encode_parts(parts)


def _render(template: str, given: Mapping[str, Any]) -> str:
    try:
        with budget(dict(given)):
            return sandbox.compiled(template).render(given)
    except TemplateError:
        raise
    except Exception as error:
        kind = type(error).__name__
        expected = "a template that can render these messages"
        raise TemplateError("chat template", expected, f"{kind}: {error}"[:300]) from error


def _pieces(text: str) -> Iterator[Piece]:
    for run in re.finditer(rb"\x00+|\x01+", marked.mask_of(text)):
        yield Piece(str.__getitem__(text, slice(*run.span())), run[0][0] == 1)


def _plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise OptionError("messages", "a list of {'role', 'content'}", type(messages).__name__)
    for place, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise OptionError("messages", f"an object with a 'role' at {place}", message)
    kept = [{k: v for k, v in message.items() if v is not None} for message in messages]
    return [_copied(message, f"messages[{place}]") for place, message in enumerate(kept)]


def _copied(value: Any, where: str) -> Any:
    refuse_huge(value, where)
    return _plain(value, where)


def _plain(value: Any, where: str, depth: int = 0) -> Any:
    """A copy made of JSON's types only: nothing else may come within a template's reach."""
    if depth > _DEEPEST:
        raise OptionError(where, f"at most {_DEEPEST} levels of nesting", "more")
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, Mapping):
        return {_plain(k, where, depth + 1): _plain(v, where, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, where, depth + 1) for item in value]
    raise OptionError(where, "texts, numbers, lists and objects", type(value).__name__)


def _clock(now: datetime | None) -> Any:
    def strftime_now(pattern: str) -> str:
        if len(pattern) > _LONGEST_DATE_FORMAT or re.search(r"%\W*\d", pattern):
            raise TemplateError("strftime_now", "a short date format", pattern[:40])
        return (now or datetime.now()).strftime(str.__str__(pattern))

    return strftime_now
