"""Retrieval: documents to chunks, vectors and answers with sources. Public as `candle_rag`."""
