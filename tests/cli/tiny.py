"""Models small enough to be made in a test: a sentence encoder and a language model.

Their weights are noise from a fixed seed, so that results are the same everywhere; texts that share
words have near vectors, and what the language model says means nothing.
"""

from __future__ import annotations

import json
import random
from array import array
from pathlib import Path

from candle.dtype import DType
from candle.formats.gguf_write import write_gguf
from candle.formats.safetensors_write import save_safetensors

_WORDS = (
    "the a of and in is was by at quantum computers use qubits green tea water steeped transistor"
    " invented bell labs river bank money film director london paris how what recent advances"
)
WORDS = _WORDS.split()
WIDTH = 32
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

Source = tuple[DType, tuple[int, ...], bytes]


class _Noise:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def matrix(self, *shape: int, scale: float = 0.2) -> Source:
        count = 1
        for size in shape:
            count *= size
        values = array("f", [(self._random.random() - 0.5) * 2 * scale for _ in range(count)])
        return DType.F32, shape, values.tobytes()


def ones(size: int) -> Source:
    return DType.F32, (size,), array("f", [1.0] * size).tobytes()


def zeros(size: int) -> Source:
    return DType.F32, (size,), bytes(4 * size)


def make_encoder(folder: Path, layers: int = 1, seed: int = 1) -> Path:
    """A folder in the Hugging Face layout: BERT of width 32 over words and single letters."""
    folder.mkdir(parents=True)
    letters = [chr(c) for c in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{x}" for x in letters)]
    vocabulary = {text: i for i, text in enumerate(dict.fromkeys([*pieces, *WORDS]))}
    config = {
        "model_type": "bert",
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": 64,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps(_wordpiece(vocabulary)), encoding="utf-8")
    save_safetensors(folder / "model.safetensors", _bert(len(vocabulary), layers, seed))
    return folder


def _wordpiece(vocabulary: dict[str, int]) -> dict[str, object]:
    special = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False}
        | {"rstrip": False, "normalized": False}
        for text, i in list(vocabulary.items())[:5]
    ]
    first, last = vocabulary["[CLS]"], vocabulary["[SEP]"]
    processor = {"type": "BertProcessing", "sep": ["[SEP]", last], "cls": ["[CLS]", first]}
    return {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": processor,
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": vocabulary,
        },
    }


def _bert(vocabulary: int, layers: int, seed: int) -> dict[str, Source]:
    noise = _Noise(seed)
    tensors = {
        "embeddings.word_embeddings.weight": noise.matrix(vocabulary, WIDTH, scale=1.0),
        "embeddings.position_embeddings.weight": noise.matrix(64, WIDTH, scale=0.02),
        "embeddings.token_type_embeddings.weight": noise.matrix(2, WIDTH, scale=0.02),
        **_norm("embeddings.LayerNorm"),
    }
    for layer in range(layers):
        at = f"encoder.layer.{layer}."
        for name in ("attention.self.query", "attention.self.key", "attention.self.value"):
            tensors |= _dense(noise, at + name, WIDTH, WIDTH)
        tensors |= _dense(noise, at + "attention.output.dense", WIDTH, WIDTH)
        tensors |= _norm(at + "attention.output.LayerNorm")
        tensors |= _dense(noise, at + "intermediate.dense", 2 * WIDTH, WIDTH)
        tensors |= _dense(noise, at + "output.dense", WIDTH, 2 * WIDTH)
        tensors |= _norm(at + "output.LayerNorm")
    return tensors


def _dense(noise: _Noise, name: str, outputs: int, inputs: int) -> dict[str, Source]:
    return {f"{name}.weight": noise.matrix(outputs, inputs), f"{name}.bias": zeros(outputs)}


def _norm(name: str) -> dict[str, Source]:
    return {f"{name}.weight": ones(WIDTH), f"{name}.bias": zeros(WIDTH)}


def make_decoder(path: Path, seed: int = 2) -> Path:
    """A GGUF file of the llama family over printable characters, with a chat template."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 512,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": 2 * WIDTH,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // 2,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*tokens, "▁", "a", "b"],
        "tokenizer.ggml.scores": [0.0] * 259 + [-1.0, -2.0, -3.0],
        "tokenizer.ggml.token_type": [*kinds, 1, 1, 1],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    }
    write_gguf(path, metadata, _llama(len(tokens) + 3, seed))
    return path


def _llama(vocabulary: int, seed: int) -> dict[str, Source]:
    noise = _Noise(seed)
    half = WIDTH // 2
    return {
        "token_embd.weight": noise.matrix(vocabulary, WIDTH, scale=1.0),
        "blk.0.attn_norm.weight": ones(WIDTH),
        "blk.0.attn_q.weight": noise.matrix(WIDTH, WIDTH),
        "blk.0.attn_k.weight": noise.matrix(half, WIDTH),
        "blk.0.attn_v.weight": noise.matrix(half, WIDTH),
        "blk.0.attn_output.weight": noise.matrix(WIDTH, WIDTH),
        "blk.0.ffn_norm.weight": ones(WIDTH),
        "blk.0.ffn_gate.weight": noise.matrix(2 * WIDTH, WIDTH),
        "blk.0.ffn_up.weight": noise.matrix(2 * WIDTH, WIDTH),
        "blk.0.ffn_down.weight": noise.matrix(WIDTH, 2 * WIDTH),
        "output_norm.weight": ones(WIDTH),
        "output.weight": noise.matrix(vocabulary, WIDTH),
    }
