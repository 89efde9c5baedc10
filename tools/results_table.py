"""Writes README's comparison table from benchmarks/results; `--check` fails if it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS, README = ROOT / "benchmarks/results", ROOT / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def rows(subject: str) -> list[dict[str, Any]]:
    """Rows of one result file; none if it was not measured."""
    path = RESULTS / f"{subject}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def embed_lines() -> list[str]:
    """Sentence embedding, two threads, beside the better of the two onnxruntime graphs."""
    two = [r for r in rows("embed") if r["threads"] == 2]
    ours = next((r for r in two if r["system"] == "candle"), None)
    peers = [r for r in two if r["system"] != "candle"]
    if ours is None or not peers:
        return []
    lines = []
    for key, what, best, unit in (
        ("short_b1_ms", "MiniLM, one text of 16 tokens", min, "ms"),
        ("long_b1_ms", "MiniLM, one text of 200 tokens", min, "ms"),
        ("short_b32_per_s", "MiniLM, 32 texts of 16 tokens", max, "texts/s"),
        ("long_b32_per_s", "MiniLM, 32 texts of 200 tokens", max, "texts/s"),
    ):
        theirs = best(r[key] for r in peers)
        lines.append(f"| {what} | {ours[key]:.3g} {unit} | onnxruntime f32: {theirs:.3g} {unit} |")
    return lines


def compile_lines() -> list[str]:
    """Compiled nets, two threads, and what memory they take."""
    lines = []
    for r in rows("compile"):
        if r["threads"] == 2 and "onnxruntime_ms" in r and r["batch"] == 1:
            value = f"onnxruntime f32: {r['onnxruntime_ms']:.3g} ms"
            lines.append(f"| {r['net']}, compiled | {r['candle_ms']:.3g} ms | {value} |")
        elif r["threads"] == 2 and "torch_peak_mb" in r and r["batch"] == 1:
            value = f"PyTorch eager: {r['torch_peak_mb']:.0f} MB"
            lines.append(f"| {r['net']} of the process | {r['candle_peak_mb']:.0f} MB | {value} |")
    return lines


def llm_lines() -> list[str]:
    """Decoding and prompts, two threads."""
    lines = []
    two = [r for r in rows("llm") if r["threads"] == 2]
    for ours in (r for r in two if r["system"] == "candle"):
        model = ours["model"]
        other = [r for r in two if r["model"] == model and r["system"] != "candle"]
        for key, what in (("tg64_tok_s", "decoding"), ("pp512_tok_s", "prompt of 512")):
            if other:
                value = f"llama.cpp: {other[0][key]:.0f} tokens/s"
                lines.append(f"| {model}, {what} | {ours[key]:.0f} tokens/s | {value} |")
    return lines


def quality_lines() -> list[str]:
    """Exactness of logits and of retrieval."""
    lines = []
    for r in rows("logits"):
        theirs = f"llama.cpp: {r['kl_llama_cpp']:.4f}"
        lines.append(f"| {r['model']}, KL from float64 | {r['kl_ours']:.4f} | {theirs} |")
    found = {r["what"]: r for r in rows("quality")}
    ours, peer = found.get("xquad ours"), found.get("xquad peer")
    if ours and peer:
        value = f"sentence-transformers: {peer['recall@1']:.1f} %"
        lines.append(f"| XQuAD English, recall@1 | {ours['recall@1']:.1f} % | {value} |")
    return lines


def start_lines() -> list[str]:
    """What an installation costs."""
    lines = []
    for r in rows("start"):
        if "MB" in r and "s" in r:
            lines.append(f"| installed, with dependencies | {r['MB']:.0f} MB, {r['s']:.0f} s | |")
        elif "ms" in r:
            lines.append(f"| {r['what']} | {r['ms']:.0f} ms | |")
    return lines


def table() -> str:
    """The whole section between the marks."""
    head = ["| what | candle | beside |", "|---|---|---|"]
    parts = (embed_lines, compile_lines, llm_lines, quality_lines, start_lines)
    return "\n".join([*head, *(line for part in parts for line in part())])


def main() -> int:
    text = README.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv[1:]:
        if wanted != text:
            print("README.md is stale: python tools/results_table.py")
        return int(wanted != text)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
