/* quant_formats.h: what the bytes of a block mean. Layouts are GGUF's; docs/reference/block-formats.md
 * has the pictures and the arithmetic.
 *
 * Every format is seen as sub-blocks of 32 values. A value is made of an unsigned integer u of at
 * most 8 bits and of one of three shapes of scale:
 *
 *   PLAIN   w = s * (u - offset)               Q8_0 Q4_0 Q5_0
 *   MIN     w = s * u + m                      Q4_1 Q5_1 Q4_K Q5_K   (s, m exact products in f32)
 *   SUB     w = s * (c * (u - offset))         Q6_K: c an int8 for each 16 values
 */
#ifndef CDL_QUANT_FORMATS_H
#define CDL_QUANT_FORMATS_H
#include "kernel.h"

enum { Q_PLAIN, Q_MIN, Q_SUB };
enum { Q_SUB_BLOCK = 32 };

/* X(name, shape, offset, tile): formats of one `tile` are alike once unpacked. */
#define CDL_QUANTS(X)                                                                              \
    X(Q8_0, Q_PLAIN, 128, Q8_0)                                                                    \
    X(Q4_0, Q_PLAIN, 8, Q4_0)                                                                      \
    X(Q4_1, Q_MIN, 0, Q4_1)                                                                        \
    X(Q5_0, Q_PLAIN, 16, Q5_0)                                                                     \
    X(Q5_1, Q_MIN, 0, Q5_1)                                                                        \
    X(Q4_K, Q_MIN, 0, Q4_1)                                                                        \
    X(Q5_K, Q_MIN, 0, Q5_1)                                                                        \
    X(Q6_K, Q_SUB, 32, Q6_K)
#define CDL_QUANT_TILES(X) X(Q8_0) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q6_K)

CDL_INLINE int32_t q_shape(int32_t dtype) {
    switch (dtype) {
#define CDL_ROW(name, shape, offset, tile) case CDL_##name: return shape;
        CDL_QUANTS(CDL_ROW)
#undef CDL_ROW
    default: return -1;
    }
}

CDL_INLINE int32_t q_offset(int32_t dtype) {
    switch (dtype) {
#define CDL_ROW(name, shape, offset, tile) case CDL_##name: return offset;
        CDL_QUANTS(CDL_ROW)
#undef CDL_ROW
    default: return 0;
    }
}

/* Values and bytes of a whole block, known when the dtype is. */
CDL_INLINE int64_t q_block(int32_t dtype) {
    switch (dtype) {
#define CDL_DTYPE(name, block, size) case CDL_##name: return block;
#include "dtypes.def"
#undef CDL_DTYPE
    default: return 0;
    }
}

CDL_INLINE int64_t q_size(int32_t dtype) {
    switch (dtype) {
#define CDL_DTYPE(name, block, size) case CDL_##name: return size;
#include "dtypes.def"
#undef CDL_DTYPE
    default: return 0;
    }
}

/* The block that holds sub-block b of a row, and the number of the sub-block inside it. */
CDL_INLINE const uint8_t *q_at(int32_t dtype, const uint8_t *row, int64_t b) {
    return row + b / (q_block(dtype) / Q_SUB_BLOCK) * q_size(dtype);
}
CDL_INLINE int32_t q_inside(int32_t dtype, int64_t b) { return (int32_t)(b % (q_block(dtype) / Q_SUB_BLOCK)); }

