"""Element types: names, byte sizes, block sizes and promotion. Plain values, no data.

The numbers are those of `enum cdl_dtype` in `native/include/candle.h`; a test compares them.
Block types store `block` elements in `size` bytes and exist only as weights: they are read by
`linear`, `embedding` and `dequantize`, never by arithmetic.
"""

from __future__ import annotations

from enum import Enum

from .errors import DTypeError


class DType(Enum):
    """An element type. Values: (number, name, elements a block, bytes a block, kind)."""

    F32 = (0, "f32", 1, 4, "float")
    F64 = (1, "f64", 1, 8, "float")
    F16 = (2, "f16", 1, 2, "float")
    BF16 = (3, "bf16", 1, 2, "float")
    I64 = (4, "i64", 1, 8, "int")
    I32 = (5, "i32", 1, 4, "int")
    U32 = (6, "u32", 1, 4, "int")
    U8 = (7, "u8", 1, 1, "int")
    BOOL = (8, "bool", 1, 1, "bool")
    # GGUF blocks, as they lie in the file
    Q8_0 = (16, "q8_0", 32, 34, "block")
    Q4_0 = (17, "q4_0", 32, 18, "block")
    Q4_1 = (18, "q4_1", 32, 20, "block")
    Q5_0 = (19, "q5_0", 32, 22, "block")
    Q5_1 = (20, "q5_1", 32, 24, "block")
    Q4_K = (21, "q4_k", 256, 144, "block")
    Q5_K = (22, "q5_k", 256, 176, "block")
    Q6_K = (23, "q6_k", 256, 210, "block")
    # own layout: f32 rows in panels of 16, [rows/16][k][16], the last panel padded with zeros
    F32X16 = (32, "f32x16", 1, 4, "block")

    number: int
    label: str
    block: int
    size: int
    kind: str

    def __init__(self, number: int, label: str, block: int, size: int, kind: str) -> None:
        self.number = number
        self.label = label
        self.block = block
        self.size = size
        self.kind = kind

    def __repr__(self) -> str:
        return f"DType.{self.name}"

    def __str__(self) -> str:
        return self.label

    # identity hash: Enum's own hash is a Python call on the hot path
    __hash__ = object.__hash__

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def is_block(self) -> bool:
        return self.kind == "block"

    def nbytes(self, count: int) -> int:
        """Bytes that `count` elements take; `count` must be a whole number of blocks."""
        if count % self.block:
            raise DTypeError("nbytes", f"a multiple of {self.block} elements of {self}", count)
        return count // self.block * self.size

    @staticmethod
    def of(value: DType | str) -> DType:
        """`DType` itself, or its name: `DType.of("f16")`."""
        if isinstance(value, DType):
            return value
        found = _BY_NAME.get(value) if isinstance(value, str) else None
        if found is None:
            raise DTypeError("dtype", f"one of {', '.join(_BY_NAME)}", repr(value))
        return found


_BY_NAME = {d.label: d for d in DType}
_RANK = [DType.BOOL, DType.U8, DType.U32, DType.I32, DType.I64, DType.F16, DType.F32, DType.F64]


def promote(op: str, a: DType, b: DType) -> DType:
    """The type in which two operands meet: the wider; f16 with bf16 gives f32; u32 with i32, i64.

    Raises DTypeError for block types, which take no arithmetic.
    """
    if a is b:
        if a.is_block:
            raise DTypeError(op, "an arithmetic dtype", a, "dequantize() first")
        return a
    if a.is_block or b.is_block:
        raise DTypeError(op, "arithmetic dtypes", f"{a} and {b}", "dequantize() first")
    pair = {a, b}
    if pair == {DType.F16, DType.BF16}:
        return DType.F32
    if pair == {DType.U32, DType.I32}:
        return DType.I64
    if DType.BF16 in pair:
        other = (pair - {DType.BF16}).pop()
        return other if other in (DType.F32, DType.F64) else DType.BF16
    return max(a, b, key=_RANK.index)
