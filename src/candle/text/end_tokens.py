"""The names of tokens that end a turn or a text.

Model files name one end-of-text token at most; chat models stop at others too, known only by
their text. A name counts only where the vocabulary holds it as a control token, or where the file
forgot to mark it as one. `</s>` is left out on purpose: it is an HTML tag in Gemma's vocabulary,
and where it does end the text, the file's own `eos_token_id` says so.
"""

from __future__ import annotations

END_TOKENS: frozenset[str] = frozenset(
    {
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<|return|>",
        "<eos>",
        "<EOT>",
        "[EOT]",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)
