"""Lines and settings made to hurt: an error of ours, and at once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from candle.errors import FormatError, OptionError, StoreError
from candle.llm.chat import render_chat
from candle.rag.documents import read_documents
from candle.rag.package import write_package
from candle.rag.retriever import Retriever


def test_a_repeated_key_among_many_is_found_in_one_pass(tmp_path: Path) -> None:
    """200,000 keys: counting each by a search of all took hours."""
    keys = ",".join(f'"k{i}":1' for i in range(200_000))
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"text":"x","metadata":{{{keys},"k199999":1}}}}', encoding="utf-8")
    with pytest.raises(FormatError, match="'k199999' twice"):
        list(read_documents(file))


def test_equal_lines_after_odd_blanks_are_one_document(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('\u3000{"text":"x"}\n' * 2, encoding="utf-8")
    assert [d.text for d in read_documents(file)] == ["x", "x"]


@pytest.mark.parametrize("change", ["value = 'x'", "value = '²'", "key = 'other'"])
def test_a_damaged_generation_is_told(retriever: Retriever, change: str) -> None:
    retriever.add_documents(["tea"])
    with closing(sqlite3.connect(retriever.path)) as connection, connection:
        connection.execute(f"UPDATE settings SET {change} WHERE key = 'generation'")
    with pytest.raises(StoreError):
        retriever.search("tea")


def test_damaged_vectors_are_not_merged_or_exported(tmp_path: Path, retriever: Retriever) -> None:
    """A copy would get hashes of its own, and pass as whole for ever."""
    retriever.add_documents(["tea", "bank money"])
    retriever.compact()
    (segment,) = retriever.path.parent.rglob("*.seg")
    data = bytearray(segment.read_bytes())
    data[-64] ^= 1
    segment.write_bytes(data)
    retriever.add_documents(["more"])
    for copy in (retriever.compact, lambda: write_package(retriever, tmp_path / "x.candle")):
        with pytest.raises(StoreError, match="as it was written"):
            copy()
    assert not (tmp_path / "x.candle").exists()


def test_lists_that_share_lists_are_not_written_out(retriever: Retriever) -> None:
    """40 lists in memory, 2 to the 40th values when written."""
    shared: list[object] = [1]
    for _ in range(40):
        shared = [shared, shared]
    for call in (
        lambda: retriever.add_documents([{"text": "tea", "metadata": {"a": shared}}]),
        lambda: retriever.search("tea", filter={"a": shared}),
        lambda: retriever.search("tea", filter={"a": {"$in": [shared]}}),
        lambda: render_chat("{{ messages }}", [{"role": "user", "content": shared}]),
    ):
        with pytest.raises(OptionError, match="values"):
            call()
