"""The retriever: add, update, delete, search, filters, and what it refuses."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from candle.errors import (
    CandleError,
    FormatError,
    LockedError,
    NameNotFoundError,
    OptionError,
    StoreError,
)
from candle.rag.retriever import Document, Retriever
from candle.tensor import Tensor
from support.rag import HashingEmbedder

BIRDS = [
    {"id": "owl", "text": "Owls hunt at night.", "metadata": {"year": 2001, "kind": "bird"}},
    {"id": "swift", "text": "Swifts sleep in flight.", "metadata": {"year": 2010, "kind": "bird"}},
    {"id": "cod", "text": "Cod swim in cold water.", "metadata": {"year": 2020, "kind": "fish"}},
]


def ids(found: Sequence[Document]) -> list[str]:
    return [document.id for document in found]


def test_what_was_added_is_found_with_its_score_and_metadata(retriever: Retriever) -> None:
    report = retriever.add_documents(BIRDS)
    assert (report.added, report.updated, report.chunks) == (3, 0, 3)
    assert len(retriever) == 3
    found = retriever.search("Owls hunt at night.", top_k=2)
    assert ids(found)[0] == "owl"
    best = found[0]
    assert best.text == "Owls hunt at night."
    assert best.metadata == {"year": 2001, "kind": "bird"}
    assert best.score == best.scores["dense"] == pytest.approx(1.0)
    assert best.document == "owl"
    assert [d.score for d in found] == sorted((d.score for d in found), reverse=True)


def test_scores_are_cosines_within_bounds(retriever: Retriever) -> None:
    """faiss#915 (R08): not 1.0000001; a vector of zeros scores 0."""
    retriever.add_documents([f"word{i} again" for i in range(200)] + ["..."])
    for i in range(200):
        found = retriever.search(f"word{i} again", top_k=300)
        assert all(-1.0 <= d.score <= 1.0 for d in found)
        assert found[0].score >= 0.999


def test_equal_scores_are_ordered_by_id(retriever: Retriever) -> None:
    names = [f"n{i:03}" for i in range(60)]
    retriever.add_documents([{"id": n, "text": "the same words"} for n in reversed(names)])
    assert ids(retriever.search("the same words", top_k=7)) == names[:7]
    retriever.compact()
    assert ids(retriever.search("the same words", top_k=7)) == names[:7]


def test_an_empty_knowledge_base_answers_with_empty_lists(retriever: Retriever) -> None:
    """faiss#3830 (R04)."""
    for _ in range(20):
        assert retriever.search("anything") == []


def test_fewer_matches_than_asked_for_are_all_there_is(retriever: Retriever) -> None:
    """hnswlib#444 #465 #608; chroma#2620 (R01): add, query, delete in turns."""
    for turn in range(5):
        retriever.add_documents(
            [
                {"id": f"{turn}-{i}", "text": f"item {i}", "metadata": {"keep": i < 2}}
                for i in range(10)
            ]
        )
        assert len(retriever.search("item", 2, filter={"keep": True})) == 2
        assert retriever.delete(f"{turn}-0") == 1
        assert ids(retriever.search("item", 2, filter={"keep": True})) == [f"{turn}-1"]
        assert retriever.delete([f"{turn}-{i}" for i in range(1, 10)]) == 9
        assert retriever.search("item", 2) == []


def test_filters_keep_recall_with_half_deleted(retriever: Retriever) -> None:
    """hnswlib#220 PR 344 (R02): exact, so nothing is missed."""
    retriever.add_documents(
        [{"id": f"d{i}", "text": f"item {i}", "metadata": {"i": i}} for i in range(400)]
    )
    retriever.delete([f"d{i}" for i in range(0, 400, 2)])
    found = retriever.search("item 7", top_k=100, filter={"i": {"$gte": 100}})
    everything = retriever.search("item 7", top_k=1000)
    wanted = [d.id for d in everything if d.metadata["i"] >= 100][:100]
    assert ids(found) == wanted and len(found) == 100


