"""Documents from files: every way to be wrong is named with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from candle.errors import FormatError, NameNotFoundError, OptionError
from candle.rag.documents import MAX_LINE, SourceDocument, check_documents, read_documents


def lines(tmp_path: Path, *content: bytes, name: str = "notes.jsonl") -> Path:
    path = tmp_path / name
    path.write_bytes(b"\n".join(content))
    return path


def test_json_lines_carry_text_and_optionally_id_and_metadata(tmp_path: Path) -> None:
    path = lines(
        tmp_path,
        b'{"text": "one"}',
        b'{"id": "b", "text": "two", "metadata": {"year": 2020, "tags": ["x"]}}',
        b'{"id": 7, "text": "three", "metadata": null}',
    )
    found = list(read_documents(path))
    assert [d.text for d in found] == ["one", "two", "three"]
    assert [d.id for d in found[1:]] == ["b", "7"]
    assert found[1].metadata == {"year": 2020, "tags": ["x"]}
    assert found[2].metadata == {}


def test_without_an_id_the_content_is_the_id(tmp_path: Path) -> None:
    first, second, other = check_documents(["same", "same", "another"])
    assert first.id == second.id != other.id
    (again,) = read_documents(lines(tmp_path, b'{"text": "same"}'))
    assert again.id == first.id


def test_bom_crlf_and_empty_lines_are_no_content(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\r\n   \n{"text": "b"}\r\n')
    assert [d.text for d in read_documents(path)] == ["a", "b"]


def test_an_empty_file_holds_no_document(tmp_path: Path) -> None:
    assert list(read_documents(lines(tmp_path, b""))) == []


@pytest.mark.parametrize(
    "line, wanted",
    [
        (b"not json", "one JSON object a line"),
        (b'{"text": "a"} {"text": "b"}', "one JSON object a line"),
        (b'{"text": "cut', "one JSON object a line"),
        (b'["text"]', "a JSON object with a text, got list"),
        (b'"text"', "a JSON object with a text, got str"),
        (b"{}", "a text, got only nothing"),
        (b'{"id": "a"}', "a text, got only id"),
        (b'{"text": 5}', "a string, got int"),
        (b'{"text": null}', "a string, got NoneType"),
        (b'{"text": "a", "id": ""}', "a name"),
        (b'{"text": "a", "id": 1.5}', "a string or a whole number, got float"),
        (b'{"text": "a", "id": true}', "a string or a whole number, got bool"),
        (b'{"text": "a", "metadata": [1]}', "an object, got list"),
        (b'{"text": "a", "title": "b"}', "only id, text and metadata, got 'title'"),
        (b'{"text": "a", "text": "b"}', "each key once, got 'text' twice"),
        (b'{"text": "a", "metadata": {"x": {"y": 1, "y": 2}}}', "each key once, got 'y' twice"),
        (b'{"text": "a", "metadata": {"x": NaN}}', "numbers that JSON knows, got NaN"),
        (b'{"text": "a", "metadata": {"x": -Infinity}}', "got -Infinity"),
        (b'{"text": "a", "metadata": {"x": 1e999}}', "a finite number, got inf"),
        (b'{"text": "a", "metadata": {"x": ' + b"1" * 5000 + b"}}", "numbers of ordinary length"),
        (b'{"text": "\\ud800"}', "lone surrogate U+D800"),
        (b'{"text": "a", "id": "\\udfff"}', "lone surrogate U+DFFF"),
        (b'{"text": "a", "metadata": {"\\ud800": 1}}', "lone surrogate U+D800"),
        (b'{"text": "\xff"}', "UTF-8, got byte 0xff at offset 10"),
        (b'{"text": "\xed\xa0\x80"}', "UTF-8"),
        (b'{"text": ' + b"[" * 100_000, "nested less deeply"),
        (b'{"text": "a", "metadata": {"x": ' + b"[" * 100 + b"]" * 100 + b"}}", "64 levels"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, line: bytes, wanted: str) -> None:
    path = lines(tmp_path, b'{"text": "fine"}', b"", line)
    with pytest.raises(FormatError) as caught:
        list(read_documents(path))
    assert "notes.jsonl:3" in str(caught.value)
    assert wanted in str(caught.value)


def test_an_id_used_twice_names_both_lines(tmp_path: Path) -> None:
    path = lines(tmp_path, b'{"id": "a", "text": "1"}', b"", b'{"id": "a", "text": "2"}')
    with pytest.raises(FormatError, match=r"notes.jsonl:3.*line 1"):
        list(read_documents(path))


def test_a_huge_line_is_refused_and_a_large_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_LINE >= 1 << 26
    text = b'{"text": "' + b"x" * 2_000_000 + b'"}'
    assert len(next(iter(read_documents(lines(tmp_path, text)))).text) == 2_000_000
    monkeypatch.setattr("candle.rag.documents.MAX_LINE", 1000)
    with pytest.raises(FormatError, match=r"notes.jsonl:1.*at most 1000 bytes"):
        list(read_documents(lines(tmp_path, text)))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_utf_16_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes("text".encode("utf-16"))
    with pytest.raises(FormatError, match=r"UTF-8, got UTF-16 \(save it as UTF-8\)"):
        list(read_documents(path))


def test_text_that_is_not_utf_8_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\nfine\nbad \xe9 here\n")
    with pytest.raises(FormatError, match=r"a.txt:3.*0xe9"):
        list(read_documents(path))


def test_a_text_file_is_one_document_named_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfline\r\nline")
    (found,) = read_documents(path)
    assert (found.id, found.text, found.format) == ("a.txt", "line\r\nline", "text")
    assert found.metadata == {"source": "a.txt"}


def test_a_folder_is_read_in_path_order_and_hidden_files_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    for name in ("b.md", "a.txt", "sub/c.md", ".hidden/d.md", ".e.md", "z.bin"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    found = list(read_documents(folder))
    assert [d.id for d in found] == ["docs/a.txt", "docs/b.md", "docs/sub/c.md"]
    assert [d.format for d in found] == ["text", "markdown", "markdown"]


def test_non_ascii_paths_work(tmp_path: Path) -> None:
    """llama.cpp#18571 (L06)."""
    folder = tmp_path / "Загрузки 文書 é"
    folder.mkdir()
    (folder / "mañana.md").write_text("texto", encoding="utf-8")
    assert [d.id for d in read_documents(folder)] == ["Загрузки 文書 é/mañana.md"]


