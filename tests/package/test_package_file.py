"""Writing and reading `.candle` files."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
import zlib
from array import array
from hashlib import sha256
from pathlib import Path

import pytest

from candle.dtype import DType
from candle.errors import PackageError
from candle.package.format import Record, central_header, end_records, local_header
from candle.package.manifest import Manifest
from candle.package.reader import PackageReader
from candle.package.weights import read_weights, weight_entries
from candle.package.writer import write_package

PLAIN = Manifest("m", "1.0", "encoder", created_by="candle 0.1.0")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.candle"
    source = tmp_path / "source"
    source.write_bytes(b"from a file")
    entries = {
        "z.txt": b"last",
        "index/0.bin": [b"two ", b"pieces"],
        "empty": b"",
        "a_file": source,
        "floats": array("f", [1, 2]),
    }
    write_package(path, PLAIN, entries)
    return path


def test_entries_are_read_in_place(small: Path) -> None:
    with PackageReader.open(small) as package:
        assert bytes(package.view("index/0.bin")) == b"two pieces"
        assert bytes(package.view("a_file")) == b"from a file"
        assert bytes(package.view("empty")) == b""
        assert package.view("floats").cast("f").tolist() == [1, 2]
        assert package.view("z.txt").readonly
        assert "z.txt" in package and "y.txt" not in package
        package.verify()


def test_the_manifest_is_first_and_names_all_others(small: Path) -> None:
    with PackageReader.open(small) as package:
        paths = [entry.path for entry in package.manifest.entries]
        assert paths == ["a_file", "empty", "floats", "index/0.bin", "z.txt"]
        for entry in package.manifest.entries:
            data = bytes(package.view(entry.path))
            assert (entry.size, entry.sha256) == (len(data), sha256(data).hexdigest())
        assert bytes(package.view("manifest.toml")) == package.manifest_bytes
        assert package.digest == f"sha256:{sha256(package.manifest_bytes).hexdigest()}"
        assert package.location("manifest.toml")[0] == 64


def test_every_entry_is_aligned_to_64(small: Path) -> None:
    """onnxruntime/mobius#248, ComfyUI#12266: mapped weights must be aligned."""
    content = small.read_bytes()
    with PackageReader.open(small) as package:
        for entry in package.manifest.entries:
            offset, size = package.location(entry.path)
            assert offset % 64 == 0
            assert sha256(content[offset : offset + size]).hexdigest() == entry.sha256


@pytest.mark.parametrize("length", range(1, 70))
def test_names_of_any_length_leave_the_data_aligned(tmp_path: Path, length: int) -> None:
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, {"n" * length: b"x" * length})
    with PackageReader.open(path) as package:
        assert package.location("n" * length)[0] % 64 == 0


def test_pythons_zipfile_reads_it(small: Path) -> None:
    with zipfile.ZipFile(small) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[0] == "manifest.toml"
        assert archive.read("index/0.bin") == b"two pieces"
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")
def test_unzip_reads_it(small: Path) -> None:
    done = subprocess.run(["unzip", "-t", small], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No errors detected" in done.stdout


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    entries = {"b": b"1", "a": b"2", "c/d": b"3"}
    first, second = tmp_path / "one.candle", tmp_path / "two.candle"
    write_package(first, PLAIN, entries)
    os.utime(first, (0, 0))
    write_package(second, PLAIN, dict(reversed(entries.items())))
    assert first.read_bytes() == second.read_bytes()


def test_the_bytes_of_version_1_do_not_change(tmp_path: Path) -> None:
    """A change here is a change of the format: packages that exist would not open."""
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, {"a": b"hello"})
    content = path.read_bytes()
    assert content[:30].hex() == ("504b03040a00000000000000210028e5479bde000000de0000000d001500")
    assert content[30:64].hex() == b"manifest.toml".hex() + "35d911004000" + "00" * 15
    with PackageReader.open(path) as package:
        assert package.manifest_bytes.decode() == (
            'format = 1\nname = "m"\nversion = "1.0"\nkind = "encoder"\nlicense = ""\n'
            'description = ""\ncreated_by = "candle 0.1.0"\n\n[[entries]]\npath = "a"\nsize = 5\n'
            'sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"\n'
        )


