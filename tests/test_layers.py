"""Data goes down the street in one direction: a room imports only what stands before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"

# DESIGN.md's rooms, in the order data flows; rooms of one line share a rank but not each other
STREET = (
    ("_version", "errors"),
    ("dtype", "arguments"),
    ("shape", "device"),
    ("formats",),
    ("fetch",),
    ("_native", "tracing"),
    ("storage",),
    ("nested", "guests"),
    ("op", "launch"),
    ("images", "losses", "creation", "steps", "attending"),
    ("eager", "anomaly"),
    ("autograd", "generator", "indexing"),
    ("tensor",),
    ("functional", "recompute"),
    ("random",),
    ("weights",),
    ("testing",),
    ("nn",),
    ("optim", "datasets"),
    ("compiler",),
    ("package",),
    ("text",),
    ("models",),
    ("convert",),
    ("llm",),
    ("rag",),
    ("serve",),
    ("cli",),
    ("candle_cli",),
    ("__main__",),
)
RANK = {room: n for n, rooms in enumerate(STREET) for room in rooms}
PUBLIC_FACE = RANK["compiler"]  # what candle/__init__.py may show: the engine, layers, compile
FACADES = {"candle_llm": "llm", "candle_rag": "rag"}


@dataclass(frozen=True)
class Import:
    """One import of our own package: in which file and line, of which dotted module."""

    module: str
    line: int
    target: str
    nested: bool  # within a function

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Dotted name of each module to its file."""
    found = {name_of(p): p for p in SOURCE.rglob("*.py")}
    assert len(found) > 50
    return found


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def walk(node: ast.AST, nested: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes that run, with whether a function surrounds them."""
    for child in ast.iter_child_nodes(node):
        if is_typing_only(child):
            assert isinstance(child, ast.If)
            for other in child.orelse:
                yield other, nested
                yield from walk(other, nested)
            continue
        inside = nested or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield child, nested
        yield from walk(child, inside)


def resolve(module: str, is_package: bool, node: ast.ImportFrom) -> str:
    """The absolute name of the module after `from`."""
    if not node.level:
        return node.module or ""
    base = module.split(".")
    base = base[: len(base) - node.level + int(is_package)]
    return ".".join([*base, *([node.module] if node.module else [])])


def imports_of(module: str, source: str, known: set[str], is_package: bool) -> list[Import]:
    """Imports of our packages in a text; `from a import b` is of a.b where that is a module."""
    found = []
    for node, nested in walk(ast.parse(source)):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve(module, is_package, node)
            inner = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in known else base for name in inner]
        for target in dict.fromkeys(targets):
            if target.split(".")[0] in ("candle", "candle_cli", *FACADES):
                found.append(Import(module, getattr(node, "lineno", 0), target, nested))
    return found


@cache
def all_imports() -> tuple[Import, ...]:
    found: list[Import] = []
    for module, path in modules().items():
        text = path.read_text(encoding="utf-8")
        found += imports_of(module, text, set(modules()), path.name == "__init__.py")
    return tuple(found)


def room(module: str) -> str:
    """The room of a module: the part after `candle`, or the facade's own name."""
    parts = module.split(".")
    return parts[1] if parts[0] == "candle" and len(parts) > 1 else parts[0]


def is_allowed(found: Import) -> bool:
    """Whether an import points up the street."""
    here, there = room(found.module), room(found.target)
    if here in FACADES:
        return there in (here, FACADES[here])
    if here == "candle":
        return RANK.get(there, 99) <= PUBLIC_FACE
    if there == "candle" or there in FACADES:
        return False  # the flat face is for users
    return here == there or RANK[there] < RANK[here]


def test_every_room_is_on_the_street() -> None:
    rooms = {room(m) for m in modules()} - {"candle", *FACADES}
    assert rooms <= set(RANK)


def test_imports_point_one_way() -> None:
    assert [str(i) for i in all_imports() if not is_allowed(i)] == []


def test_no_import_hides_in_a_function() -> None:
    """Only the program does it: it starts before it loads, and a command's room when that runs."""
    late = ("cli", "candle_cli")
    assert [str(i) for i in all_imports() if i.nested and room(i.module) not in late] == []


def test_there_is_no_ring_within_a_room() -> None:
    edges: dict[str, set[str]] = {}
    for i in all_imports():
        if not i.nested and i.target != i.module and i.target in modules():
            edges.setdefault(i.module, set()).add(i.target)
    assert cycle(edges) == []


def cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some ring of a graph, or nothing. A package's own face may import its parts."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(edges.get(node, ())):
            if found := visit(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((ring for start in sorted(edges) if (ring := visit(start, []))), [])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("from . import op", "candle.op"),
        ("from .tensor import Tensor", "candle.tensor"),
        ("from candle.llm.chat import x", "candle.llm.chat"),
        ("import candle.rag.store", "candle.rag.store"),
        ("from candle import Tensor", "candle"),
        ("from candle import llm", "candle.llm"),
        ("class A:\n    from .llm import chat", "candle.llm.chat"),
        ("try:\n    from . import cli\nexcept ImportError:\n    pass", "candle.cli"),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from . import rag", "candle.rag"),
    ],
)
def test_every_spelling_is_resolved(source: str, target: str) -> None:
    known = {"candle", "candle.op", "candle.llm", "candle.llm.chat", "candle.cli", "candle.rag"}
    assert [i.target for i in imports_of("candle.eager", source, known, False)] == [target]


def test_an_import_that_only_types_need_does_not_count() -> None:
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .cli import main"
    assert imports_of("candle.op", source, set(), False) == []


def test_a_nested_import_is_seen() -> None:
    source = "def f():\n    if True:\n        from ..rag import store"
    (found,) = imports_of("candle.llm.chat", source, {"candle.rag.store"}, False)
    assert (found.target, found.nested, is_allowed(found)) == ("candle.rag.store", True, False)
