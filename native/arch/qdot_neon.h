/* qdot_neon.h: integer products by widening multiplies of ARMv8-A: signed bytes to 16 bits, up to
 * q_room() of them added before they widen to 32.
 */
#ifndef CDL_QDOT_NEON_H
#define CDL_QDOT_NEON_H
enum { Q_STEP = 1, Q_PACK = 1, Q_TOKENS = 4 };

CDL_INLINE int32_t q_step(int32_t dtype) { return (void)dtype, 1; }
CDL_INLINE int32_t q_offset_of(int32_t dtype) { return dtype == CDL_Q8_0 ? 0 : q_offset(dtype); }

/* How many products fit in 16 bits. */
CDL_INLINE int32_t q_room(int32_t dtype) {
    switch (dtype) {
    case CDL_Q8_0: return 2; /* 2 * 127 * 128 = 32512 */
    case CDL_Q6_K: return 4; /* 4 * 127 * 63 = 32004 */
    default: return 8;       /* 8 * 127 * 31 = 31496 */
    }
}

/* The integers u of a sub-block as two halves; Q8_0's are signed. */
typedef struct q_halves {
    int8x16_t v[2];
} q_halves;

CDL_INLINE uint8x16_t q_shift(uint8x16_t v, int32_t n) { return vshlq_u8(v, vdupq_n_s8((int8_t)-n)); }

/* 16 where bit i of two bytes is set. */
CDL_INLINE uint8x16_t q_sixteens(const uint8_t *two) {
    static const uint8_t bits[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t v = vcombine_u8(vdup_n_u8(two[0]), vdup_n_u8(two[1]));
    return vandq_u8(vtstq_u8(v, vcombine_u8(vld1_u8(bits), vld1_u8(bits))), vdupq_n_u8(16));
}

CDL_INLINE q_halves q_load32(int32_t dtype, const uint8_t *row, int64_t b) {
    const uint8_t *p = q_at(dtype, row, b), *nibbles = p + q_nibbles_at(dtype), *fifth = p + q_fifth_at(dtype);
    const uint8x16_t low = vdupq_n_u8(15);
    int32_t j = q_inside(dtype, b);
    uint8x16_t u[2] = {low, low};
    switch (dtype) {
    case CDL_Q8_0:
        u[0] = vld1q_u8(p + 2), u[1] = vld1q_u8(p + 18);
        break;
    case CDL_Q4_0:
    case CDL_Q4_1:
    case CDL_Q5_0:
    case CDL_Q5_1:
        u[0] = vandq_u8(vld1q_u8(nibbles), low), u[1] = vshrq_n_u8(vld1q_u8(nibbles), 4);
        for (int32_t h = 0; q_fifth_at(dtype) && h < 2; h++) u[h] = vorrq_u8(u[h], q_sixteens(fifth + 2 * h));
        break;
    case CDL_Q4_K:
    case CDL_Q5_K:
        for (int32_t h = 0; h < 2; h++) {
            u[h] = vandq_u8(q_shift(vld1q_u8(nibbles + j / 2 * 32 + 16 * h), j % 2 * 4), low);
            if (dtype == CDL_Q5_K)
                u[h] = vorrq_u8(u[h], vshlq_n_u8(vandq_u8(q_shift(vld1q_u8(fifth + 16 * h), j), vdupq_n_u8(1)), 4));
        }
        break;
    default: /* Q6_K */
        for (int32_t h = 0; h < 2; h++) {
            uint8x16_t high = q_shift(vld1q_u8(p + 128 + j / 4 * 32 + 16 * h), j % 4 * 2);
            u[h] = vandq_u8(q_shift(vld1q_u8(p + j / 4 * 64 + j % 2 * 32 + 16 * h), j % 4 / 2 * 4), low);
            u[h] = vorrq_u8(u[h], vshlq_n_u8(vandq_u8(high, vdupq_n_u8(3)), 4));
        }
    }
    return (q_halves){{vreinterpretq_s8_u8(u[0]), vreinterpretq_s8_u8(u[1])}};
}

/* Both halves of a sub-block: the offset off, the second level on. */
CDL_INLINE vi q_join(int32_t dtype, vi first, vi second, const int32_t *seed, const int32_t *c0, const int32_t *c1) {
    if (q_shape(dtype) == Q_SUB)
        return (first + vi_set1(seed[0])) * vi_load(c0) + (second + vi_set1(seed[1])) * vi_load(c1);
    vi sum = first + second;
    return q_offset_of(dtype) ? sum + vi_set1(seed[0]) : sum;
}

/* -- few tokens ----------------------------------------------------------------------------------------- */

/* Four sums of four products of one half of a row. */
CDL_INLINE int32x4_t q_half(int8x16_t w, int8x16_t q) {
    int32x4_t sum = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(q)));
    return vpadalq_s16(sum, vmull_high_s8(w, q));
}