def test_a_package_of_no_entries_is_one(tmp_path: Path) -> None:
    write_package(tmp_path / "m.candle", PLAIN, {})
    with PackageReader.open(tmp_path / "m.candle") as package:
        assert package.manifest.entries == ()
        package.verify()


@pytest.mark.parametrize("bad", ["../x", "/x", "a\\b", "con", "", "é", "manifest.toml", "a/"])
def test_a_path_that_some_system_refuses_is_not_written(tmp_path: Path, bad: str) -> None:
    with pytest.raises(PackageError):
        write_package(tmp_path / "m.candle", PLAIN, {bad: b""})
    assert list(tmp_path.iterdir()) == []


def test_paths_that_collide_are_not_written(tmp_path: Path) -> None:
    for entries in ({"a": b"", "A": b""}, {"a": b"", "a/b": b""}, {"Manifest.TOML": b""}):
        with pytest.raises(PackageError, match="apart"):
            write_package(tmp_path / "m.candle", PLAIN, entries)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "m.candle"
    source.write_bytes(b"before")

    def change(done: int, total: int) -> None:
        source.write_bytes(b"behind")

    with pytest.raises(PackageError, match="changed"):
        write_package(target, PLAIN, {"a": source}, progress=change)
    assert not target.exists()


def test_progress_counts_to_the_end(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, {"a": bytes(9_000_000)}, lambda *p: seen.append(p))
    assert seen[-1] == (18_000_000, 18_000_000)
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)
    seen.clear()
    with PackageReader.open(path) as package:
        package.verify(lambda *p: seen.append(p))
    assert seen[-1] == (9_000_000, 9_000_000)


def test_extract_writes_one_entry(small: Path, tmp_path: Path) -> None:
    with PackageReader.open(small) as package:
        assert package.extract("a_file", tmp_path / "out").read_bytes() == b"from a file"
        with pytest.raises(PackageError, match="an entry named 'nope', got a_file"):
            package.extract("nope", tmp_path / "out2")
    assert not (tmp_path / "out2").exists()


def test_views_outlive_the_reader(small: Path) -> None:
    with PackageReader.open(small) as package:
        view = package.view("z.txt")
    assert bytes(view) == b"last"


def test_entries_of_4_gib_and_more_use_zip64(tmp_path: Path) -> None:
    """Laid out sparsely: 9 GiB that take no room. anemoi-training#57."""
    path = tmp_path / "large.candle"
    sizes = {"big": 5 << 30, "edge": (1 << 32) - 1, "small": 3}
    digest = "0" * 64
    text = PLAIN.to_toml().decode()
    for name, size in sizes.items():
        text += f'[[entries]]\npath = "{name}"\nsize = {size}\nsha256 = "{digest}"\n'
    records = [Record("manifest.toml", len(text), zlib.crc32(text.encode()), 0)]
    for name, size in sizes.items():
        records.append(Record(name, size, 0, records[-1].end))
    with path.open("wb") as stream:
        for record in records:
            stream.seek(record.start)
            stream.write(local_header(record))
            if record.start == 0:
                stream.write(text.encode())
        directory = b"".join(map(central_header, records))
        start = records[-1].end
        stream.seek(start)
        stream.write(directory + end_records(len(records), len(directory), start))
    with PackageReader.open(path) as package, zipfile.ZipFile(path) as archive:
        found = {info.filename: info for info in archive.infolist()}
        for record in records:
            assert package.location(record.path) == (record.data, record.size)
            assert record.data % 64 == 0
            theirs = found[record.path]
            assert (theirs.file_size, theirs.header_offset) == (record.size, record.start)


