/* quant_tile.h: 16 rows of weights against tokens, and the one expression that adds a block.
 *
 * arch/qdot_<isa>.h supplies the integer products; everything in f32 is here, so that decoding,
 * prompt processing and all ISAs add the same numbers in the same order.
 */
#ifndef CDL_QUANT_TILE_H
#define CDL_QUANT_TILE_H
#include "../simd/simd.h"
#include "quant_formats.h"

enum { Q_ROWS = 16, Q_VECTORS = Q_ROWS / CDL_LANES, Q_BLOCKS = 8 };

/* One sub-block of 16 rows: step i holds values 4i to 4i + 3 of each row. */
typedef struct q_tile {
    uint8_t u[8][Q_ROWS][4];
    float s[Q_ROWS];
    union {
        float m[Q_ROWS];      /* MIN */
        int32_t c[2][Q_ROWS]; /* SUB */
    };
} q_tile;

/* Quantised activations: x is about d * q. Rows of `k` bytes, a multiple of 128 padded with zeros;
 * `blocks` = k / 32. Owned by the caller of the kernels. */
typedef struct q_input {
    int64_t k, blocks;
    int8_t *q;
    float *d;      /* [tokens][blocks] */
    float *sum;    /* [tokens][blocks] sum of q, exact */
    int32_t *seed; /* [tokens][blocks][2] what the offset of the format takes off: of the whole block
                      in the first (PLAIN), of each half (SUB) */
} q_input;

/* Sixteen rows of W, `stride` bytes apart; 0 says that all are the first one. */
typedef struct q_sixteen {
    const uint8_t *row;
    int64_t stride;
} q_sixteen;

/* Scales of up to eight sub-blocks, one column of 16 rows each. */
typedef struct q_columns {
    float s[Q_BLOCKS][Q_ROWS], m[Q_BLOCKS][Q_ROWS];
    int32_t c[Q_BLOCKS][2][Q_ROWS];
} q_columns;

#if defined(__clang__)
#define CDL_NO_UNROLL _Pragma("clang loop unroll(disable) vectorize(disable)")
#else
#define CDL_NO_UNROLL
#endif

#if CDL_ISA_NUMBER == CDL_ISA_avx512vnni
#include "../arch/qdot_avx512vnni.h"
#elif CDL_ISA_NUMBER == CDL_ISA_avx2
#include "../arch/qdot_avx2.h"
#elif CDL_ISA_NUMBER == CDL_ISA_neon
#include "../arch/qdot_neon.h"
#else
#include "../arch/qdot_scalar.h"
#endif

/* -- scales ------------------------------------------------------------------------------------------- */

/* The 32-bit words `at` bytes into rows r to r + CDL_LANES. */
CDL_INLINE vi q_words(const uint8_t *const four[4], int64_t stride, int32_t r, int64_t at) {
    vi v;
    for (int32_t i = 0; i < CDL_LANES; i++) v[i] = (int32_t)q_u32(four[(r + i) / 4] + (r + i) % 4 * stride + at);
    return v;
}

/* The low, and the high, 16 bits of each lane as f16. */
CDL_INLINE vf q_low_half(vi v) {
    uint16_t h[CDL_LANES];
    vh low = __builtin_convertvector(v, vh);
    memcpy(h, &low, sizeof h);
    return v_load_f16(h);
}
CDL_INLINE vf q_high_half(vi v) { return q_low_half((vi)((vu)v >> 16)); }

/* Q4_K and Q5_K: the eight 6-bit scales and minima are taken four to a word. */
CDL_INLINE void q_columns_six_bits(const uint8_t *const four[4], int64_t stride, int32_t r, q_columns *out) {
    vi w[4];
    for (int32_t i = 0; i < 4; i++) w[i] = q_words(four, stride, r, 4 * i);
    vf d = q_low_half(w[0]), dmin = -q_high_half(w[0]);
    const vi s[2] = {w[1] & 0x3f3f3f3f, (w[3] & 0x0f0f0f0f) | (w[1] >> 2 & 0x30303030)};
    const vi m[2] = {w[2] & 0x3f3f3f3f, (w[3] >> 4 & 0x0f0f0f0f) | (w[2] >> 2 & 0x30303030)};
    for (int32_t j = 0; j < 8; j++) {
        v_store(out->s[j] + r, d * vi_to_v(s[j / 4] >> j % 4 * 8 & 255));
        v_store(out->m[j] + r, dmin * vi_to_v(m[j / 4] >> j % 4 * 8 & 255));
    }
}

CDL_INLINE void q_columns_q6k(const uint8_t *const four[4], int64_t stride, int32_t r, q_columns *out) {
    vf d = q_high_half(q_words(four, stride, r, 206));
    for (int32_t j = 0; j < 8; j++) v_store(out->s[j] + r, d);
    for (int32_t j = 0; j < 16; j += 4) {
        vi w = q_words(four, stride, r, 192 + j);
        for (int32_t i = 0; i < 4; i++) vi_store(out->c[(j + i) / 2][i % 2] + r, w << (24 - 8 * i) >> 24);
    }
}

/* Of sub-blocks [b, b + count), b a multiple of eight. */
CDL_INLINE void q_columns_of(int32_t dtype, q_sixteen rows, int64_t b, int64_t count, q_columns *out) {
    const uint8_t *four[4];
    for (int32_t i = 0; i < 4; i++)
        four[i] = rows.row + 4 * i * rows.stride + b / (q_block(dtype) / Q_SUB_BLOCK) * q_size(dtype);
    for (int32_t r = 0; r < Q_ROWS; r += CDL_LANES) {
        if (dtype == CDL_Q6_K) {
            q_columns_q6k(four, rows.stride, r, out);
        } else if (q_block(dtype) == 256) {
            q_columns_six_bits(four, rows.stride, r, out);
        } else {
            CDL_NO_UNROLL
            for (int64_t i = 0; i < count; i++) {
                vi w = q_words(four, rows.stride, r, i * q_size(dtype));
                v_store(out->s[i] + r, q_low_half(w));
                if (q_shape(dtype) == Q_MIN) v_store(out->m[i] + r, q_high_half(w));
            }
        }
    }
}