/* isum[0] of token t with sub-block b of 16 rows, whose scales are column `at`. */
CDL_INLINE void q_rows(int32_t dtype, q_sixteen rows, int64_t b, int32_t count, const q_input *x, int64_t t,
                       const q_columns *scale, int64_t at, vi isum[][Q_VECTORS]) {
    (void)count;
    const int8_t *q = x->q + t * x->k + b * 32;
    int8x16_t q0 = vld1q_s8(q), q1 = vld1q_s8(q + 16);
    const uint8_t *p = rows.row;
    for (int32_t v = 0; v < Q_VECTORS; v++) {
        int32x4_t a[2][4];
        for (int32_t r = 0; r < 4; r++, p += rows.stride) {
            q_halves w = q_load32(dtype, p, b);
            a[0][r] = q_half(w.v[0], q0), a[1][r] = q_half(w.v[1], q1);
        }
        vi s[2];
        for (int32_t h = 0; h < 2; h++) s[h] = (vi)vpaddq_s32(vpaddq_s32(a[h][0], a[h][1]), vpaddq_s32(a[h][2], a[h][3]));
        isum[0][v] = q_join(dtype, s[0], s[1], x->seed + (t * x->blocks + b) * 2, scale->c[at][0] + 4 * v,
                            scale->c[at][1] + 4 * v);
    }
}

/* -- many tokens: a tile unpacked once -------------------------------------------------------------------- */

CDL_INLINE void q_pack(int32_t dtype, q_sixteen rows, int64_t b, int32_t step, q_tile *tile) {
    (void)step;
    for (int32_t r = 0; r < Q_ROWS; r++) {
        int8_t u[32];
        q_halves w = q_load32(dtype, rows.row + r * rows.stride, b);
        vst1q_s8(u, w.v[0]), vst1q_s8(u + 16, w.v[1]);
        for (int32_t i = 0; i < 8; i++) memcpy(tile->u[i][r], u + 4 * i, 4);
    }
}

CDL_INLINE int8x16_t q_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return vreinterpretq_s8_s32(vdupq_n_s32(four));
}

/* Steps [from, to) of rows 4v to 4v + 3: a lane a row, one vector a token. */
CDL_INLINE void q_run(int32_t dtype, const q_tile *tile, int32_t v, const int8_t *q, int64_t k, int32_t from, int32_t to,
                      int32_t count, vi *out) {
    int32x4_t low[Q_TOKENS], high[Q_TOKENS]; /* two lanes a row */
    for (int32_t n = 0; n < count; n++) low[n] = high[n] = vdupq_n_s32(0);
    for (int32_t i = from; i < to; i += q_room(dtype)) {
        int16x8_t a[Q_TOKENS], b[Q_TOKENS];
        for (int32_t j = i; j < i + q_room(dtype) && j < to; j++) {
            int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(tile->u[j][4 * v]));
            for (int32_t n = 0; n < count; n++) {
                int8x16_t f = q_four(q + n * k + 4 * j);
                a[n] = j == i ? vmull_s8(vget_low_s8(w), vget_low_s8(f)) : vmlal_s8(a[n], vget_low_s8(w), vget_low_s8(f));
                b[n] = j == i ? vmull_high_s8(w, f) : vmlal_high_s8(b[n], w, f);
            }
        }
        for (int32_t n = 0; n < count; n++) low[n] = vpadalq_s16(low[n], a[n]), high[n] = vpadalq_s16(high[n], b[n]);
    }
    for (int32_t n = 0; n < count; n++) out[n] = (vi)vpaddq_s32(low[n], high[n]);
}

CDL_INLINE void q_dots(int32_t dtype, const q_tile *tile, const q_input *x, int64_t t, int64_t b, int32_t count,
                       vi isum[][Q_VECTORS]) {
    const int8_t *q = x->q + t * x->k + b * 32;
    const int32_t *seed = x->seed + (t * x->blocks + b) * 2;
    bool sub = q_shape(dtype) == Q_SUB;
    for (int32_t v = 0; v < Q_VECTORS; v++) {
        vi first[Q_TOKENS], second[Q_TOKENS] = {{0}};
        q_run(dtype, tile, v, q, x->k, 0, sub ? 4 : 8, count, first);
        if (sub) q_run(dtype, tile, v, q, x->k, 4, 8, count, second);
        for (int32_t n = 0; n < count; n++)
            isum[n][v] = q_join(dtype, first[n], second[n], seed + n * 2 * x->blocks, tile->c[0] + 4 * v, tile->c[1] + 4 * v);
    }
}
#endif
