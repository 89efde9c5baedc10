"""Run against an installed wheel, from outside the source tree: the library is there and works."""

from __future__ import annotations

import sys
from pathlib import Path

import candle
import candle_llm
import candle_rag
from candle import Tensor, Var

place = Path(candle.__file__).resolve()
assert Path(sys.prefix).resolve() in place.parents, place
assert candle_llm.Generator and candle_rag.Retriever

a = Tensor([[1.0, 2.0], [3.0, 4.0]])
assert (a @ a).to_vec() == [[7.0, 10.0], [15.0, 22.0]]
w = Var([3.0])
(w * w).sum_all().backward()
gradient = w.grad()
assert gradient is not None and gradient.to_vec() == [6.0]
assert "numpy" not in sys.modules
print(f"candle {candle.__version__} works from {place.parent}")
