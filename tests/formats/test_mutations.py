"""5,000 random changes of a small file of each format: our errors or a sound result, no more.

The seed is fixed, so a failure repeats; it prints the bytes that made it.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from candle.dtype import DType
from candle.errors import CandleError
from candle.formats.gguf import GgufFile
from candle.formats.gguf_write import write_gguf
from candle.formats.safetensors import SafetensorsFile
from candle.formats.safetensors_write import save_safetensors
from candle.package.manifest import Embedder, Entry, Manifest
from candle.package.reader import PackageReader
from candle.package.requirements import Requirements
from candle.package.weights import read_weights, weight_entries
from candle.package.writer import write_package

COUNT = 5_000
MOST_MEMORY = 64 << 20  # bytes that a whole run may add to this process
MOST_SECONDS = 2.0  # for a single file
NUMBERS = [0, 1, 2, 7, 0x7F, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, (1 << 64) - 1]
TEXTS = [
    b"{",
    b"}",
    b"[",
    b'"',
    b"-1",
    b"1e9",
    b"9" * 30,
    b"true",
    b"null",
    b"\\u0000",
    b"../",
    b"\0",
]


def mutate(random_: random.Random, data: bytes) -> bytes:
    """One to three changes, of the kinds that break parsers."""
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(data) + 1)
        to = min(len(data), at + random_.choice((1, 2, 4, 8, 16, 100)))
        part = data[at:to]
        width = random_.choice((1, 2, 4, 8))
        new = random_.choice(
            (
                bytes(b ^ (1 << random_.randrange(8)) for b in part[:1]) + part[1:],
                bytes(random_.randrange(256) for _ in part),
                (random_.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, "little"),
                (len(data) + random_.randint(-9, 9)).to_bytes(8, "little", signed=True),
                random_.choice(TEXTS),
                part + part,
                b"",
                data[: random_.randrange(len(data) + 1)][-40:],
            )
        )
        grows = random_.random() < 0.3
        data = data[:at] + new + data[at if grows else at + max(len(new), len(part)) :]
        if random_.random() < 0.1:
            data = data[: random_.randrange(len(data) + 1)]
    return data


def memory() -> int:
    """The most memory this process has had so far, in bytes; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def read_safetensors(path: Path) -> None:
    with SafetensorsFile.open(path) as file:
        for name in file.tensors:
            if name not in file.tensors.foreign:
                assert file.data(name).nbytes == file.tensors[name].nbytes
        assert all(isinstance(v, str) for v in file.metadata.values())


def read_gguf(path: Path) -> None:
    with GgufFile.open(path) as file:
        for key in file.metadata:
            file.metadata[key]
        for name in file.tensors:
            if name not in file.tensors.foreign:
                assert file.data(name).nbytes == file.tensors[name].nbytes


def read_package(path: Path) -> None:
    with PackageReader.open(path) as package:
        package.verify()
        read_weights(package.view("weights.json"), package.view("weights.bin").nbytes)


def make_safetensors(path: Path) -> None:
    tensors = {
        "a.weight": (DType.F32, (2, 3), bytes(range(24))),
        "b": (DType.BF16, (4,), bytes(8)),
        "empty": (DType.I64, (0, 2), b""),
        "é": (DType.U8, (3,), b"xyz"),
    }
    save_safetensors(path, tensors, {"format": "pt", "k": "v"})


def make_gguf(path: Path) -> None:
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.tokens": ["a", "bc", "日本", ""],
        "tokenizer.ggml.scores": [0.0, -1.0, -2.0, -3.0],
        "tokenizer.ggml.token_type": [1, 1, 3, 1],
        "yes": True,
        "bools": [True, False],
        "count": 7,
        "negative": -7,
    }
    tensors = {
        "w": (DType.Q8_0, (2, 32), bytes(68)),
        "n": (DType.F32, (4,), bytes(16)),
        "k": (DType.F16, (1, 2, 3), bytes(12)),
    }
    write_gguf(path, metadata, tensors)


MANIFEST = Manifest(
    "wiki_en",
    "1.0",
    "knowledge-base",
    description="a text",
    requirements=Requirements(cuda=">=11.7", memory="1 GiB", cpu_features=("avx2", "fma")),
    embedder=Embedder("e", "sha256:" + "0" * 64, 384),
)


def make_package(path: Path) -> None:
    tensors = {"a": (DType.F32, (2,), bytes(8)), "b": (DType.Q4_0, (1, 32), bytes(18))}
    write_package(path, MANIFEST, {**weight_entries(tensors), "index/0.bin": b"abc", "e": b""})


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (make_safetensors, read_safetensors),
        (make_gguf, read_gguf),
        (make_package, read_package),
    ],
    ids=["safetensors", "gguf", "candle"],
)
def test_files(make: Callable[[Path], None], read: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "file"
    make(path)
    good = path.read_bytes()
    read(path)
    changes = random.Random(20_240_501)
    refused, before = 0, memory()
    for number in range(COUNT):
        data = mutate(changes, good)
        path.write_bytes(data)
        refused += attempt(read, path, f"change {number}: {data!r}")
    assert refused > COUNT * 0.5
    assert memory() - before < MOST_MEMORY


@pytest.mark.parametrize("part", ["manifest", "weights"])
def test_texts_within_a_package(part: str) -> None:
    """Behind the checksums: what someone who makes a whole package could write there."""
    index = bytes(weight_entries({"a": (DType.F32, (2, 1), bytes(8))})["weights.json"])  # type: ignore[arg-type]
    good = (
        MANIFEST.to_toml() + b'\n[[entries]]\npath = "a"\nsize = 0\nsha256 = "' + b"0" * 64 + b'"\n'
    )

    def read(data: bytes) -> object:
        return read_weights(data, 64) if part == "weights" else Manifest.from_toml(data, "test")

    index = weight_entries({"a": (DType.F32, (2, 1), bytes(8))})["weights.json"]
    manifest = replace(MANIFEST, entries=(Entry("a", 0, "0" * 64),)).to_toml()
    good = manifest if part == "manifest" else index
    assert isinstance(good, bytes)
    read(good)
    changes = random.Random(20_240_502)
    refused, before = 0, memory()
    for number in range(COUNT):
        data = mutate(changes, good)
        refused += attempt(read, data, f"change {number}: {data!r}")
    assert COUNT * 0.3 < refused < COUNT
    assert memory() - before < MOST_MEMORY


def attempt(read: Callable[[Any], object], source: Any, what: str) -> bool:
    """Whether it was refused; any error but ours, or a long time, is a failure."""
    begin = time.process_time()
    try:
        read(source)
        refused = False
    except CandleError:
        refused = True
    except BaseException as error:
        raise AssertionError(f"{type(error).__name__} {error} from {what}") from error
    assert time.process_time() - begin < MOST_SECONDS, what
    return refused
