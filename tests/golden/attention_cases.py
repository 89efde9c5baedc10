"""The options of attention that make_attention.py records and the tests compare."""

from __future__ import annotations

from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "later": {"causal": True, "position": 2},
    "window": {"causal": True, "position": 1, "window": 2},
    "capped": {"softcap": 1.5},
    "lengths": {"lengths": [3, 0]},
    "all": {"causal": True, "position": 1, "window": 3, "softcap": 2.0, "lengths": [4, 2]},
}
