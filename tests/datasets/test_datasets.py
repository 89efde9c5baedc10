"""idx files and digits, hostile ones among them; CSV columns; batches."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from candle import DType, FormatError, NameNotFoundError, OptionError, ShapeError, Tensor
from candle.datasets import (
    DataLoader,
    Dataset,
    digits_json,
    fashion_mnist,
    mnist,
    read_csv,
    read_idx,
)


def idx(kind: int, shape: tuple[int, ...], body: bytes) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


def put(folder: Path, data: bytes, name: str = "some-idx") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


# -- idx -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(8, "u1"), (12, ">i4"), (13, ">f4"), (14, ">f8")],
    ids=["u8", "i32", "f32", "f64"],
)
def test_an_idx_file_of_each_type_is_read(
    tmp_path: Path, kind: int, dtype: str, packed: bool
) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    data = idx(kind, (2, 3, 4), values.tobytes())
    path = put(tmp_path, gzip.compress(data) if packed else data)
    assert read_idx(path).to_vec() == values.tolist()


def test_empty_and_scalar_idx_files_are_legal(tmp_path: Path) -> None:
    assert read_idx(put(tmp_path, idx(8, (0, 28, 28), b""))).shape == (0, 28, 28)
    assert read_idx(put(tmp_path, idx(8, (), b"\x05"))).to_scalar() == 5


HUGE = (2**32 - 1,) * 8
HOSTILE = {
    "empty": b"",
    "short": b"\0\0\x08",
    "magic": b"\1\0\x08\1\0\0\0\0",
    "type": b"\0\0\x09\1\0\0\0\0",
    "i16": idx(0x0B, (1,), b"\0\0"),
    "rank": bytes([0, 0, 8, 255]) + bytes(1020),
    "sizes": bytes([0, 0, 8, 3, 0, 0, 0, 1]),
    "huge": idx(8, HUGE, b"abc"),
    "one too few": idx(8, (2, 2), b"abc"),
    "one too many": idx(8, (2, 2), b"abcde"),
    "gzip cut": gzip.compress(idx(8, (100,), bytes(100)))[:-9],
    "gzip tail": gzip.compress(idx(8, (4,), bytes(4))) + b"junk",
    "gzip only": b"\x1f\x8b",
    "gzip crc": gzip.compress(idx(8, (4,), b"abcd"))[:-8] + bytes(8),
    "gzip bomb": gzip.compress(idx(8, (4,), bytes(10_000_000))),
    "gzip deflate": gzip.compress(b"")[:10] + b"\xff" * 20,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_idx_file_is_refused(tmp_path: Path, name: str) -> None:
    """safetensors#668's kind: nothing is allocated from a length alone."""
    with pytest.raises(FormatError, match="idx some-idx"):
        read_idx(put(tmp_path, HOSTILE[name]))


# -- digits ----------------------------------------------------------------------------------------


def write_mnist(folder: Path, counts: dict[str, int], end: str = "", mark: str = "-") -> None:
    for part, n in counts.items():
        images = idx(8, (n, 28, 28), bytes(k % 251 for k in range(n * 784)))
        labels = idx(8, (n,), bytes(k % 10 for k in range(n)))
        for what, data in (("images-idx3", images), ("labels-idx1", labels)):
            name = f"{part}-{what}-ubyte".replace("-idx", f"{mark}idx")
            put(folder, gzip.compress(data) if end else data, name + end)


@pytest.mark.parametrize(("end", "mark"), [("", "-"), (".gz", "-"), ("", ".")])
def test_a_folder_of_mnist_is_read(tmp_path: Path, end: str, mark: str) -> None:
    write_mnist(tmp_path, {"train": 5, "t10k": 3}, end, mark)
    train, test = mnist(tmp_path)
    assert (len(train), len(test)) == (5, 3)
    images, labels = train.tensors
    assert images.shape == (5, 1, 28, 28) and images.dtype is labels.dtype is DType.U8
    assert labels.to_vec() == [0, 1, 2, 3, 4]
    assert [len(part) for part in fashion_mnist(tmp_path)] == [5, 3]


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError, match="train-images-idx3-ubyte"):
        mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("t10k-labels-idx1-ubyte", idx(8, (2,), b"\0\1")),
        ("t10k-labels-idx1-ubyte", idx(8, (3,), b"\0\1\x0a")),
        ("t10k-labels-idx1-ubyte", idx(8, (3, 1), b"\0\1\2")),
        ("t10k-labels-idx1-ubyte", idx(12, (3,), bytes(12))),
        ("t10k-images-idx3-ubyte", idx(8, (3, 28, 27), bytes(3 * 28 * 27))),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path: Path, name: str, data: bytes) -> None:
    write_mnist(tmp_path, {"train": 5, "t10k": 3})
    put(tmp_path, data, name)
    with pytest.raises(FormatError, match="t10k"):
        mnist(tmp_path)


def write_digits(folder: Path, count: int) -> None:
    for k in range(10):
        data = [0.0, 0.2, 1, 0.996][k % 4 : k % 4 + 1] * (784 * count)
        put(folder, json.dumps({"data": data}).encode(), f"{k}.json")