/* -- products ------------------------------------------------------------------------------------------ */

/* What a block adds: s, m per row; isum = sum of integers times q; sum and d of the activations. */
CDL_INLINE vf q_term(int32_t shape, vf s, vf m, vi isum, float sum, float d) {
    vf t = s * vi_to_v(isum);
    if (shape == Q_MIN) t = t + m * v_set1(sum);
    return t * v_set1(d);
}

/* The share of sub-blocks [b, b + step) in the next 16 rows, which lie `ahead` bytes on: fetched in the
 * order of memory, since 16 streams with a stride are more than the hardware follows. */
CDL_INLINE void q_fetch(int32_t dtype, const uint8_t *row, int64_t ahead, int64_t b, int32_t step) {
    const int64_t bytes = Q_ROWS * step * q_size(dtype) / (q_block(dtype) / Q_SUB_BLOCK);
    uintptr_t at = (uintptr_t)row + (uintptr_t)ahead + (uintptr_t)(b / step * bytes);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void *)(at + (uintptr_t)i), 0, 2);
}

/* Few tokens: y[16] of one token, straight from the blocks. `ahead`: bytes from these rows to those of
 * the next call, which are fetched meanwhile. */
CDL_INLINE void q_group(int32_t dtype, q_sixteen rows, int64_t ahead, int64_t blocks, const q_input *x, int64_t t, float *y) {
    vf acc[Q_VECTORS];
    for (int32_t v = 0; v < Q_VECTORS; v++) acc[v] = v_zero();
    const float *d = x->d + t * x->blocks, *sum = x->sum + t * x->blocks;
    for (int64_t at = 0; at < blocks; at += Q_BLOCKS) {
        int64_t many = CDL_MIN(blocks - at, Q_BLOCKS);
        q_columns scale;
        q_columns_of(dtype, rows, at, many, &scale);
        for (int64_t i = 0; i < many; i += q_step(dtype)) {
            vi isum[Q_STEP][Q_VECTORS];
            int32_t count = (int32_t)CDL_MIN(many - i, q_step(dtype));
            q_fetch(dtype, rows.row, ahead, at + i, q_step(dtype));
            q_rows(dtype, rows, at + i, count, x, t, &scale, i, isum);
            for (int32_t j = 0; j < count; j++)
                for (int32_t v = 0; v < Q_VECTORS; v++) {
                    int32_t r = v * CDL_LANES;
                    acc[v] = acc[v] + q_term(q_shape(dtype), v_load(scale.s[i + j] + r), v_load(scale.m[i + j] + r),
                                             isum[j][v], sum[at + i + j], d[at + i + j]);
                }
        }
    }
    for (int32_t v = 0; v < Q_VECTORS; v++) v_store(y + v * CDL_LANES, acc[v]);
}

/* Many tokens: unpacks 16 rows once ... */
CDL_INLINE void q_unpack(int32_t dtype, q_sixteen rows, int64_t blocks, q_tile *tile) {
    for (int64_t at = 0; at < blocks; at += Q_BLOCKS) {
        int64_t count = CDL_MIN(blocks - at, Q_BLOCKS);
        q_columns scale;
        q_columns_of(dtype, rows, at, count, &scale);
        for (int64_t i = 0; i < count; i++) {
            q_tile *one = tile + at + i;
            memcpy(one->s, scale.s[i], sizeof one->s);
            if (q_shape(dtype) == Q_MIN) memcpy(one->m, scale.m[i], sizeof one->m);
            if (q_shape(dtype) == Q_SUB) memcpy(one->c, scale.c[i], sizeof one->c);
        }
        for (int64_t i = 0; i < count; i += Q_PACK)
            q_pack(dtype, rows, at + i, (int32_t)CDL_MIN(count - i, Q_PACK), tile + at + i);
    }
}

/* ... for all tokens, `count` (a constant) at a time: y[count][16]. */
CDL_INLINE void q_tokens(int32_t dtype, const q_tile *tile, int64_t blocks, const q_input *x, int64_t t, int32_t count, float *y) {
    vf acc[Q_TOKENS][Q_VECTORS];
    for (int32_t i = 0; i < count; i++)
        for (int32_t v = 0; v < Q_VECTORS; v++) acc[i][v] = v_zero();
    for (int64_t b = 0; b < blocks; b++) {
        vi isum[Q_TOKENS][Q_VECTORS];
        q_dots(dtype, tile + b, x, t, b, count, isum);
        for (int32_t i = 0; i < count; i++) {
            float d = x->d[(t + i) * x->blocks + b], sum = x->sum[(t + i) * x->blocks + b];
            for (int32_t v = 0; v < Q_VECTORS; v++) {
                int32_t r = v * CDL_LANES;
                acc[i][v] = acc[i][v] + q_term(q_shape(dtype), v_load(tile[b].s + r), v_load(tile[b].m + r), isum[i][v], sum, d);
            }
        }
    }
    for (int32_t i = 0; i < count; i++)
        for (int32_t v = 0; v < Q_VECTORS; v++) v_store(y + i * Q_ROWS + v * CDL_LANES, acc[i][v]);
}
#endif