def test_absent_paths_and_unknown_kinds_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError, match="a file or folder"):
        list(read_documents(tmp_path / "none"))
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(FormatError, match=r"\.txt, \.md"):
        list(read_documents(tmp_path / "a.docx"))


@pytest.mark.parametrize(
    "items, wanted",
    [
        ([{"text": "a"}, {"text": 5}], r"documents\[1\] text: expected a string, got int"),
        ([5], r"documents\[0\]: expected a string or a mapping, got int"),
        ([None], r"documents\[0\]"),
        ([{"text": "a", "metadata": {1: 2}}], "keys that are strings"),
        ([{"text": "a", "metadata": {"x": object()}}], "what JSON can hold, got object"),
        ([{"text": "a", "metadata": {"x": float("nan")}}], "a finite number"),
        (["\ud800"], "lone surrogate"),
        ({"text": "a"}, "put it in a list"),
    ],
)
def test_python_documents_are_checked_too(items: object, wanted: str) -> None:
    with pytest.raises(OptionError, match=wanted):
        list(check_documents(items))  # type: ignore[arg-type]


def test_metadata_that_refers_to_itself_ends() -> None:
    loop: dict[str, object] = {}
    loop["x"] = loop
    with pytest.raises(OptionError, match="64 levels"):
        list(check_documents([{"text": "a", "metadata": loop}]))


def test_the_digest_is_of_the_content_alone() -> None:
    one = SourceDocument("a", "text", {"x": 1, "y": 2}, where="here")
    two = SourceDocument("b", "text", {"y": 2, "x": 1}, where="there")
    assert one.digest() == two.digest()
    assert one.digest() != SourceDocument("a", "text", {"x": 2, "y": 2}).digest()
