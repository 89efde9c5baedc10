"""Embeddings and retrieval beside sentence-transformers, on the same texts and the same model.

    python benchmarks/quality.py

(1) cosine of each vector with the peer's on 200 texts: English, Chinese, emoji, empty, 5,000 words;
the vector of a text alone and among batch mates.
(2) XQuAD English: which of the 240 paragraphs each of the 1,190 questions is about: recall@1 and @5
by exact search over both systems' vectors.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import common

HERE = Path(__file__).resolve()
XQUAD = common.ROOT.parent / "shared/data/xquad"


def sentences(language: str, count: int) -> list[str]:
    """The first sentences of XQuAD paragraphs, and questions."""
    data = json.loads((XQUAD / f"xquad.{language}.json").read_text(encoding="utf-8"))["data"]
    found: list[str] = []
    for article in data:
        for p in article["paragraphs"]:
            found += [p["context"], *(q["question"] for q in p["qas"][:1])]
    return found[:count]


def texts() -> list[str]:
    """200 texts of every length and kind."""
    odd = [
        "",
        " ",
        "a",
        "🕯️🔥 candles 👩‍🚀",
        "ÅÉÎ naïve café",
        "1234567890 " * 30,
        "\n\t",
        "!?" * 200,
    ]
    odd += ["The QUICK brown fox — didn't jump over the lazy dog?!", "你好，世界", "word " * 5000]
    english = sentences("en", 120)
    return (english + sentences("zh", 69) + odd)[:200]


def xquad() -> tuple[list[str], list[str], list[int]]:
    """Paragraphs, questions, and which paragraph each question is about."""
    data = json.loads((XQUAD / "xquad.en.json").read_text(encoding="utf-8"))["data"]
    paragraphs, questions, gold = [], [], []
    for article in data:
        for p in article["paragraphs"]:
            questions += [q["question"] for q in p["qas"]]
            gold += [len(paragraphs)] * len(p["qas"])
            paragraphs.append(p["context"])
    return paragraphs, questions, gold


def peer(folder: Path) -> None:
    """sentence-transformers' vectors of the texts in folder/texts.json."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(Path.home() / ".cache/candle-peers/data/minilm"), device="cpu")
    for name, some in json.loads((folder / "texts.json").read_text()).items():
        vectors = model.encode(some, normalize_embeddings=True, show_progress_bar=False)
        np.save(folder / f"{name}.npy", vectors)
    print("{}")


def recall(paragraphs: Any, questions: Any, gold: list[int]) -> common.Row:
    """recall@1 and @5 in percent, by exact dot products in f64."""
    import numpy as np

    scores = questions.astype(np.float64) @ paragraphs.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    hit = order == np.asarray(gold)[:, None]
    return {"recall@1": 100 * hit[:, 0].mean(), "recall@5": 100 * hit.any(1).mean()}


def searched(
    paragraphs: list[str], questions: list[str], gold: list[int], folder: Path
) -> common.Row:
    """recall through the public Retriever, one search a question."""
    from candle_rag import Retriever

    with Retriever.create(folder / "kb", embedder="all-minilm-l6-v2") as retriever:
        retriever.add_documents([{"id": str(k), "text": p} for k, p in enumerate(paragraphs)])
        first = five = 0
        for question, k in zip(questions, gold, strict=True):
            found = [d.id.split("#")[0] for d in retriever.search(question, top_k=5)]
            first, five = first + (found[:1] == [str(k)]), five + (str(k) in found)
    n = len(questions)
    return {"recall@1": 100 * first / n, "recall@5": 100 * five / n}


def main() -> None:
    import numpy as np

    from candle_rag import Embedder

    peers = common.peer_python()
    if peers is None or not XQUAD.exists():
        sys.exit("needs the peers' environment (CANDLE_PEERS) and ../shared/data")
    some = texts()
    paragraphs, questions, gold = xquad()
    named = {"texts": some, "paragraphs": paragraphs, "questions": questions}
    embedder = Embedder.load("all-minilm-l6-v2")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        (folder / "texts.json").write_text(json.dumps(named))
        common.worker(peers, HERE, ["peer", name], 2)
        theirs = {k: np.load(folder / f"{k}.npy") for k in named}
        mine = {k: embedder.embed(v).numpy() for k, v in named.items()}
        through = searched(paragraphs, questions, gold, folder)
        alone = np.concatenate([embedder.embed([t]).numpy() for t in some])
    cosine = (mine["texts"].astype(np.float64) * theirs["texts"]).sum(1)
    rows: list[common.Row] = [
        {"what": "texts", "count": len(some), "min_cosine": float(cosine.min()),
         "max_change_by_batch": float(np.abs(alone - mine["texts"]).max())},
        {"what": "xquad ours", **recall(mine["paragraphs"], mine["questions"], gold)},
        {"what": "xquad ours through Retriever", **through},
        {"what": "xquad peer", **recall(theirs["paragraphs"], theirs["questions"], gold)},
    ]  # fmt: skip
    common.table(rows)
    packages = ["sentence-transformers", "torch", "transformers", "numpy"]
    print(common.save("quality", rows, peers=common.versions(peers, packages)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        peer(Path(sys.argv[2]))
    else:
        main()
