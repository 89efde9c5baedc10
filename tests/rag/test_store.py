"""The store: transactions, snapshots, merging, ids that never change."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from candle.errors import NameNotFoundError, OptionError, StoreError
from candle.rag.batch import SEGMENT_ROWS
from candle.rag.location import Location
from candle.rag.merge import MAX_SEGMENTS
from candle.rag.store import Store
from support import kb


def segments(store: Store) -> list[tuple[int, int]]:
    """(rows, dead) of each segment."""
    with store.reading() as view:
        return view.connection.execute("SELECT rows, dead FROM segments").fetchall()


def pending(store: Store) -> int:
    with store.reading() as view:
        (count,) = view.connection.execute("SELECT count(*) FROM pending").fetchone()
        return int(count)


def test_an_empty_one_answers_with_empty_lists(tmp_path: Path) -> None:
    """faiss#3830 (R04)."""
    with kb.create(tmp_path / "kb") as store, store.reading() as view:
        for _ in range(25):
            assert view.search(kb.EMBEDDER.embed(["a"]), 5) == []


def test_small_additions_wait_in_the_database_and_are_found_at_once(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(10)))
        assert (pending(store), segments(store)) == (10, [])
        assert kb.contents(store) == kb.numbered(range(10))


def test_large_additions_become_a_segment(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(SEGMENT_ROWS + 5)))
        assert (pending(store), segments(store)) == (0, [(SEGMENT_ROWS + 5, 0)])
        assert kb.contents(store) == kb.numbered(range(SEGMENT_ROWS + 5))


