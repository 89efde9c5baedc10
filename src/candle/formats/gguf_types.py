"""The numbers that GGUF gives to element types and to kinds of metadata value."""

from __future__ import annotations

from typing import NamedTuple

from ..dtype import DType


class GgmlType(NamedTuple):
    """An element type: `block` elements take `size` bytes; `dtype` is ours, if we have it."""

    name: str
    block: int
    size: int
    dtype: DType | None = None


def _ours(name: str, dtype: DType) -> GgmlType:
    return GgmlType(name, dtype.block, dtype.size, dtype)


# 4, 5, 31 to 33 and 36 to 38 were given to types that GGUF has since dropped
GGML_TYPES: dict[int, GgmlType] = {
    0: _ours("F32", DType.F32),
    1: _ours("F16", DType.F16),
    2: _ours("Q4_0", DType.Q4_0),
    3: _ours("Q4_1", DType.Q4_1),
    6: _ours("Q5_0", DType.Q5_0),
    7: _ours("Q5_1", DType.Q5_1),
    8: _ours("Q8_0", DType.Q8_0),
    9: GgmlType("Q8_1", 32, 36),
    10: GgmlType("Q2_K", 256, 84),
    11: GgmlType("Q3_K", 256, 110),
    12: _ours("Q4_K", DType.Q4_K),
    13: _ours("Q5_K", DType.Q5_K),
    14: _ours("Q6_K", DType.Q6_K),
    15: GgmlType("Q8_K", 256, 292),
    16: GgmlType("IQ2_XXS", 256, 66),
    17: GgmlType("IQ2_XS", 256, 74),
    18: GgmlType("IQ3_XXS", 256, 98),
    19: GgmlType("IQ1_S", 256, 50),
    20: GgmlType("IQ4_NL", 32, 18),
    21: GgmlType("IQ3_S", 256, 110),
    22: GgmlType("IQ2_S", 256, 82),
    23: GgmlType("IQ4_XS", 256, 136),
    24: GgmlType("I8", 1, 1),
    25: GgmlType("I16", 1, 2),
    26: _ours("I32", DType.I32),
    27: _ours("I64", DType.I64),
    28: _ours("F64", DType.F64),
    29: GgmlType("IQ1_M", 256, 56),
    30: _ours("BF16", DType.BF16),
    34: GgmlType("TQ1_0", 256, 54),
    35: GgmlType("TQ2_0", 256, 66),
    39: GgmlType("MXFP4", 32, 17),
    40: GgmlType("NVFP4", 64, 36),
    41: GgmlType("Q1_0", 128, 18),
}
GGML_NUMBERS = {t.dtype: number for number, t in GGML_TYPES.items() if t.dtype is not None}

# metadata: number -> (name, struct format); bool, string and array are read by hand
VALUE_TYPES: dict[int, tuple[str, str]] = {
    0: ("u8", "B"),
    1: ("i8", "b"),
    2: ("u16", "H"),
    3: ("i16", "h"),
    4: ("u32", "I"),
    5: ("i32", "i"),
    6: ("f32", "f"),
    7: ("bool", ""),
    8: ("str", ""),
    9: ("array", ""),
    10: ("u64", "Q"),
    11: ("i64", "q"),
    12: ("f64", "d"),
}
VALUE_NUMBERS = {name: number for number, (name, _) in VALUE_TYPES.items()}
BOOL, STR, ARRAY = VALUE_NUMBERS["bool"], VALUE_NUMBERS["str"], VALUE_NUMBERS["array"]
