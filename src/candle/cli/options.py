"""Arguments and options that several commands share."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import PackageError
from ..package.manifest import check_name

F = TypeVar("F", bound=Callable[..., Any])


def text(value: str) -> str:
    """A text of valid Unicode: an argument may hold any bytes. Raises BadParameter."""
    try:
        value.encode()
        return value
    except UnicodeEncodeError:
        pass
    try:  # a locale without UTF-8 leaves the bytes as they came
        return os.fsencode(value).decode("utf-8")
    except UnicodeError:
        raise click.BadParameter(f"{value!r} is not valid UTF-8.") from None


def name(value: str) -> str:
    """A text that is not empty: an unset variable is not a name. Raises BadParameter."""
    if not value:
        raise click.BadParameter("it is empty.")
    return text(value)


def package_name(value: str) -> str:
    """A name that a package may have. Raises BadParameter."""
    try:
        check_name(name(value), "name")
    except PackageError as error:
        raise click.BadParameter(f"expected {error.expected}, got {error.got}.") from None
    return value


def installed_name(value: str) -> str:
    """The name of an installed package, as the store writes it. Raises BadParameter."""
    return package_name(value.lower())


def is_file(value: str) -> bool:
    """Whether a word can only mean a package file."""
    return value.lower().endswith(".candle")


def installed_or_file(value: str) -> str:
    """The name of an installed package, or a `.candle` file as the system has it."""
    return value if is_file(value) else installed_name(value)


class _Path(click.Path):
    """A path as the system has it, not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("it is empty.", param, ctx)
        return super().convert(value, param, ctx)


TEXT = click.types.FuncParamType(text)
NAME = click.types.FuncParamType(name)
PACKAGE_NAME = click.types.FuncParamType(package_name)
INSTALLED = click.types.FuncParamType(installed_name)
INSTALLED_OR_FILE = click.types.FuncParamType(installed_or_file)
PATH = _Path(path_type=str)


def json_flag(what: str) -> Callable[[F], F]:
    """--json: `what` is its help."""
    return click.option("--json", "as_json", is_flag=True, help=what)


top_k = click.option(
    "--top-k", type=click.IntRange(min=1), default=3, show_default=True, help="Number of results."
)
max_tokens = click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    default=256,
    show_default=True,
    help="Most tokens of the answer.",
)
stream = click.option(
    "--stream/--no-stream",
    default=None,
    help="Print the text as it is made. Default: on a terminal.",
)
embedder = click.option(
    "--embedder",
    type=NAME,
    metavar="MODEL",
    help="Where its embedding model is, a name or a path; one in the file counts as a name.",
)
filters = click.option(
    "--filter",
    "conditions",
    type=TEXT,
    multiple=True,
    metavar="KEY=VALUE",
    help="Keep chunks by metadata; VALUE is JSON or a plain word. May be repeated.",
)

_SAMPLING: dict[str, dict[str, Any]] = {
    "--temperature": {"type": float, "default": 0.0, "help": "0 takes the likeliest token."},
    "--top-k": {
        "type": click.IntRange(min=0),
        "default": 0,
        "help": "Only the K likeliest; 0: all.",
    },
    "--top-p": {"type": float, "default": 1.0, "help": "Only the likeliest that add up to P."},
    "--min-p": {"type": float, "default": 0.0, "help": "None below P times the likeliest."},
    "--seed": {"type": int, "help": "Makes sampling repeatable."},
    "--stop": {"type": TEXT, "multiple": True, "help": "Text that ends it. May be repeated."},
}


def sampling(function: F) -> F:
    """The options of `Generator.generate` that choose tokens."""
    for name, settings in reversed(_SAMPLING.items()):
        function = click.option(name, show_default="default" in settings, **settings)(function)
    return function


def parse_filters(conditions: tuple[str, ...]) -> dict[str, Any] | None:
    """`("lang=en", 'year={"$gte": 2020}')` as a filter. Raises BadParameter."""
    found: dict[str, Any] = {}
    for condition in conditions:
        key, equals, value = condition.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{condition!r} is not KEY=VALUE.", param_hint="'--filter'")
        if key in found:
            raise click.BadParameter(f"{key!r} is given twice.", param_hint="'--filter'")
        found[key] = _value(value)
    return found or None


def _value(word: str) -> Any:
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        return word
    except ValueError:  # Python reads no number of more than some thousand digits
        what = f"a number of {len(word):,} characters is longer than any that can be stored."
        raise click.BadParameter(what, param_hint="'--filter'") from None
    except RecursionError:
        what = f"a value of {len(word):,} characters is nested too deeply."
        raise click.BadParameter(what, param_hint="'--filter'") from None


def read_prompt(prompt: str) -> str:
    """The prompt, or for "-" what stands on stdin, whole. Raises BadParameter."""
    if prompt != "-":
        return prompt
    data = sys.stdin.buffer.read() if sys.stdin is not None else b""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"byte {error.start} of stdin is not UTF-8."
        raise click.BadParameter(place, param_hint="'PROMPT'") from None
