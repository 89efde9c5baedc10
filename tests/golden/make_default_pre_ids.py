"""Writes default_pre_ids.json: llama.cpp's ids where a file names no pre-tokenizer.

Run with a Python that has llama-cpp-python 0.3.36:  make_default_pre_ids.py ggml-vocab-gpt-2.gguf
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import llama_cpp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.awkward import FIXED, awkward_texts  # noqa: E402


def main(model: str) -> None:
    default = {"tokenizer.ggml.pre": "default"}
    llama = llama_cpp.Llama(model, vocab_only=True, verbose=False, kv_overrides=default)
    texts = dict.fromkeys((*FIXED, *awkward_texts()[1000:1120]))
    ids = {text: llama.tokenize(text.encode(), add_bos=False, special=True) for text in texts}
    made = {"llama_cpp_python": llama_cpp.__version__, "ids": ids}
    (HERE / "default_pre_ids.json").write_text(json.dumps(made) + "\n")


main(sys.argv[1])
