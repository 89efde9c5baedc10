"""Writes smollm2_ids.json: what llama.cpp makes of every awkward text with SmolLM2's vocabulary.

Run with a Python that has llama-cpp-python 0.3.36:  make_smollm2_ids.py SmolLM2-135M-Instruct.gguf
Only a digest of each text's ids is kept: the first 12 hex digits of the SHA-256 of "1 2 3".
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import llama_cpp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.awkward import awkward_texts  # noqa: E402


def main(model: str) -> None:
    llama = llama_cpp.Llama(model, vocab_only=True, verbose=False)
    digests = [
        hashlib.sha256(
            " ".join(map(str, llama.tokenize(text.encode(), add_bos=False, special=True))).encode()
        ).hexdigest()[:12]
        for text in awkward_texts()
    ]
    made = {"llama_cpp_python": llama_cpp.__version__, "digests": digests}
    (HERE / "smollm2_ids.json").write_text(json.dumps(made) + "\n")


main(sys.argv[1])
