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

/* Quantised activations: x is about d * q. Rows of `k` bytes, a multiple of 64 padded with zeros;
 * `blocks` = k / 32. Owned by the caller of the kernels. */
typedef struct q_input {
    int64_t k, blocks;
    int8_t *q;
    float *d;      /* [tokens][blocks] */
    float *sum;    /* [tokens][blocks] sum of q, exact */
    int32_t *seed; /* [tokens][blocks][2] what the offset of the format takes off: of the whole block
                      in the first (PLAIN), of each half (SUB) */
} q_input;

/* What a block adds: s, m per row; isum = sum of integers times q; sum and d of the activations. */
CDL_INLINE vf q_term(int32_t shape, vf s, vf m, vi isum, float sum, float d) {
    vf t = s * vi_to_v(isum);
    if (shape == Q_MIN) t = t + m * v_set1(sum);
    return t * v_set1(d);
}

#include "../arch/qdot_scalar.h"

/* Scales of `count` sub-blocks from b on, one column of 16 rows each. */
typedef struct q_columns {
    float s[Q_BLOCKS][Q_ROWS], m[Q_BLOCKS][Q_ROWS];
    int32_t c[Q_BLOCKS][2][Q_ROWS];
} q_columns;

CDL_INLINE void q_columns_of(int32_t dtype, const uint8_t *const *rows, int64_t b, int64_t count, q_columns *out) {
    for (int64_t i = 0; i < count; i++)
        for (int32_t r = 0; r < Q_ROWS; r++) {
            q_scale q = q_scales(dtype, rows[r], b + i);
            out->s[i][r] = q.s;
            if (q_shape(dtype) == Q_MIN) out->m[i][r] = q.m;
            if (q_shape(dtype) == Q_SUB) out->c[i][0][r] = q.c[0], out->c[i][1][r] = q.c[1];
        }
}

/* Decoding: y[16] of one token, straight from the blocks. */
CDL_INLINE void q_group(int32_t dtype, const uint8_t *const *rows, int64_t blocks, const q_input *x, int64_t t, float *y) {
    vf acc[Q_VECTORS];
    for (int32_t v = 0; v < Q_VECTORS; v++) acc[v] = v_zero();
    const float *d = x->d + t * x->blocks, *sum = x->sum + t * x->blocks;
    for (int64_t at = 0; at < blocks; at += Q_BLOCKS) {
        int64_t count = CDL_MIN(blocks - at, Q_BLOCKS);
        q_columns scale;
        q_columns_of(dtype, rows, at, count, &scale);
        for (int64_t i = 0; i < count; i += Q_STEP) {
            vi isum[Q_STEP][Q_VECTORS];
            int32_t step = (int32_t)CDL_MIN(count - i, Q_STEP);
            q_rows(dtype, rows, at + i, step, x, t, isum);
            for (int32_t j = 0; j < step; j++)
                for (int32_t v = 0; v < Q_VECTORS; v++) {
                    int32_t r = v * CDL_LANES;
                    acc[v] = acc[v] + q_term(q_shape(dtype), v_load(scale.s[i + j] + r), v_load(scale.m[i + j] + r),
                                             isum[j][v], sum[at + i + j], d[at + i + j]);
                }
        }
    }
    for (int32_t v = 0; v < Q_VECTORS; v++) v_store(y + v * CDL_LANES, acc[v]);
}

/* Prompt processing: unpacks 16 rows once ... */
CDL_INLINE void q_unpack(int32_t dtype, const uint8_t *const *rows, int64_t blocks, q_tile *tile) {
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
        for (int64_t i = 0; i < count; i += Q_STEP)
            q_pack(dtype, rows, at + i, (int32_t)CDL_MIN(count - i, Q_STEP), tile + at + i);
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