def test_a_filter_that_leaves_nothing_gives_an_empty_list(retriever: Retriever) -> None:
    """qdrant#4937 (R14)."""
    retriever.add_documents(BIRDS)
    assert retriever.search("owl", filter={"kind": "stone"}) == []


def test_filters_on_metadata(retriever: Retriever) -> None:
    retriever.add_documents(BIRDS)
    assert set(ids(retriever.search("water", 9, {"kind": "bird"}))) == {"owl", "swift"}
    assert set(ids(retriever.search("water", 9, {"year": {"$gte": 2010}}))) == {"swift", "cod"}
    both = {"kind": "bird", "year": {"$in": [2010, 2020]}}
    assert ids(retriever.search("water", 9, both)) == ["swift"]


@pytest.mark.parametrize("query", ["", "   ", "\n\t\u3000", "\u200b\ufeff", "🎉", "?!", "——"])
def test_a_query_without_words_finds_nothing(retriever: Retriever, query: str) -> None:
    """skardi PR 245 (R19): an empty list, never rows."""
    retriever.add_documents(BIRDS)
    assert retriever.search(query) == []


def test_stop_words_are_words_to_a_model(retriever: Retriever) -> None:
    """skardi PR 245 (R19): a choice, with its reason in docs/reference/knowledge-base.md."""
    retriever.add_documents([{"id": "band", "text": "The Who"}, *BIRDS])
    assert ids(retriever.search("the who"))[0] == "band"


