"""PyTorch checkpoints as data: both layouts, strides, and what is refused."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from candle import Tensor
from candle.errors import CandleError, TorchFileError
from candle.formats import TorchFile
from candle.weights import Weights


class Stored:
    """Stands for a torch storage: the pickler writes a persistent id for it."""

    def __init__(self, key: str, kind: str, data: bytes, count: int) -> None:
        self.key, self.kind, self.data, self.count = key, kind, data, count


class Global:
    """Pickled as a name."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Call:
    """Pickled as a call."""

    def __init__(self, maker: Global, *args: Any) -> None:
        self.maker, self.args = maker, args


class Writer(pickle._Pickler):  # the Python one: names need no modules to be there
    """Writes what PyTorch writes."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Stored):
            return ("storage", Global("torch", value.kind), value.key, "cpu", value.count)
        return None

    def save_global_name(self, value: Global) -> None:
        self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        self.memoize(value)

    def save_call(self, value: Call) -> None:
        self.save(value.maker)
        self.save(value.args)
        self.write(pickle.REDUCE)
        self.memoize(value)

    dispatch[Global] = save_global_name
    dispatch[Call] = save_call


def pickled(value: Any) -> bytes:
    stream = io.BytesIO()
    Writer(stream, 2).dump(value)
    return stream.getvalue()


def tensor(stored: Stored, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Call:
    maker = Global("torch._utils", "_rebuild_tensor_v2")
    hooks = Call(Global("collections", "OrderedDict"))
    return Call(maker, stored, offset, shape, strides, False, hooks)


NUMBERS = Stored("0", "FloatStorage", struct.pack("<12f", *range(12)), 12)
COUNTS = Stored("1", "LongStorage", struct.pack("<2q", 7, -1), 2)


def state() -> dict[str, Any]:
    return {
        "conv.weight": tensor(NUMBERS, 1, (2, 3), (1, 4)),
        "inner": {"steps": tensor(COUNTS, 0, (), ()), "epoch": 3},
    }


def zipped(value: Any, storages: tuple[Stored, ...] = (NUMBERS, COUNTS)) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("model/data.pkl", pickled(value))
        archive.writestr("model/byteorder", "little")
        for stored in storages:
            archive.writestr(f"model/data/{stored.key}", stored.data)
    return stream.getvalue()


def legacy(value: Any, storages: tuple[Stored, ...] = (NUMBERS, COUNTS)) -> bytes:
    facts = {"protocol_version": 1001, "little_endian": True}
    parts = [0x1950A86A20F9469CFC6C, 1001, facts, value, [s.key for s in storages]]
    data = [struct.pack("<q", s.count) + s.data for s in storages]
    return b"".join([*map(pickled, parts), *data])


LAYOUTS = [zipped, legacy]


def opened(path: Path, data: bytes) -> Weights:
    path.write_bytes(data)
    return Weights.open(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_are_windows_with_strides(layout: Callable[..., bytes], tmp_path: Path) -> None:
    """burn#5383: strides ignored, weights scrambled."""
    weights = opened(tmp_path / "m.pth", layout(state()))
    assert list(weights) == ["conv.weight", "inner.steps"]
    assert weights.get("conv.weight").to_vec() == [[1, 5, 9], [2, 6, 10]]
    assert weights.pp("inner").get("steps").item() == 7
    assert weights.metadata == {"inner.epoch": 3}


def test_the_other_dtypes_are_named(tmp_path: Path) -> None:
    odd = Stored("0", "ShortStorage", b"\1\0", 1)
    weights = opened(tmp_path / "m.pt", zipped({"a": tensor(odd, 0, (1,), (1,))}, (odd,)))
    with pytest.raises(TorchFileError, match="ShortStorage"):
        weights.get("a")


def test_code_is_named_and_not_run(tmp_path: Path) -> None:
    ran: list[int] = []
    evil = Call(Global("os", "system"), "echo no")
    for layout in LAYOUTS:
        with pytest.raises(TorchFileError, match=r"os\.system"):
            opened(tmp_path / "m.pth", layout({"a": evil}))
    assert ran == []


def bomb() -> Any:
    value: Any = {}
    for _ in range(15):
        value = {str(k): value for k in range(50)}
    return value


BAD: dict[str, Callable[[], Any]] = {
    "beyond its storage": lambda: {"a": tensor(NUMBERS, 8, (2, 3), (3, 1))},
    "strides beyond": lambda: {"a": tensor(NUMBERS, 0, (2,), (12,))},
    "negative strides": lambda: {"a": tensor(NUMBERS, 3, (2,), (-1,))},
    "huge": lambda: {"a": tensor(NUMBERS, 0, (1 << 61, 8), (0, 0))},
    "no such storage": lambda: {"a": tensor(Stored("9", "FloatStorage", b"", 1), 0, (1,), (1,))},
    "a storage of no type": lambda: {"a": tensor(Stored("0", "Nonsense", b"", 1), 0, (1,), (1,))},
    "too few arguments": lambda: {"a": Call(Global("torch._utils", "_rebuild_tensor_v2"), 1)},
    "shared without end": bomb,
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_does_not_fit_is_refused(
    name: str, layout: Callable[..., bytes], tmp_path: Path
) -> None:
    with pytest.raises(TorchFileError):
        opened(tmp_path / "m.pth", layout(BAD[name]()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mutations_are_refused_or_read(layout: Callable[..., bytes], tmp_path: Path) -> None:
    import random

    whole, path, draw = layout(state()), tmp_path / "m.pth", random.Random(5)
    refused = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        cut = draw.randrange(len(data)) if draw.random() < 0.2 else len(data)
        path.write_bytes(data[:cut])
        try:
            with TorchFile.open(path) as file:
                for tensor_name in file.tensors:
                    assert len(file.data(tensor_name)) >= 0
        except CandleError:
            refused += 1
    assert refused > 300


def test_what_it_is_not_is_said(tmp_path: Path) -> None:
    with pytest.raises(TorchFileError, match="an HTML page"):
        opened(tmp_path / "m.pt", b"<!doctype html><p>no")
    with pytest.raises(TorchFileError, match="empty"):
        opened(tmp_path / "m.pt", b"")


def test_an_ordered_dict_and_a_parameter_are_what_they_hold(tmp_path: Path) -> None:
    parameter = Call(
        Global("torch._utils", "_rebuild_parameter"), tensor(NUMBERS, 0, (2,), (1,)), True, {}
    )
    weights = opened(tmp_path / "m.bin", zipped(OrderedDict(a=parameter)))
    assert isinstance(weights.get("a"), Tensor) and weights.get("a").to_vec() == [0, 1]