def test_weights_make_the_round_trip(tmp_path: Path) -> None:
    tensors = {
        "b.weight": (DType.F32, (2, 3), array("f", range(6))),
        "a.bias": (DType.F16, (3,), bytes(6)),
        "q": (DType.Q8_0, (1, 32), bytes(range(34))),
        "packed": (DType.F32X16, (3, 2), bytes(16 * 2 * 4)),
        "none": (DType.F32, (0, 4), b""),
        "scalar": (DType.I64, (), bytes(8)),
        "имя": (DType.U8, (1,), b"x"),
    }
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, weight_entries(tensors))
    with PackageReader.open(path) as package:
        start, size = package.location("weights.bin")
        table = read_weights(package.view("weights.json"), size)
        assert list(table) == sorted(tensors)
        for name, (dtype, shape, data) in tensors.items():
            info = table[name]
            assert (info.dtype, info.shape) == (dtype, shape)
            assert (start + info.offset) % 64 == 0
            view = package.view("weights.bin")[info.offset : info.offset + info.nbytes]
            assert bytes(view) == bytes(data)


def test_weights_that_do_not_fit_are_not_written() -> None:
    for tensors, says in [
        ({"a": (DType.F32, (2,), bytes(7))}, "8 contiguous bytes"),
        ({"a": (DType.Q8_0, (33,), bytes(34))}, "whole q8_0 blocks"),
        ({"": (DType.F32, (1,), bytes(4))}, "printable characters"),
        ({"\ud800": (DType.F32, (1,), bytes(4))}, "printable characters"),
    ]:
        with pytest.raises(PackageError, match=says):
            weight_entries(tensors)


ROW = '{"name":"a","dtype":"f32","shape":[2],"offset":0,"nbytes":8}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "JSON in"),
        ("[" * 100_000, "JSON in"),
        ("[]", "format and tensors"),
        ('{"format":1}', "format and tensors"),
        ('{"format":1,"format":1,"tensors":[]}', "the same key twice"),
        ('{"format":2,"tensors":[]}', "format 1"),
        ('{"format":true,"tensors":[]}', "format 1"),
        ('{"format":1,"tensors":{}}', "a list of tensors"),
        ("1", "of each tensor"),
        (ROW.replace('"f32"', '"f33"'), "a known dtype"),
        (ROW.replace('"f32"', "1"), "a known dtype"),
        (ROW.replace("[2]", "[-2]"), "numbers from 0"),
        (ROW.replace("[2]", "[2.0]"), "numbers from 0"),
        (ROW.replace("[2]", "[true]"), "numbers from 0"),
        (ROW.replace("[2]", "2"), "a shape of at most"),
        (ROW.replace("[2]", "[1e999]"), "numbers from 0"),
        (ROW.replace("[2]", "[9223372036854775807,8]"), "more elements than 63 bits"),
        (ROW.replace("8}", "4}"), "the bytes of f32"),
        (ROW.replace(":0", ":64"), "tensor 'a' at 0, got 64"),
        (ROW.replace(":0", ":4"), "tensor 'a' at 0, got 4"),
        (ROW + "," + ROW, "names in their order"),
        (ROW.replace('"a"', '"\\ud800"'), "printable characters"),
        (ROW.replace("}", ',"x":1}'), "of each tensor"),
    ],
)
def test_a_malformed_index_of_weights_is_refused(text: str, says: str) -> None:
    whole = (
        text if text[:1] in ("", "[") or "format" in text else f'{{"format":1,"tensors":[{text}]}}'
    )
    with pytest.raises(PackageError, match=says):
        read_weights(whole.encode(), 64)


def test_weights_must_fill_their_entry() -> None:
    index = f'{{"format":1,"tensors":[{ROW}]}}'.encode()
    assert read_weights(index, 64)["a"].nbytes == 8
    for size in (0, 8, 63, 128):
        with pytest.raises(PackageError, match=f"64 bytes in weights.bin, got {size}"):
            read_weights(index, size)


def test_a_change_of_any_byte_is_noticed(tmp_path: Path) -> None:
    """One sequence of bytes for given entries: no field is free, no byte unchecked."""
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, {"a": b"hello", "b/c": b"x" * 70})
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x21]) + good[at + 1 :])
        with pytest.raises(PackageError), PackageReader.open(path) as package:
            package.verify()


def test_every_prefix_and_every_extension_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.candle"
    write_package(path, PLAIN, {"a": b"hello"})
    good = path.read_bytes()
    for content in (*(good[:n] for n in range(len(good))), good + b"\0", b"\0" + good, good * 2):
        path.write_bytes(content)
        with pytest.raises(PackageError):
            PackageReader.open(path)