@pytest.mark.parametrize("query", ["новосибирск", "일본", "项目", "C++", "42", "Ⅳ"])
def test_words_of_any_script_are_words(retriever: Retriever, query: str) -> None:
    """lancedb#2238; hermes-agent PR 69423 (R17)."""
    retriever.add_documents([*BIRDS, {"id": "x", "text": query}])
    assert ids(retriever.search(query))[0] == "x"


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ({"query": None}, "a string, got NoneType"),
        ({"query": ["a"]}, "a string, got list"),
        ({"top_k": 0}, "from 1, got 0"),
        ({"top_k": -1}, "from 1, got -1"),
        ({"top_k": True}, "from 1, got True"),
        ({"top_k": 2.0}, "from 1, got 2.0"),
        ({"top_k": "3"}, "from 1, got '3'"),
        ({"filter": "x"}, "a mapping"),
        ({"filter": {"a": {"$x": 1}}}, r"one of \$eq"),
        ({"mode": "hybrid"}, "'dense' in this version, got 'hybrid'"),
        ({"mode": "lexical"}, "'dense' in this version, got 'lexical'"),
        ({"mode": "fuzzy"}, "one of hybrid, dense, lexical, got 'fuzzy'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    retriever: Retriever, arguments: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(OptionError, match=wanted):
        retriever.search(**({"query": "owl"} | arguments))


def test_numpy_integers_are_whole_numbers(retriever: Retriever) -> None:
    numpy = pytest.importorskip("numpy")
    retriever.add_documents(BIRDS)
    assert len(retriever.search("owl", top_k=numpy.int64(2))) == 2


def test_adding_an_id_again_replaces_the_document(retriever: Retriever) -> None:
    retriever.add_documents(BIRDS)
    report = retriever.add_documents([{"id": "owl", "text": "Owls turn their heads."}, BIRDS[1]])
    assert (report.added, report.updated, report.unchanged) == (0, 1, 1)
    assert len(retriever) == 3
    (found,) = retriever.search("Owls turn their heads.", top_k=1)
    assert found.text == "Owls turn their heads." and found.metadata == {}


def test_what_is_unchanged_is_not_embedded_again(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        retriever.add_documents(BIRDS)
        before = embedder.embedded
        assert retriever.add_documents(BIRDS).unchanged == 3
        assert embedder.embedded == before


def test_strings_without_ids_are_kept_once(retriever: Retriever) -> None:
    report = retriever.add_documents(["one", "two", "one"])
    assert (report.added, report.unchanged, len(retriever)) == (2, 1, 2)


def test_one_id_for_two_contents_in_one_call_is_an_error(retriever: Retriever) -> None:
    with pytest.raises(OptionError, match="an id used once, got 'a' again"):
        retriever.add_documents([{"id": "a", "text": "1"}, {"id": "a", "text": "2"}])
    assert len(retriever) == 0


def test_ids_are_stable_for_ever(retriever: Retriever) -> None:
    """faiss#409 #190 #4655 #4656 (R07)."""
    texts = {f"d{i}": f"item number {i}" for i in range(10)}
    retriever.add_documents([{"id": k, "text": v} for k, v in texts.items()])
    for removed, added in (("d3", "e0"), ("d9", "e1"), ("e0", "d3")):
        retriever.delete([removed])
        texts.pop(removed)
        texts[added] = f"item called {added}"
        retriever.add_documents([{"id": added, "text": texts[added]}])
        for name, text in texts.items():
            assert ids(retriever.search(text, top_k=1)) == [name]
        assert len(retriever) == 10


def test_a_long_document_is_split_and_its_parts_are_named(retriever: Retriever) -> None:
    text = " ".join(f"Sentence number {i} is here." for i in range(60))
    report = retriever.add_documents([{"id": "long", "text": text, "metadata": {"a": 1}}])
    assert report.added == 1 and report.chunks == len(retriever) > 2
    found = retriever.search("Sentence number 50", top_k=100)
    assert {d.id for d in found} == {f"long#{n}" for n in range(1, len(retriever) + 1)}
    assert {d.document for d in found} == {"long"}
    assert all(d.metadata == {"a": 1} for d in found)


def test_deleting_a_document_removes_all_its_parts(retriever: Retriever) -> None:
    text = "Many words here. " * 100
    retriever.add_documents([{"id": "long", "text": text}, *BIRDS])
    parts = len(retriever) - 3
    assert retriever.delete(["long#2"]) == 1
    assert len(retriever) == parts + 2
    report = retriever.add_documents([{"id": "long", "text": text}])
    assert report.updated == 1 and len(retriever) == parts + 3
    assert retriever.delete(["long", "none", "long"]) == 1
    assert len(retriever) == 3


def test_an_update_that_is_shorter_leaves_no_old_part(retriever: Retriever) -> None:
    """txtai#601 (R20)."""
    retriever.add_documents([{"id": "a", "text": "Many words here. " * 100}])
    retriever.add_documents([{"id": "a", "text": "Few words."}])
    assert ids(retriever.search("words", top_k=9)) == ["a"]


def test_the_id_of_a_part_cannot_be_taken_by_a_document(retriever: Retriever) -> None:
    retriever.add_documents([{"id": "a", "text": "Many words here. " * 100}])
    with pytest.raises(OptionError, match=r"'a#2' to be free.*document 'a'"):
        retriever.add_documents([{"id": "new", "text": "x"}, {"id": "a#2", "text": "y"}])
    assert retriever.search("x", filter=None, top_k=100) and "new" not in ids(
        retriever.search("x", top_k=100)
    )


def test_a_chunk_beyond_the_window_is_split_and_reported(tmp_path: Path) -> None:
    """llama_index#12270 (R28)."""
    embedder = HashingEmbedder(max_tokens=16)
    with Retriever.create(tmp_path / "kb", embedder, chunk_size=2000, overlap=0) as retriever:
        text = " ".join(f"Sentence number {i} is short." for i in range(20))
        report = retriever.add_documents([{"id": "a", "text": text}, {"id": "b", "text": "tiny"}])
        assert report.split == ("a",)
        found = retriever.search("sentence", top_k=100)
        assert all(len(embedder.tokenize(d.text)) <= 16 for d in found)
        parts = sorted(
            (d for d in found if d.document == "a"), key=lambda d: int(d.id.split("#")[1])
        )
        assert "".join(d.text for d in parts) == text


def test_documents_without_text_are_reported(retriever: Retriever) -> None:
    report = retriever.add_documents([{"id": "blank", "text": " \n\t"}, {"id": "a", "text": "b"}])
    assert (report.added, report.empty, len(retriever)) == (1, ("blank",), 1)
    report = retriever.add_documents([{"id": "a", "text": ""}])
    assert (report.updated, report.empty, len(retriever)) == (1, ("a",), 0)


def test_files_of_unknown_kind_are_reported(retriever: Retriever, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# Birds\n\nOwls hunt at night.\n")
    (folder / "b.pdf").write_bytes(b"%PDF")
    report = retriever.add_documents(folder)
    assert report.added == 1 and report.skipped == (str(folder / "b.pdf"),)
    (found,) = retriever.search("owls")
    assert found.metadata == {"source": "docs/a.md", "heading": "Birds"}


def test_an_error_in_the_last_line_shows_before_anything_is_embedded(tmp_path: Path) -> None:
    embedder = HashingEmbedder()
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' * 5 + "broken\n")
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        with pytest.raises(FormatError, match=r"a.jsonl:6"):
            retriever.add_documents(path)
        assert len(retriever) == 0 and embedder.embedded == 0


def test_nan_from_a_model_adds_nothing(tmp_path: Path) -> None:
    """faiss#244 (R05)."""
    embedder = HashingEmbedder()
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        retriever.add_documents(BIRDS)
        plain = embedder._vector

        def broken(text: str) -> list[float]:
            return [float("nan") if "bad" in text else x for x in plain(text)]

        embedder._vector = broken  # type: ignore[method-assign]
        with pytest.raises(OptionError, match="nan in row 1, column 0"):
            retriever.add_documents(["good", "bad", "good too"])
        assert len(retriever) == 3
        with pytest.raises(OptionError, match="nan in row 0"):
            retriever.search("bad")


def test_progress_counts_documents_up_to_the_total(retriever: Retriever, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    retriever.add_documents([f"text {i}" for i in range(1300)], lambda *a: seen.append(a))
    assert seen[-1] == (1300, 1300) and len(seen) > 1
    assert seen == sorted(seen)
    retriever.add_documents((f"more {i}" for i in range(3)), lambda *a: seen.append(a))
    assert seen[-1] == (3, None)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"line {i}"}) + "\n" for i in range(4)))
    retriever.add_documents(path, lambda *a: seen.append(a))
    assert seen[-1] == (4, 4)