CDL_INLINE uint16_t q_u16(const uint8_t *p) {
    uint16_t u;
    memcpy(&u, p, sizeof u);
    return u;
}
CDL_INLINE uint32_t q_u32(const uint8_t *p) {
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

/* Where the nibbles and the fifth bits of the 32-value formats start; 0: no fifth bits. */
CDL_INLINE int32_t q_nibbles_at(int32_t dtype) {
    switch (dtype) {
    case CDL_Q4_0: return 2;
    case CDL_Q4_1: return 4;
    case CDL_Q5_0: return 6;
    case CDL_Q5_1: return 8;
    case CDL_Q4_K: return 16;
    case CDL_Q5_K: return 48;
    default: return 0;
    }
}
CDL_INLINE int32_t q_fifth_at(int32_t dtype) {
    switch (dtype) {
    case CDL_Q5_0: return 2;
    case CDL_Q5_1: return 4;
    case CDL_Q5_K: return 16;
    default: return 0;
    }
}

/* The integers u of sub-block b, in order. */
CDL_INLINE void q_integers(int32_t dtype, const uint8_t *row, int64_t b, uint8_t u[32]) {
    const uint8_t *p = q_at(dtype, row, b), *nibbles = p + q_nibbles_at(dtype), *fifth = p + q_fifth_at(dtype);
    int32_t j = q_inside(dtype, b);
    switch (dtype) {
    case CDL_Q8_0:
        for (int32_t i = 0; i < 32; i++) u[i] = p[2 + i] ^ 0x80;
        return;
    case CDL_Q4_0:
    case CDL_Q4_1:
    case CDL_Q5_0:
    case CDL_Q5_1: {
        uint32_t high = q_fifth_at(dtype) ? q_u32(fifth) : 0;
        for (int32_t i = 0; i < 16; i++) {
            u[i] = (uint8_t)((nibbles[i] & 15) | (high >> i & 1) << 4);
            u[i + 16] = (uint8_t)(nibbles[i] >> 4 | (high >> (i + 16) & 1) << 4);
        }
        return;
    }
    case CDL_Q4_K:
    case CDL_Q5_K:
        nibbles += j / 2 * 32;
        for (int32_t i = 0; i < 32; i++) {
            uint8_t high = q_fifth_at(dtype) ? fifth[i] >> j & 1 : 0;
            u[i] = (uint8_t)((nibbles[i] >> j % 2 * 4 & 15) | high << 4);
        }
        return;
    case CDL_Q6_K: { /* halves of 128 values: 64 bytes of low nibbles, 32 of high pairs */
        const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;
        int32_t pair = j % 4;
        for (int32_t i = 0; i < 32; i++)
            u[i] = (uint8_t)((low[i] >> pair / 2 * 4 & 15) | (high[i] >> pair * 2 & 3) << 4);
        return;
    }
    default: return;
    }
}

/* Scales of one sub-block. */
typedef struct q_scale {
    float s, m;   /* m: MIN only */
    int32_t c[2]; /* SUB only: for values 0 to 15 and 16 to 31 */
} q_scale;

/* The 6-bit scale and minimum of sub-block j, from the 12 bytes of Q4_K and Q5_K. */
CDL_INLINE void q_six_bits(const uint8_t *p, int32_t j, int32_t *scale, int32_t *min) {
    if (j < 4) {
        *scale = p[j] & 63;
        *min = p[j + 4] & 63;
    } else {
        *scale = (p[j + 4] & 15) | (p[j - 4] >> 6) << 4;
        *min = p[j + 4] >> 4 | (p[j] >> 6) << 4;
    }
}

CDL_INLINE q_scale q_scales(int32_t dtype, const uint8_t *row, int64_t b) {
    const uint8_t *p = q_at(dtype, row, b);
    int32_t j = q_inside(dtype, b), scale, min;
    switch (dtype) {
    case CDL_Q4_1:
    case CDL_Q5_1: return (q_scale){.s = cdl_f16_to_f32(q_u16(p)), .m = cdl_f16_to_f32(q_u16(p + 2))};
    case CDL_Q4_K:
    case CDL_Q5_K:
        q_six_bits(p + 4, j, &scale, &min);
        return (q_scale){.s = cdl_f16_to_f32(q_u16(p)) * (float)scale,
                         .m = -(cdl_f16_to_f32(q_u16(p + 2)) * (float)min)};
    case CDL_Q6_K:
        return (q_scale){.s = cdl_f16_to_f32(q_u16(p + 208)),
                         .c = {(int8_t)p[192 + 2 * j], (int8_t)p[193 + 2 * j]}};
    default: return (q_scale){.s = cdl_f16_to_f32(q_u16(p))};
    }
}
#endif
