"""Where a tensor lives: a closed union, matched on, not a class hierarchy to extend."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

from .arguments import as_int, require
from .errors import DeviceError


class DeviceKind(Enum):
    """The kinds of device that exist."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    WEBGPU = "webgpu"


class Device:
    """A device: `Device.cpu()`, `Device.cuda(0)`, `Device.metal(0)`, `Device.webgpu(0)`. Frozen.

    Written out, since `dataclasses` would be a fifth of what importing the engine takes.
    """

    __slots__ = ("index", "kind")
    __match_args__ = ("kind", "index")

    kind: DeviceKind
    index: int

    def __init__(self, kind: DeviceKind, index: int = 0) -> None:
        require("device", "a DeviceKind", DeviceKind, kind)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "index", as_int("device", index))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a device is frozen: {name}")

    def __reduce__(self) -> tuple[type[Device], tuple[DeviceKind, int]]:
        return Device, (self.kind, self.index)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Device) and self.kind is other.kind
        return same and self.index == other.index  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.kind, self.index))

    def __repr__(self) -> str:
        return f"Device({self.kind}, {self.index})"

    @staticmethod
    def cpu() -> Device:
        return CPU

    @staticmethod
    def cuda(index: int = 0) -> Device:
        return Device(DeviceKind.CUDA, index)

    @staticmethod
    def metal(index: int = 0) -> Device:
        return Device(DeviceKind.METAL, index)

    @staticmethod
    def webgpu(index: int = 0) -> Device:
        return Device(DeviceKind.WEBGPU, index)

    @staticmethod
    def of(value: Device | str) -> Device:
        """A `Device` itself, or its text: `"cpu"`, `"cuda:1"`. Raises DeviceError."""
        if isinstance(value, Device):
            return value
        name, _, number = value.partition(":") if isinstance(value, str) else ("", "", "")
        known = {k.value for k in DeviceKind}
        if name not in known or (number and not number.isascii()) or not (number or "0").isdigit():
            raise DeviceError("device", f"one of {', '.join(sorted(known))}, ':n' after it", value)
        return Device(DeviceKind(name), int(number or 0))

    def require(self) -> Device:
        """This device, if this build has it. Raises DeviceError: so far only the CPU exists."""
        match self.kind:
            case DeviceKind.CPU if self.index == 0:
                return self
            case _:
                raise DeviceError("device", "cpu (the only device of this build)", self)

    def __str__(self) -> str:
        return self.kind.value if self.kind is DeviceKind.CPU else f"{self.kind.value}:{self.index}"


CPU = Device(DeviceKind.CPU)