def test_an_interruption_adds_nothing(retriever: Retriever) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retriever.add_documents([f"text {i}" for i in range(2000)], interrupt)
    assert len(retriever) == 0
    retriever.add_documents(["after"])
    assert len(retriever) == 1


def test_it_survives_being_closed_and_loaded(tmp_path: Path, embedder: HashingEmbedder) -> None:
    with Retriever.create(tmp_path / "kb", embedder) as retriever:
        retriever.add_documents(BIRDS)
        before = retriever.search("owl")
    with Retriever.load(tmp_path / "kb", embedder) as retriever:
        assert retriever.search("owl") == before
        assert retriever.embedder is embedder


def test_another_dimension_is_refused_with_both_numbers(tmp_path: Path) -> None:
    """uteke PR 918 (R25)."""
    Retriever.create(tmp_path / "kb", HashingEmbedder(384)).close()
    with pytest.raises(StoreError, match=r"dimension 384.*768.*rebuild"):
        Retriever.load(tmp_path / "kb", HashingEmbedder(768))


def test_another_model_is_refused_with_both_names(tmp_path: Path) -> None:
    """R25."""
    Retriever.create(tmp_path / "kb", HashingEmbedder(name="old")).close()
    with pytest.raises(StoreError, match=r"the embedder old .*got new .*rebuild"):
        Retriever.load(tmp_path / "kb", HashingEmbedder(name="new"))


def test_a_model_that_is_not_here_is_named(tmp_path: Path) -> None:
    Retriever.create(tmp_path / "kb", HashingEmbedder(name="nobody/has-this")).close()
    with pytest.raises(NameNotFoundError, match="nobody/has-this"):
        Retriever.load(tmp_path / "kb")


