"""Retrieval and answers with sources; the code lives in `candle.rag`."""

from candle.rag.answer import Answer, ask
from candle.rag.chunk import Chunk, chunk_markdown, chunk_text
from candle.rag.documents import SourceDocument, read_documents
from candle.rag.embed import Embedder, TruncationWarning
from candle.rag.index import VectorIndex
from candle.rag.ingest import AddReport
from candle.rag.package import build_package, write_package
from candle.rag.retriever import Document, Retriever

__all__ = [
    "AddReport",
    "Answer",
    "Chunk",
    "Document",
    "Embedder",
    "Retriever",
    "SourceDocument",
    "TruncationWarning",
    "VectorIndex",
    "ask",
    "build_package",
    "chunk_markdown",
    "chunk_text",
    "read_documents",
    "write_package",
]