def test_digits_in_json_are_read(tmp_path: Path) -> None:
    write_digits(tmp_path, 3)
    train, test = digits_json(tmp_path, 1)
    assert (len(train), len(test)) == (20, 10)
    assert test.tensors[1].to_vec() == list(range(10))
    assert test.tensors[0].shape == (10, 1, 28, 28)
    assert [int(v) for v in test.tensors[0][:4, 0, 0, 0].to_vec()] == [0, 51, 255, 254]
    with pytest.raises(OptionError, match="tests_per_digit"):
        digits_json(tmp_path, 4)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data": 3}',
        b'{"data": [0.1]}',
        b'{"data": [2.0]}',
        b'{"data": [-1]}',
        b'{"data": [NaN]}',
        b'{"data": [1e999]}',
        b'{"data": ["a"]}',
        b'{"data": [null]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_hostile_digits_are_refused(tmp_path: Path, text: bytes) -> None:
    write_digits(tmp_path, 1)
    put(tmp_path, text, "4.json")
    with pytest.raises(FormatError, match=r"4\.json"):
        digits_json(tmp_path, 1)


def test_missing_digits_are_named(tmp_path: Path) -> None:
    with pytest.raises(NameNotFoundError, match=r"0\.json"):
        digits_json(tmp_path)


# -- csv -------------------------------------------------------------------------------------------

TABLE = '\ufeffage,price,name\n3,1.5,Ann\n\n-4,2e3,"Bo, b"\n'


def write_csv(folder: Path, text: str) -> Path:
    return put(folder, text.encode(), "t.csv")


def test_columns_are_typed_by_what_they_hold(tmp_path: Path) -> None:
    table = read_csv(write_csv(tmp_path, TABLE))
    age, price = table["age"], table["price"]
    assert isinstance(age, Tensor) and age.dtype is DType.I64 and age.to_vec() == [3, -4]
    assert (
        isinstance(price, Tensor) and price.dtype is DType.F32 and price.to_vec() == [1.5, 2000.0]
    )
    assert table["name"] == ["Ann", "Bo, b"]


def test_columns_are_typed_as_asked(tmp_path: Path) -> None:
    table = read_csv(write_csv(tmp_path, TABLE), {"age": "f64", "name": str})
    assert list(table) == ["age", "name"]
    assert isinstance(table["age"], Tensor) and table["age"].dtype is DType.F64
    only = read_csv(write_csv(tmp_path, "a;b\n"), {"b": DType.U8}, delimiter=";")
    assert isinstance(only["b"], Tensor) and only["b"].shape == (0,)


@pytest.mark.parametrize(
    ("text", "types", "told"),
    [
        ("a,b\n1,2\n3\n", None, "line 3.*2 fields"),
        ("a,b\n1,2,3\n", None, "line 2.*2 fields"),
        ("a,a\n1,2\n", None, "line 1.*each once"),
        ("", None, "line 1.*column names"),
        ('a\n"x\n', None, "line"),
        ('a\n"x"y\n', None, "line 2"),
        ("a\n1\n\nx\n", {"a": "i64"}, "line 4, column 'a'.*i64.*'x'"),
        ("a\n1\n2.5\n", {"a": "i32"}, "line 3, column 'a'"),
        ("a\n1\n300\n", {"a": "u8"}, "line 3, column 'a'.*u8.*'300'"),
        ("a\n1\n" + "9" * 30 + "\n", None, "line 3, column 'a'"),
        ("a\n\n", {"b": "u8"}, "a column 'b'"),
    ],
)
def test_what_does_not_fit_is_told_with_its_line(
    tmp_path: Path, text: str, types: dict[str, str] | None, told: str
) -> None:
    with pytest.raises(FormatError, match=told):
        read_csv(write_csv(tmp_path, text), types)


def test_a_csv_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="UTF-8"):
        read_csv(put(tmp_path, b"a\n\xff\n", "t.csv"))


# -- batches ---------------------------------------------------------------------------------------


def numbers(n: int = 10) -> Dataset:
    return Dataset(Tensor.arange(n).to_dtype("u8"), Tensor.arange(n).mul(10))


def test_batches_cover_the_rows_in_order() -> None:
    loader = DataLoader(numbers(), 4)
    assert [a.to_vec() for a, _ in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(loader) == 3
    short = DataLoader(numbers(), 4, drop_last=True)
    assert [b.to_vec() for _, b in short] == [[0, 10, 20, 30], [40, 50, 60, 70]]
    assert len(short) == 2 and len(DataLoader(numbers(0), 4)) == 0
    assert list(DataLoader(numbers(0), 4)) == []


def test_a_shuffle_repeats_by_seed_and_differs_by_pass() -> None:
    loader, same = (DataLoader(numbers(50), 50, shuffle=True, seed=3) for _ in range(2))
    passes = [next(iter(loader))[1].to_vec() for _ in range(2)]
    assert passes == [next(iter(same))[1].to_vec() for _ in range(2)]
    assert passes[0] != passes[1] and sorted(passes[0]) == sorted(passes[1])
    other = DataLoader(numbers(50), 50, shuffle=True, seed=4)
    assert next(iter(other))[1].to_vec() != passes[0]


def test_rows_stay_together_and_small_until_the_batch() -> None:
    seen = []

    def transform(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        seen.append(x.dtype)
        return x.to_dtype("f32").mul(10.0), y

    for x, y in DataLoader(numbers(), 3, shuffle=True, transform=transform):
        assert x.dtype is DType.F32 and x.to_vec() == y.to_vec()
    assert set(seen) == {DType.U8}


def test_datasets_are_checked_and_cut() -> None:
    assert [t.to_vec() for t in numbers()[2:4].tensors] == [[2, 3], [20, 30]]
    for bad in ((), (Tensor(1.0),), (Tensor([1.0]), Tensor([1.0, 2.0]))):
        with pytest.raises(ShapeError, match="Dataset"):
            Dataset(*bad)
    with pytest.raises(OptionError, match="batch_size"):
        DataLoader(numbers(), 0)
