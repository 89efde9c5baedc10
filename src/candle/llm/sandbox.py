"""The Jinja environment that chat templates run in.

Behaves as Hugging Face's does (sandboxed, immutable, `trim_blocks`, `lstrip_blocks`, loop controls,
`generation` blocks, their `tojson` and `raise_exception`), with three things added:

- only attributes, filters, tests and globals on a list are there, none that reaches into Python;
- everything costs steps of one budget (`budget.py`);
- text of the template itself is told apart from text given to it (`marked.py`).

For the last two the parsed template is rewritten (`rewrite.py`) before it is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import TemplateError
from . import marked
from .budget import budget, check_power, check_product, counted, spend, spend_text, spend_value
from .rewrite import Hidden, rewritten

if TYPE_CHECKING:
    from jinja2 import Environment, Template

_MAX_SOURCE = 1 << 16
_MAX_RANGE = 10_000
_MAX_INDENT = 32
_LONGEST_ENTITY = len("&quot;")

# Filters, tests and globals of Jinja that are taken as they are.
_FILTERS = (
    *("abs", "d", "default", "dictsort", "first", "float", "int", "items", "last", "length"),
    *("count", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select"),
    *("selectattr", "sort", "title", "unique", "wordcount"),
)
_TESTS = (
    *("boolean", "callable", "defined", "divisibleby", "even", "false", "float", "in", "integer"),
    *("iterable", "lower", "mapping", "none", "number", "odd", "sameas", "sequence", "string"),
    *("true", "undefined", "upper", "eq", "equalto", "==", "ne", "!=", "ge", ">=", "gt", ">"),
    *("greaterthan", "le", "<=", "lt", "<", "lessthan"),
)
_GLOBALS = ("cycler", "dict", "joiner", "namespace")
_ATTRIBUTES: Mapping[str, Sequence[str]] = {
    "dict": ("get", "items", "keys", "values"),
    "Cycler": ("current", "next", "reset"),
    "LoopContext": (
        *("changed", "cycle", "depth", "depth0", "first", "index", "index0", "last", "length"),
        *("nextitem", "previtem", "revindex", "revindex0"),
    ),
}


@lru_cache(maxsize=16)
def compiled(source: str) -> Template:
    """The template, to be rendered inside a `budget`. Raises TemplateError or Jinja's errors."""
    if len(source) > _MAX_SOURCE:
        raise TemplateError("chat template", f"at most {_MAX_SOURCE} characters", len(source))
    environment = _environment()
    with budget():
        return environment.from_string(rewritten(environment.parse(source)))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import exceptions, ext, pass_context, sandbox

    class ChatEnvironment(sandbox.ImmutableSandboxedEnvironment):
        """Each hook is one call of a function of this module."""

        intercepted_binops = frozenset(_OPERATORS)
        concat = staticmethod(marked.concat)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            return _OPERATORS[operator](left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return super().is_safe_attribute(obj, attr, value) and _allowed(obj, attr)

        def unsafe_undefined(self, obj: Any, attribute: str) -> Any:
            if attribute.startswith("_"):
                raise exceptions.SecurityError(f"attribute {attribute!r} is out of reach")
            return super().unsafe_undefined(obj, attribute)

        def getattr(self, obj: Any, attribute: str) -> Any:
            return _text_method(self, obj, attribute) or super().getattr(obj, attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:
            return _text_method(self, obj, argument) or super().getitem(obj, argument)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
            return _charged(super().call(__context, __obj, *_counted_args(__obj, args), **kwargs))

    environment = ChatEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        cache_size=0,
        finalize=_charged,
        extensions=[ext.loopcontrols, _generation_blocks()],
    )
    taken = {name: _charging(environment.filters[name]) for name in _FILTERS}
    environment.filters = {**taken, **_OWN_FILTERS}
    for hidden, function in _HIDDEN_FILTERS.items():
        environment.filters[hidden.value] = pass_context(_contextless(function))
    tests: dict[str, Any] = environment.tests
    environment.tests = {name: _charging(tests[name]) for name in _TESTS}
    kept = {name: environment.globals[name] for name in _GLOBALS}
    environment.globals = {**kept, "range": _range, "raise_exception": _raise_exception}
    return environment


def _generation_blocks() -> type[Any]:
    from jinja2 import ext

    class Generation(ext.Extension):
        """`{% generation %}` only marks what a model said, for training; its body stands."""

        tags = frozenset(["generation"])  # type: ignore[assignment]

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _contextless(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """Takes a context that it ignores, so that Jinja cannot work it out while compiling."""
    return lambda context, value: function(value)


def _charging(function: Callable[..., Any]) -> Callable[..., Any]:
    """Charges what goes in and what comes out."""

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            spend_value(value)
        return _charged(function(*args, **kwargs))

    return charged


def _charged(value: Any) -> Any:
    spend_value(value)
    return value


def _counted_args(called: object, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`loop(items)` begins another loop, whose turns count as well."""
    spend()
    return (
        (counted(args[0]), *args[1:]) if type(called).__name__ == "LoopContext" and args else args
    )


def _allowed(obj: object, attr: str) -> bool:
    kind = type(obj).__name__
    return kind == "Namespace" or attr in _ATTRIBUTES.get(kind, ())


def _text_method(environment: Any, obj: object, attribute: object) -> Callable[..., Any] | None:
    if not isinstance(obj, str) or not isinstance(attribute, str):
        return None
    if attribute == "format":
        return partial(_format, environment, obj)
    if attribute in marked.ASKING:
        return partial(marked.ask, attribute, obj)
    method = marked.METHODS.get(attribute)
    return partial(method, obj) if method else None


def _format(__environment: Any, __template: str, *args: object, **kwargs: object) -> str:
    from jinja2.sandbox import SandboxedFormatter

    formatter = SandboxedFormatter(__environment)
    return marked.formatted(__template, args, kwargs, lambda *field: formatter.get_field(*field)[0])


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, str) and isinstance(right, str):
        if not (hasattr(left, "__html__") or hasattr(right, "__html__")):
            return marked.concat((left, right))
        spend_text(_LONGEST_ENTITY * (len(left) + len(right)))
    return _charged(left + right)


def _multiply(left: Any, right: Any) -> Any:
    check_product(left, right)
    return left * right


def _power(left: Any, right: Any) -> Any:
    check_power(left, right)
    return left**right


def _modulo(left: Any, right: Any) -> Any:
    return marked.percent(left, right) if isinstance(left, str) else left % right


_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "*": _multiply,
    "**": _power,
    "%": _modulo,
}


def _range(*args: int) -> range:
    numbers = range(*args)
    if len(numbers) > _MAX_RANGE:
        raise TemplateError("range", f"at most {_MAX_RANGE} numbers", len(numbers))
    return numbers


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError("chat template", "messages that it accepts", message)


def _text(value: object) -> str:
    spend_value(value)
    return value if isinstance(value, str) else str(value)


def _safe(value: object) -> str:
    """Jinja's own: what is added to the text later is escaped for HTML, as everywhere else."""
    from markupsafe import Markup

    return Markup(_text(value))


def _join(values: Any, d: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        raise TemplateError("join", "no attribute (use map)", attribute)
    return marked.join(_text(d), [_text(item) for item in counted(values)])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Hugging Face's: the characters as they are, and none of them escaped for HTML."""
    step = " " * min(indent, _MAX_INDENT + 1) if isinstance(indent, int) else indent or ""
    widest = max(map(len, (step, *(separators or ()))))
    if widest > _MAX_INDENT:
        raise TemplateError("tojson", f"at most {_MAX_INDENT} characters between", widest)
    for _ in range(8 + widest):
        spend_value(value)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _indent(value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Jinja's own filter; the text counts as plain afterwards."""
    step = width if isinstance(width, str) else " " * min(width, _MAX_INDENT + 1)
    if len(step) > _MAX_INDENT:
        raise TemplateError("indent", f"a width of at most {_MAX_INDENT}", width)
    lines = (_text(value) + "\n").splitlines()
    spend_text(len(value) + len(step) * len(lines))
    indented = [step + line if line or blank else line for line in lines]
    if not first:
        indented[0] = lines[0]
    return "\n".join(indented)


_OWN_FILTERS: Mapping[str, Callable[..., Any]] = {
    "capitalize": lambda value: marked.METHODS["capitalize"](_text(value)),
    "indent": _indent,
    "join": _join,
    "lower": lambda value: marked.METHODS["lower"](_text(value)),
    "replace": lambda value, old, new, count=-1: marked.replace(
        _text(value), _text(old), _text(new), -1 if count is None else count
    ),
    "safe": _safe,
    "string": _text,
    "tojson": _tojson,
    "trim": lambda value, chars=None: marked.strip(_text(value), chars),
    "upper": lambda value: marked.METHODS["upper"](_text(value)),
}

_HIDDEN_FILTERS: Mapping[Hidden, Callable[[Any], Any]] = {
    Hidden.TRUSTED: marked.trusted,
    Hidden.COUNTED: counted,
    Hidden.CHARGED: _charged,
    Hidden.JOINED: lambda values: marked.concat(map(_text, values)),
    Hidden.SEARCHED: lambda value: value if isinstance(value, dict) else _charged(value),
}