def test_many_small_additions_are_merged_in_the_background(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        for start in range(0, SEGMENT_ROWS + 50, 50):
            kb.add(store, kb.numbered(range(start, start + 50)))
        store.wait()
        assert len(segments(store)) == 1
        assert pending(store) < SEGMENT_ROWS
        assert len(kb.contents(store)) == len(store)


def test_segments_stay_few(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        for start in range(0, 16 * SEGMENT_ROWS, SEGMENT_ROWS + 1):
            kb.add(store, kb.numbered(range(start, start + SEGMENT_ROWS + 1)))
        store.wait()
        assert len(segments(store)) <= MAX_SEGMENTS
        assert len(list((tmp_path / "kb" / "index").iterdir())) == len(segments(store))


def test_an_error_in_the_transaction_takes_everything_back(tmp_path: Path) -> None:
    """faiss#244 (R05): nothing half-added."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(3)))
        for count in (5, SEGMENT_ROWS + 5):
            with pytest.raises(ZeroDivisionError), store.writing() as batch:
                kb.put(batch, kb.numbered(range(2, count)))
                batch.delete(["d0"])
                _ = 1 // 0
            assert kb.contents(store) == kb.numbered(range(3))
        assert list((tmp_path / "kb" / "index").iterdir()) == []


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    """lance PR 3145 (R16)."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(20)))
        store.compact()
        before = kb.contents(store), segments(store)
        store.compact()
        assert not store.merge()
        assert (kb.contents(store), segments(store)) == before


def test_deleted_and_updated_chunks_leave_the_disk(tmp_path: Path) -> None:
    """txtai#601 #571 (R20): add 30,000, delete 29,000, update."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(30_000)))
        full = size(tmp_path)
        with store.writing() as batch:
            assert batch.delete(f"d{i}" for i in range(29_000)) == 29_000
        kb.add(store, {"d29500": "changed"})
        store.compact()
        assert size(tmp_path) < full / 10
        wanted = kb.numbered(range(29_000, 30_000)) | {"d29500": "changed"}
        assert kb.contents(store) == wanted
    with Store(Location(tmp_path / "kb")) as store:
        assert kb.contents(store) == wanted


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_dead_rows_are_reclaimed_without_being_asked(tmp_path: Path) -> None:
    """txtai#601 (R20)."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
        with store.writing() as batch:
            batch.delete(f"d{i}" for i in range(600))
        store.wait()
        assert segments(store) == [(1400, 0)]


def test_fifty_thousand_ids_are_deleted_in_one_call(tmp_path: Path) -> None:
    """haystack#588 (R22)."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(100)))
        with store.writing() as batch:
            assert batch.delete(f"d{i}" for i in range(50, 50_050)) == 50
        assert kb.contents(store) == kb.numbered(range(50))


def test_random_changes_agree_with_a_plain_dictionary(tmp_path: Path) -> None:
    """faiss#409 #190 #4655 #4656 (R07): ids neither shift nor repeat."""
    rng = random.Random(3)
    model: dict[str, str] = {}
    store = kb.create(tmp_path / "kb")
    for step in range(60):
        names = [f"d{rng.randrange(400)}" for _ in range(rng.choice([1, 7, 60, 300]))]
        with store.writing() as batch:
            if rng.random() < 0.4:
                assert batch.delete(names) == len(set(names) & set(model))
                model = {k: v for k, v in model.items() if k not in names}
            else:
                texts = {name: f"text number {rng.randrange(10**6)}" for name in names}
                kb.put(batch, texts)
                model |= texts
        if rng.random() < 0.1:
            store.compact()
        if rng.random() < 0.1:
            store.close()
            store = Store(Location(tmp_path / "kb"))
        if step % 10 == 9:
            assert kb.contents(store) == model
    store.verify()
    store.close()


def test_a_reader_keeps_its_state_while_others_write(tmp_path: Path) -> None:
    """faiss#1781 (R13)."""
    with kb.create(tmp_path / "kb") as store, Store(Location(tmp_path / "kb")) as writer:
        kb.add(writer, kb.numbered(range(2000)))
        with store.reading() as view:
            with writer.writing() as batch:
                batch.delete(f"d{i}" for i in range(1500))
            writer.compact()
            found = view.search(kb.EMBEDDER.embed(["text number"]), 5000)
            assert len(found) == len(view) == 2000
        assert len(store) == 500


def test_a_reader_that_missed_a_merge_reads_what_replaced_it(tmp_path: Path) -> None:
    """The segment it was about to map is gone: it begins anew."""
    with kb.create(tmp_path / "kb") as store, Store(Location(tmp_path / "kb")) as late:
        kb.add(store, kb.numbered(range(2000)))
        store.compact()
        assert len(kb.contents(late)) == 2000


def test_a_segment_that_is_gone_is_an_error_not_fewer_results(tmp_path: Path) -> None:
    """chroma#7090 (R10)."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
    for file in (tmp_path / "kb" / "index").iterdir():
        file.unlink()
    with pytest.raises(StoreError, match="its segment file"):
        Store(Location(tmp_path / "kb"))


def test_fifteen_hundred_survive_a_restart(tmp_path: Path) -> None:
    """chroma#7090 (R10): lost after a restart above 1,000."""
    with kb.create(tmp_path / "kb") as store:
        for start in range(0, 1500, 100):
            kb.add(store, kb.numbered(range(start, start + 100)))
    with Store(Location(tmp_path / "kb")) as store:
        assert kb.contents(store) == kb.numbered(range(1500))


def test_closing_leaves_a_tidy_folder(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(3)))
        kb.contents(store)
    assert sorted(f.name for f in (tmp_path / "kb").iterdir()) == [
        "documents.sqlite",
        "writer.lock",
    ]


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = kb.create(tmp_path / "kb")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="a closed one"):
        len(store)
    with pytest.raises(StoreError, match="a closed one"), store.writing():
        pass


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
    index = tmp_path / "kb" / "index"
    (index / "00000099-0123456789abcdef.seg").write_bytes(b"stray")
    (index / ".00000100-0123456789abcdef.seg.ab12.tmp").write_bytes(b"partial")
    with Store(Location(tmp_path / "kb")) as store:
        kb.add(store, {"x": "y"})
        assert len(list(index.iterdir())) == 1
        assert len(store) == 2001


def test_create_refuses_what_is_there(tmp_path: Path) -> None:
    kb.create(tmp_path / "kb").close()
    with pytest.raises(OptionError, match="a knowledge base at"):
        Store.create(tmp_path / "kb", kb.settings())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(OptionError, match=r"an empty folder.*thesis.txt"):
        Store.create(tmp_path / "full", kb.settings())
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match="the file"):
        Store.create(tmp_path / "file", kb.settings())


