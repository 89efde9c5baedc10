/* base.h: what a freestanding build needs from libc, under our own names, and checked arithmetic. */
#ifndef CDL_BASE_H
#define CDL_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CDL_MIN(a, b) ((a) < (b) ? (a) : (b))
#define CDL_MAX(a, b) ((a) > (b) ? (a) : (b))
#define CDL_INLINE static inline __attribute__((always_inline, unused))

/* false on overflow; never undefined. */
CDL_INLINE bool cdl_mul_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_mul_overflow(a, b, out); }
CDL_INLINE bool cdl_add_ok(int64_t a, int64_t b, int64_t *out) { return !__builtin_add_overflow(a, b, out); }

/* f16 and bf16 in software: exact, round to nearest even, NaN stays NaN. */
float cdl_f16_to_f32(uint16_t h);
uint16_t cdl_f32_to_f16(float f);
CDL_INLINE float cdl_bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
CDL_INLINE uint16_t cdl_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u >> 16) | 64u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Elements in a block and bytes a block takes; 0 for an unknown dtype (kernels/dtypes.def). */
int64_t cdl_dtype_block(int32_t dtype);
int64_t cdl_dtype_size(int32_t dtype);
#endif
