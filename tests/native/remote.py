"""The kernel library in another process: native/tests/stepper.c, perhaps under an emulator.

Takes the place of the ctypes library in harness.py when CANDLE_TEST_RUNNER holds its command, so
the same tests run on a CPU that Python does not run on.
"""

from __future__ import annotations

import ctypes
import shlex
import struct
import subprocess
from typing import Any


def _bounds(array: Any) -> tuple[int, int]:
    """First and last address of an array's elements, whatever its strides."""
    low = high = array.ctypes.data
    if array.size:
        for length, stride in zip(array.shape, array.strides, strict=True):
            low += min(0, (length - 1) * stride)
            high += max(0, (length - 1) * stride)
        high += array.itemsize
    return low, high


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Overlapping ranges as one: views of the same memory stay views of the same memory."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


class Remote:
    """The functions of the library that the tests call."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._threads = 1
        self._write(b"n")
        ops, isas = self._read(self._read_int()).decode().split("\n")
        self._ops, self._isas = ops.split(), isas
        self.cdl_threads_set(2)

    def _write(self, data: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def _read(self, count: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(count)
        if len(data) != count:
            raise RuntimeError(f"the stepper ended with status {self._process.wait()}")
        return data

    def _read_int(self) -> int:
        return int(struct.unpack("=i", self._read(4))[0])

    def cdl_op_count(self) -> int:
        return len(self._ops)

    def cdl_op_name(self, op: int) -> bytes:
        return self._ops[op].encode()

    def cdl_isa_list(self) -> bytes:
        return self._isas.encode()

    def cdl_isa_set(self, name: bytes) -> int:
        self._write(b"i" + struct.pack("=i", len(name)) + name)
        return self._read_int()

    def cdl_threads(self) -> int:
        return self._threads

    def cdl_threads_set(self, n: int) -> int:
        self._write(b"t" + struct.pack("=i", n))
        self._threads = n
        return self._read_int()

    def step(self, op: int, arrays: list[Any], layouts: list[bytes], params: bytes) -> int:
        """One cdl_step; arrays (None: absent) are sent, and read back into their own memory."""
        ranges = _merge([_bounds(a) for a in arrays if a is not None])
        data = b"s" + struct.pack("=iii", op, len(arrays), len(ranges)) + params
        for low, high in ranges:
            data += struct.pack("=Q", high - low) + ctypes.string_at(low, high - low)
        for array, layout in zip(arrays, layouts, strict=True):
            region, offset = -1, 0
            if array is not None:
                at = array.ctypes.data
                region = max(k for k, (low, _) in enumerate(ranges) if low <= at)
                offset = at - ranges[region][0]
            data += struct.pack("=iq", region, offset) + layout
        self._write(data)
        status = self._read_int()
        for low, high in ranges:
            ctypes.memmove(low, self._read(high - low), high - low)
        return status
