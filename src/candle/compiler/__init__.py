"""Compile: a function becomes a static plan, bytes that run with no Python between steps.

trace -> graph -> passes -> memory -> lower -> plan bytes; `native/runtime/exec.c` runs them.
"""

from __future__ import annotations

from .compiled import Compiled, compile
from .marking import static
from .stored import Stored, load_plan

__all__ = ["Compiled", "Stored", "compile", "load_plan", "static"]
