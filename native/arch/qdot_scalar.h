/* qdot_scalar.h: the integer products in plain C. This is what every other ISA must equal. */
#ifndef CDL_QDOT_SCALAR_H
#define CDL_QDOT_SCALAR_H
enum { Q_STEP = 1, Q_PACK = 1, Q_TOKENS = 2 };

CDL_INLINE int32_t q_step(int32_t dtype) { return (void)dtype, 1; }

CDL_INLINE int32_t q_offset_of(int32_t dtype) { return q_offset(dtype); }

/* c0 * (first 16 products) + c1 * (last 16), the offset taken off. */
CDL_INLINE int32_t q_dot32(int32_t dtype, const uint8_t *u, const int32_t c[2], const int8_t *q) {
    int32_t sum[2] = {0};
    for (int32_t i = 0; i < 32; i++) sum[i / 16] += (u[i] - q_offset(dtype)) * q[i];
    return q_shape(dtype) == Q_SUB ? c[0] * sum[0] + c[1] * sum[1] : sum[0] + sum[1];
}

/* isum[count][rows] of token t with sub-blocks b.. of 16 rows, whose scales are columns at.. */
CDL_INLINE void q_rows(int32_t dtype, q_sixteen rows, int64_t b, int32_t count, const q_input *x, int64_t t,
                       const q_columns *scale, int64_t at, vi isum[][Q_VECTORS]) {
    for (int32_t i = 0; i < count; i++)
        for (int32_t r = 0; r < Q_ROWS; r++) {
            uint8_t u[32];
            q_integers(dtype, rows.row + r * rows.stride, b + i, u);
            const int32_t c[2] = {scale->c[at + i][0][r], scale->c[at + i][1][r]};
            isum[i][r / CDL_LANES][r % CDL_LANES] = q_dot32(dtype, u, c, x->q + t * x->k + (b + i) * 32);
        }
}

/* The integers of `step` sub-blocks from b on into tiles. */
CDL_INLINE void q_pack(int32_t dtype, q_sixteen rows, int64_t b, int32_t step, q_tile *tile) {
    (void)step;
    for (int32_t r = 0; r < Q_ROWS; r++) {
        uint8_t u[32];
        q_integers(dtype, rows.row + r * rows.stride, b, u);
        for (int32_t i = 0; i < 32; i++) tile->u[i / 4][r][i % 4] = u[i];
    }
}

/* isum[count][rows] of tokens t.. with one tile, sub-block b of the row. */
CDL_INLINE void q_dots(int32_t dtype, const q_tile *tile, const q_input *x, int64_t t, int64_t b, int32_t count,
                       vi isum[][Q_VECTORS]) {
    for (int32_t n = 0; n < count; n++)
        for (int32_t r = 0; r < Q_ROWS; r++) {
            uint8_t u[32];
            for (int32_t i = 0; i < 32; i++) u[i] = tile->u[i / 4][r][i % 4];
            const int32_t c[2] = {tile->c[0][r], tile->c[1][r]};
            isum[n][r / CDL_LANES][r % CDL_LANES] = q_dot32(dtype, u, c, x->q + (t + n) * x->k + b * 32);
        }
}
#endif
