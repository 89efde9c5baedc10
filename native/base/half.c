/* half.c: f16 conversions in software (IEEE 754 binary16), and the dtype sizes. */
#include "base.h"
#include "../include/candle.h"

float cdl_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 1023u, u;
    if (exponent == 31) {
        u = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x400000u : 0u);
    } else if (exponent) {
        u = sign | (exponent + 112u) << 23 | mantissa << 13;
    } else {
        float f = (float)mantissa * 0x1p-24f; /* subnormal: exact in f32 */
        memcpy(&u, &f, 4);
        u |= sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t cdl_f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 1023u));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds past 65504 */
    if (magnitude < 0x38800000u) {                                  /* subnormal or zero */
        float a;
        memcpy(&a, &magnitude, 4);
        float b = a + 0.5f; /* adds in units of 2^-24, rounding to nearest even */
        uint32_t bits;
        memcpy(&bits, &b, 4);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

int64_t cdl_dtype_block(int32_t dtype) {
    switch (dtype) {
#define CDL_DTYPE(name, block, size) case CDL_##name: return block;
#include "../kernels/dtypes.def"
#undef CDL_DTYPE
    default: return 0;
    }
}

int64_t cdl_dtype_size(int32_t dtype) {
    switch (dtype) {
#define CDL_DTYPE(name, block, size) case CDL_##name: return size;
#include "../kernels/dtypes.def"
#undef CDL_DTYPE
    default: return 0;
    }
}