def test_a_rebuild_takes_another_model(tmp_path: Path) -> None:
    """R25: also of a store that cannot open."""
    with Retriever.create(tmp_path / "kb", HashingEmbedder(name="old")) as retriever:
        retriever.add_documents([{"id": f"d{i}", "text": f"item {i}"} for i in range(1500)])
        retriever.delete(["d3"])
        retriever.add_documents([{"id": "late", "text": "a late one"}])
    for file in (tmp_path / "kb" / "index").iterdir():
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(StoreError):
        Retriever.load(tmp_path / "kb", HashingEmbedder(name="old"))
    new = HashingEmbedder(48, name="new")
    seen: list[tuple[int, int | None]] = []
    with Retriever.rebuild(tmp_path / "kb", new, lambda *a: seen.append(a)) as retriever:
        assert len(retriever) == 1500 and seen[-1] == (1500, 1500)
        assert ids(retriever.search("a late one", top_k=1)) == ["late"]
        assert ids(retriever.search("item 77", top_k=1)) == ["d77"]
        retriever.verify()
    with Retriever.load(tmp_path / "kb", new) as retriever:
        assert len(retriever) == 1500


def test_a_rebuild_with_a_smaller_window_splits_and_keeps_ids(tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {i} is short." for i in range(10))
    with Retriever.create(tmp_path / "kb", HashingEmbedder(), 2000, 0) as retriever:
        retriever.add_documents([{"id": "a", "text": text}, {"id": "b", "text": "tiny"}])
    with Retriever.rebuild(tmp_path / "kb", HashingEmbedder(max_tokens=20, name="n")) as retriever:
        found = retriever.search("sentence", top_k=99)
        assert "b" in ids(found) and "a#1" in ids(found) and "a" not in ids(found)
        assert retriever.delete(["a"]) == 1 and len(retriever) == 1


def test_an_open_retriever_notices_a_rebuild_by_another_model(tmp_path: Path) -> None:
    with Retriever.create(tmp_path / "kb", HashingEmbedder(name="old")) as retriever:
        retriever.add_documents(BIRDS)
        Retriever.rebuild(tmp_path / "kb", HashingEmbedder(48, name="new")).close()
        with pytest.raises(StoreError, match="dimension 48"):
            retriever.search("owl")
        with pytest.raises(StoreError, match="dimension 48"):
            retriever.add_documents(["more"])


def test_opening_what_is_no_knowledge_base(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError):
        Retriever.load("no_such_wiki")
    with pytest.raises(NameNotFoundError):
        Retriever.load(tmp_path / "none")
    (tmp_path / "some.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(NameNotFoundError, match="gguf"):
        Retriever.load(tmp_path / "some.gguf")


def test_delete_takes_one_id_or_many_strings(retriever: Retriever) -> None:
    retriever.add_documents(BIRDS)
    assert retriever.delete("owl") == 1
    assert retriever.delete(["owl"]) == 0
    with pytest.raises(OptionError, match=r"ids\[1\]: expected a string, got int"):
        retriever.delete(["swift", 5])  # type: ignore[list-item]
    assert len(retriever) == 2


def test_a_writer_elsewhere_is_told_and_reading_goes_on(
    tmp_path: Path, embedder: HashingEmbedder
) -> None:
    """MemPalace#357 (R11)."""
    with (
        Retriever.create(tmp_path / "kb", embedder) as one,
        Retriever.load(tmp_path / "kb", embedder) as two,
    ):
        one.add_documents(BIRDS)
        two.store._lock.wait = 0.1
        with one.store.writing(), pytest.raises(LockedError):
            two.add_documents(["x"])
        assert len(two.search("owl")) == 3


def test_a_dropped_retriever_closes_its_files(tmp_path: Path) -> None:
    retriever = Retriever.create(tmp_path / "kb", HashingEmbedder())
    retriever.add_documents(BIRDS)
    retriever.search("owl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del retriever
    assert not (tmp_path / "kb" / "documents.sqlite-wal").exists()


def test_errors_are_ours(retriever: Retriever) -> None:
    for documents in (None, 5, [1], {"text": "a"}):
        with pytest.raises(CandleError):
            retriever.add_documents(documents)  # type: ignore[arg-type]


def test_results_are_plain_values(retriever: Retriever) -> None:
    retriever.add_documents(BIRDS)
    (found,) = retriever.search("owl", top_k=1)
    assert type(found.score) is float and not isinstance(found.score, Tensor)
    assert json.loads(json.dumps(found.metadata)) == found.metadata
