"""Prints sizes by folder and fails where a file or a function is over its budget.

Budgets are raised here, in the commit that needs it, with the reason beside the number.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 132  # of C, at most; aim at 100

FILE = {"py": 700, "test": 800, "c": 800, "header": 500, "md": 400}
FUNCTION = {"py": 60, "test": 80, "c": 100}  # a function of a test may be a table of cases
RAISED: dict[str, int] = {
    "src/candle/tensor.py": 1060,  # every method of Tensor, most of two lines and a docstring
}
C_START = re.compile(r"^(?!typedef|struct|enum|union|#|/|\*|\s|})[^;=]*\([^;]*$")


@dataclass(frozen=True, slots=True)
class Item:
    """A file, a function or a line: its size and how much it may have."""

    where: str
    size: int
    budget: int
    unit: str = "lines"


def tracked() -> Iterator[Path]:
    """Source and documentation that git knows or would add."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in sorted(set(done.stdout.splitlines())):
        path = ROOT / name
        if path.suffix in (".py", ".c", ".h", ".def", ".md") and path.is_file():
            yield path


def kind_of(path: Path) -> str:
    """The row of the budgets that a file falls under."""
    if path.suffix == ".py":
        return "test" if path.relative_to(ROOT).parts[0] == "tests" else "py"
    return {".c": "c", ".md": "md"}.get(path.suffix, "header")


def functions(path: Path, text: str) -> Iterator[tuple[str, int]]:
    """(name, lines) of every function; a Python one without its docstring and decorators."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name, python_lines(node)
    elif path.suffix in (".c", ".h"):
        yield from c_functions(text)


def python_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring."""
    count = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        count -= (first.end_lineno or first.lineno) - first.lineno + 1
    return count


def c_functions(text: str) -> Iterator[tuple[str, int]]:
    """From a head at the left margin to the brace that closes it there."""
    lines = text.splitlines()
    start, name = None, ""
    for number, line in enumerate(lines):
        if start is None and C_START.match(line) and "(" in line:
            found = re.search(r"(\w+)\s*\(", line)
            start, name = number, found[1] if found else "?"
            if line.rstrip().endswith("}"):
                start = None
        elif start is not None and line.startswith("}"):
            yield name, number - start + 1
            start = None
        elif start is not None and line.rstrip().endswith(";") and not line.startswith(" "):
            start = None  # a declaration over several lines


def main() -> int:
    """The table, then what is too big; 1 if anything is."""
    rows: dict[str, list[int]] = defaultdict(list)
    over: list[Item] = []
    for path in tracked():
        text = path.read_text(encoding="utf-8")
        name, kind, count = path.relative_to(ROOT).as_posix(), kind_of(path), text.count("\n")
        rows[str(path.relative_to(ROOT).parent)].append(count)
        over.append(Item(name, count, RAISED.get(name, FILE[kind])))
        if kind in FUNCTION:
            over += [Item(f"{name}:{f}", n, FUNCTION[kind]) for f, n in functions(path, text)]
        if path.suffix in (".c", ".h"):  # ruff sees to Python's
            lengths = [(i, len(line)) for i, line in enumerate(text.splitlines(), 1)]
            over += [Item(f"{name}:{i}", n, WIDTH, "columns") for i, n in lengths]
    print(f"{'folder':<28}{'files':>6}{'lines':>8}{'median':>8}{'most':>6}")
    for folder, counts in sorted(rows.items()):
        middle = sorted(counts)[len(counts) // 2]
        print(f"{folder:<28}{len(counts):>6}{sum(counts):>8}{middle:>8}{max(counts):>6}")
    bad = [item for item in over if item.size > item.budget]
    for item in bad:
        print(f"over budget: {item.where} has {item.size} {item.unit}, may have {item.budget}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