def test_opening_nothing_is_an_error_and_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError):
        Store(Location(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_a_path_with_every_awkward_character_works(tmp_path: Path) -> None:
    """llama.cpp#18571 #5802 (L06): spaces, percent, hash, question mark, other scripts."""
    folder = tmp_path / "a b%20c#d?e'f 文書 é"
    with kb.create(folder) as store:
        kb.add(store, kb.numbered(range(2000)))
        assert len(kb.contents(store)) == 2000


def test_it_is_read_from_a_disk_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No journal can be made there; with none left over, none is missed."""
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(1500)))
    monkeypatch.setattr("candle.rag.schema.os.access", lambda path, mode: False)
    with Store(Location(tmp_path / "kb")) as store:
        assert len(kb.contents(store)) == 1500
        assert not (tmp_path / "kb" / "documents.sqlite-shm").exists()


def test_the_schema_is_compared_with_ours(tmp_path: Path) -> None:
    """A trigger that a hostile package brings is refused before anything runs."""
    kb.create(tmp_path / "kb").close()
    connection = sqlite3.connect(tmp_path / "kb" / "documents.sqlite")
    connection.execute("CREATE TRIGGER t AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="CREATE TRIGGER"):
        Store(Location(tmp_path / "kb"))


@pytest.mark.parametrize(
    "statement, wanted",
    [
        ("PRAGMA user_version = 2", "version 1, got 2 .*newer"),
        ("PRAGMA application_id = 5", "application id 0x5"),
        ("DROP TABLE pending", "a table too few"),
        ("DELETE FROM settings WHERE key = 'embedder'", "no 'embedder'"),
        ("UPDATE settings SET value = 'x' WHERE key = 'dimension'", "numbers"),
        ("UPDATE settings SET value = '0' WHERE key = 'dimension'", "a dimension of 1"),
        ("UPDATE settings SET value = 'l3' WHERE key = 'metric'", "one of the metrics"),
        ("UPDATE settings SET value = '8' WHERE key = 'dimension'", "8 f32|8 wide"),
        ("DELETE FROM chunks WHERE id = 'd1'", "chunks in segment"),
        ("DELETE FROM tombstones", "deleted rows"),
        ("UPDATE tombstones SET row = 99999", "deleted rows below"),
        ("UPDATE segments SET file = '../../x.seg'", "index folder"),
        ("UPDATE segments SET file = x'00'", "columns of"),
        ("UPDATE segments SET digest = 'other'", "digest"),
        ("UPDATE segments SET rows = rows + 1", "rows|chunks"),
        ("UPDATE pending SET vector = x'00'", "one of another size"),
        ("UPDATE pending SET vector = 'text'", "one of another size"),
        ("DELETE FROM pending", "chunks in segment None"),
    ],
)
def test_a_database_at_odds_with_itself_is_refused(
    tmp_path: Path, statement: str, wanted: str
) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
        with store.writing() as batch:
            batch.delete(["d5"])
        kb.add(store, {"late": "one that waits"})
    connection = sqlite3.connect(tmp_path / "kb" / "documents.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=wanted):
        Store(Location(tmp_path / "kb"))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE chunks SET text = x'ff' WHERE id = 'd1'",
        "UPDATE chunks SET text = CAST(x'ff' AS TEXT) WHERE id = 'd1'",
        "UPDATE chunks SET metadata = 'not json' WHERE id = 'd1'",
        "UPDATE chunks SET metadata = '[1]' WHERE id = 'd1'",
        "UPDATE chunks SET row = row + 5000 WHERE id = 'd1'",
        "UPDATE chunks SET start = 'x' WHERE id = 'd1'",
    ],
)
def test_a_damaged_chunk_is_an_error_when_it_is_found(tmp_path: Path, statement: str) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
    connection = sqlite3.connect(tmp_path / "kb" / "documents.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()
    with Store(Location(tmp_path / "kb")) as store:
        query = kb.EMBEDDER.embed([kb.numbered([1])["d1"]])
        with pytest.raises(StoreError), store.reading() as view:
            view.search(query, 3)


def test_nan_in_a_damaged_segment_is_an_error_not_fewer_results(tmp_path: Path) -> None:
    with kb.create(tmp_path / "kb") as store:
        kb.add(store, kb.numbered(range(2000)))
    (file,) = (tmp_path / "kb" / "index").iterdir()
    data = bytearray(file.read_bytes())
    data[-64:] = b"\xff" * 64
    file.write_bytes(data)
    with Store(Location(tmp_path / "kb")) as store:
        with pytest.raises(StoreError, match="can be compared"), store.reading() as view:
            view.search(kb.EMBEDDER.embed(["text"]), 2000)
        with pytest.raises(StoreError, match="as it was written"):
            store.verify()
