"""Writes chat_prompts.json: Hugging Face transformers' rendering of known models' templates.

Run with a Python that has transformers 5.24 and gguf:
    make_chat_prompts.py SmolLM2-135M-Instruct.gguf llama.cpp/models/templates
Texts of templates that are not free are not kept, only what they render. A refusal is null.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import gguf
import transformers
from transformers.utils import chat_template_utils

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.conversations import CONVERSATIONS, NOW, TOOLS  # noqa: E402

TEMPLATES = [
    "google-gemma-2-2b-it",
    "HuggingFaceTB-SmolLM3-3B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
]


class Frozen(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:
        return NOW


def rendered(template: str, name: str, tools: bool, prompt: bool) -> str | None:
    conversation = chat_template_utils._normalize_chat_messages(CONVERSATIONS[name])
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            [conversation],
            tools=TOOLS if tools else None,
            chat_template=template,
            add_generation_prompt=prompt,
            bos_token="<bos>",
            eos_token="<eos>",
        )
    except Exception:
        return None
    return texts[0]


def main(smollm2: str, folder: str) -> None:
    chat_template_utils.datetime = Frozen
    field = gguf.GGUFReader(smollm2).fields["tokenizer.chat_template"]
    templates = {"SmolLM2-135M-Instruct": field.contents()}
    templates |= {n: (Path(folder) / f"{n}.jinja").read_text() for n in TEMPLATES}
    prompts = {
        model: {
            f"{name}, {tools=}, {prompt=}": rendered(template, name, tools, prompt)
            for name in CONVERSATIONS
            for tools in (False, True)
            for prompt in (False, True)
        }
        for model, template in templates.items()
    }
    made = {"transformers": transformers.__version__, "prompts": prompts}
    (HERE / "chat_prompts.json").write_text(json.dumps(made, indent=0) + "\n")


main(*sys.argv[1:])
