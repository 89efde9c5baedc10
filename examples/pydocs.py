"""The docstrings of the running Python's standard library, as documents.

Python source is parsed, not imported, so nothing runs; only modules written in C are imported.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SKIPPED = {"test", "tests", "idlelib", "turtledemo", "lib2to3", "ensurepip", "site-packages"}
# modules in C under the name by which their contents are used
COMPILED = {
    "_collections": "collections",
    "_functools": "functools",
    "_io": "io",
    "_operator": "operator",
    "_random": "random",
    "_socket": "socket",
    "_sqlite3": "sqlite3",
    "_struct": "struct",
    "nt": "os",
    "posix": "os",
}
UNSAFE = {"readline", "antigravity", "this"}  # importing these does something visible
LONGEST = 160  # characters of a signature that are kept


def library_documents() -> list[dict[str, Any]]:
    """One document a docstring: {"id": qualified name, "text": signature and docstring}."""
    found: dict[str, dict[str, Any]] = {}
    for name, kind, text in [*source_docstrings(), *compiled_docstrings()]:
        metadata = {"module": name.split(".")[0], "kind": kind}
        found.setdefault(name, {"id": name, "text": text, "metadata": metadata})
    return list(found.values())


def source_docstrings() -> Iterator[tuple[str, str, str]]:
    """(qualified name, kind, text) of every public docstring in a source file."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] in sys.stdlib_module_names and not SKIPPED & set(parts):
            names = parts[:-1] if parts[-1] == "__init__" else parts
            if not any(is_private(name) for name in names):
                yield from parsed(path, ".".join(names))


def parsed(path: Path, module: str) -> Iterator[tuple[str, str, str]]:
    """The docstrings of one file; a file that does not parse has none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    yield from walk(tree, module)


def walk(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, str, str]]:
    """A module or class, and the public functions and classes in it."""
    text = ast.get_docstring(node)
    if text:
        kind = "module" if isinstance(node, ast.Module) else "class"
        yield name, kind, f"{name}\n\n{text}"
    for child in node.body:
        inner = f"{name}.{getattr(child, 'name', '')}"
        if isinstance(child, ast.ClassDef) and not is_private(child.name):
            yield from walk(child, inner)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(child)
            if text and not is_private(child.name):
                shown = "" if is_property(child) else f"({arguments(child)})"
                yield inner, "function", f"{inner}{shown}\n\n{text}"


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is read without a call."""
    return any("property" in ast.unparse(d).lower() for d in function.decorator_list)


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The arguments as they are written, without `self`."""
    text = ast.unparse(function.args).removeprefix("self, ").removeprefix("self")
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def compiled_docstrings() -> Iterator[tuple[str, str, str]]:
    """The same of the modules that are not Python source, and of the builtins."""
    for name in sorted(sys.stdlib_module_names - UNSAFE):
        if name in COMPILED or not is_private(name):
            module = compiled_module(name)
            if module is not None:
                yield from members(module, COMPILED.get(name, name))


def compiled_module(name: str) -> ModuleType | None:
    """A module of the library that is built in or an extension, if this machine has it."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is None or (spec.origin or "").endswith(".py") or spec.origin == "frozen":
            return None
        with warnings.catch_warnings(action="ignore"):
            return importlib.import_module(name)
    except (ImportError, ValueError):
        return None


def members(module: ModuleType, shown: str) -> Iterator[tuple[str, str, str]]:
    """Docstrings of a compiled module's functions, types and their methods."""
    prefix = "" if module.__name__ == "builtins" else f"{shown}."
    for name, value in sorted(vars(module).items()):
        if is_private(name) or not (inspect.isroutine(value) or inspect.isclass(value)):
            continue
        yield from described(prefix + name, value)
        if inspect.isclass(value):
            for inner, method in sorted(vars(value).items()):
                if not is_private(inner) and inspect.isroutine(method):
                    yield from described(f"{prefix}{name}.{inner}", method)


def described(name: str, value: object) -> Iterator[tuple[str, str, str]]:
    """One object's docstring, with its signature where it has one as text."""
    text = inspect.getdoc(value)
    if text:
        signature = getattr(value, "__text_signature__", None) or ""
        signature = re.sub(r"\$?(self|module|type)(, /)?(, )?", "", signature, count=1)
        kind = "class" if inspect.isclass(value) else "function"
        yield name, kind, f"{name}{signature}\n\n{text}"


def is_private(name: str) -> bool:
    """Whether a name begins with an underscore."""
    return name.startswith("_")
