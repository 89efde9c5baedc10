"""Rewrites a parsed chat template so that running it can be watched.

Expressions are wrapped in filters whose names hold a space, which no template can write.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ..errors import TemplateError

if TYPE_CHECKING:
    from jinja2 import nodes


class Hidden(StrEnum):
    """The filters: text of the template; a loop's items; anything that has a size; `~`; `in`."""

    TRUSTED = "candle trusted"
    COUNTED = "candle counted"
    CHARGED = "candle charged"
    JOINED = "candle joined"
    SEARCHED = "candle searched"


def rewritten(template: nodes.Template) -> nodes.Template:
    """The template with every text, loop, literal, slice, `~` and comparison wrapped.

    Raises TemplateError for statements that would read another template.
    """
    made: nodes.Template = _rewrite(template)
    return made


def _rewrite(node: Any) -> Any:
    from jinja2 import nodes

    if isinstance(node, nodes.Include | nodes.Import | nodes.FromImport | nodes.Extends):
        raise TemplateError("chat template", "one template", type(node).__name__.lower())
    for name, value in node.iter_fields():
        if isinstance(value, nodes.Node):
            setattr(node, name, _rewrite(value))
        elif isinstance(value, list):
            value[:] = [_rewrite(v) if isinstance(v, nodes.Node) else v for v in value]
    wrap = _WRAPPERS.get(type(node).__name__)
    return wrap(node) if wrap else node


def _filter(node: Any, name: Hidden) -> Any:
    from jinja2 import nodes

    return nodes.Filter(node, name.value, [], [], None, None, lineno=node.lineno)


def _const(node: Any) -> Any:
    return _filter(node, Hidden.TRUSTED) if isinstance(node.value, str) else node


def _template_data(node: Any) -> Any:
    from jinja2 import nodes

    return _filter(nodes.Const(node.data, lineno=node.lineno), Hidden.TRUSTED)


def _for(node: Any) -> Any:
    node.iter = _filter(node.iter, Hidden.COUNTED)
    return node


def _concat(node: Any) -> Any:
    from jinja2 import nodes

    return _filter(nodes.Tuple(node.nodes, "load", lineno=node.lineno), Hidden.JOINED)


def _literal(node: Any) -> Any:
    return node if getattr(node, "ctx", "load") == "store" else _filter(node, Hidden.CHARGED)


def _getitem(node: Any) -> Any:
    return _filter(node, Hidden.CHARGED) if type(node.arg).__name__ == "Slice" else node


def _compare(node: Any) -> Any:
    node.expr = _filter(node.expr, Hidden.CHARGED)
    for operand in node.ops:
        name = Hidden.SEARCHED if operand.op in ("in", "notin") else Hidden.CHARGED
        operand.expr = _filter(operand.expr, name)
    return node


_WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "Compare": _compare,
    "Concat": _concat,
    "Const": _const,
    "Dict": _literal,
    "For": _for,
    "Getitem": _getitem,
    "List": _literal,
    "TemplateData": _template_data,
    "Tuple": _literal,
}
