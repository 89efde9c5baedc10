/* qdot_avx2.h: integer products by vpmaddubsw: unsigned times signed bytes, pairs added in 16 bits,
 * which never saturate here: weights of at most 6 bits are taken as they are and up to q_room() pairs
 * added before they widen; those of Q8_0 are signed, and give |w| times x with the sign of w.
 */
#ifndef CDL_QDOT_AVX2_H
#define CDL_QDOT_AVX2_H
enum { Q_STEP = 1, Q_PACK = 1, Q_TOKENS = 4 };

CDL_INLINE int32_t q_step(int32_t dtype) { return (void)dtype, 1; }
CDL_INLINE int32_t q_offset_of(int32_t dtype) { return dtype == CDL_Q8_0 ? 0 : q_offset(dtype); }

/* How many sums of two products fit in 16 bits: 2 * 127 * u each. */
CDL_INLINE int32_t q_room(int32_t dtype) {
    switch (dtype) {
    case CDL_Q8_0: return 1; /* 2 * 127 * 128 = 32512 */
    case CDL_Q4_0:
    case CDL_Q4_1:
    case CDL_Q4_K: return 8; /* 8 * 3810 = 30480 */
    case CDL_Q6_K: return 2; /* 2 * 16002 = 32004 */
    default: return 4;       /* five bits: 4 * 7874 = 31496 */
    }
}

CDL_INLINE __m256i q_load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)p); }
CDL_INLINE __m256i q_shift(__m256i v, int32_t n) { return _mm256_srl_epi16(v, _mm_cvtsi32_si128(n)); }

/* The integers u of sub-block b of a row; Q8_0's are signed. */
CDL_INLINE __m256i q_load32(int32_t dtype, const uint8_t *row, int64_t b) {
    const uint8_t *p = q_at(dtype, row, b), *nibbles = p + q_nibbles_at(dtype), *fifth = p + q_fifth_at(dtype);
    const __m256i low = _mm256_set1_epi8(15), sixteen = _mm256_set1_epi8(16);
    int32_t j = q_inside(dtype, b);
    switch (dtype) {
    case CDL_Q8_0: return q_load(p + 2);
    case CDL_Q4_0:
    case CDL_Q4_1:
    case CDL_Q5_0:
    case CDL_Q5_1: {
        __m128i n = _mm_loadu_si128((const __m128i *)nibbles);
        __m256i v = _mm256_inserti128_si256(_mm256_castsi128_si256(n), _mm_srli_epi16(n, 4), 1);
        v = _mm256_and_si256(v, low);
        if (!q_fifth_at(dtype)) return v;
        const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
        const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
        __m256i high = _mm256_shuffle_epi8(_mm256_set1_epi32((int32_t)q_u32(fifth)), spread);
        high = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit);
        return _mm256_or_si256(v, _mm256_and_si256(high, sixteen));
    }
    case CDL_Q4_K:
    case CDL_Q5_K: {
        __m256i v = _mm256_and_si256(q_shift(q_load(nibbles + j / 2 * 32), j % 2 * 4), low);
        if (dtype == CDL_Q4_K) return v;
        return _mm256_or_si256(v, _mm256_and_si256(_mm256_slli_epi16(q_shift(q_load(fifth), j), 4), sixteen));
    }
    default: { /* Q6_K */
        __m256i v = _mm256_and_si256(q_shift(q_load(p + j / 4 * 64 + j % 2 * 32), j % 4 / 2 * 4), low);
        __m256i high = _mm256_and_si256(q_shift(q_load(p + 128 + j / 4 * 32), j % 4 * 2), _mm256_set1_epi8(3));
        return _mm256_or_si256(v, _mm256_slli_epi16(high, 4));
    }
    }
}

/* Sixteen sums of two products. */
CDL_INLINE __m256i q_pairs(int32_t dtype, __m256i w, __m256i q) {
    if (dtype == CDL_Q8_0) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    return _mm256_maddubs_epi16(w, q);
}
CDL_INLINE __m256i q_widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

/* -- few tokens: a row fills a register, 128 bits a half of the sub-block ------------------------------ */

CDL_INLINE __m256i q_row(int32_t dtype, const uint8_t *row, int64_t b, __m256i q) {
    return q_widen(q_pairs(dtype, q_load32(dtype, row, b), q));
}

/* Four rows: a lane a row, 128 bits a half. */
CDL_INLINE __m256i q_four_rows(int32_t dtype, const uint8_t *row, int64_t stride, int64_t b, __m256i q) {
    __m256i a0 = q_row(dtype, row, b, q), a1 = q_row(dtype, row + stride, b, q);
    __m256i a2 = q_row(dtype, row + 2 * stride, b, q), a3 = q_row(dtype, row + 3 * stride, b, q);
    return _mm256_hadd_epi32(_mm256_hadd_epi32(a0, a1), _mm256_hadd_epi32(a2, a3));
}

/* Both halves of a sub-block: the offset off, the second level on. */
CDL_INLINE vi q_join(int32_t dtype, vi first, vi second, const int32_t *seed, const int32_t *c0, const int32_t *c1) {
    if (q_shape(dtype) == Q_SUB)
        return (first + vi_set1(seed[0])) * vi_load(c0) + (second + vi_set1(seed[1])) * vi_load(c1);
    vi sum = first + second;
    return q_offset_of(dtype) ? sum + vi_set1(seed[0]) : sum;
}

/* isum[0] of token t with sub-block b of 16 rows, whose scales are column `at`. */
CDL_INLINE void q_rows(int32_t dtype, q_sixteen rows, int64_t b, int32_t count, const q_input *x, int64_t t,
                       const q_columns *scale, int64_t at, vi isum[][Q_VECTORS]) {
    (void)count;
    __m256i q = _mm256_loadu_si256((const __m256i *)(x->q + t * x->k + b * 32));
    const uint8_t *p = rows.row;
    for (int32_t v = 0; v < Q_VECTORS; v++) {
        __m256i low = q_four_rows(dtype, p, rows.stride, b, q);
        __m256i high = q_four_rows(dtype, p + 4 * rows.stride, rows.stride, b, q);
        p += 8 * rows.stride;
        isum[0][v] = q_join(dtype, (vi)_mm256_permute2x128_si256(low, high, 0x20),
                            (vi)_mm256_permute2x128_si256(low, high, 0x31), x->seed + (t * x->blocks + b) * 2,
                            scale->c[at][0] + v * 8, scale->c[at][1] + v * 8);
    }
}

/* -- many tokens: a tile unpacked once ------------------------------------------------------------------ */

/* 8 x 8 dwords turned, to out[8] 64 bytes apart. */
CDL_INLINE void q_transpose(const __m256i v[8], uint8_t *out) {
    __m256i a[8], b[8];
    for (int32_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int32_t i = 0; i < 8; i += 4)
        for (int32_t h = 0; h < 2; h++) {
            b[i + 2 * h] = _mm256_unpacklo_epi64(a[i + h], a[i + 2 + h]);
            b[i + 2 * h + 1] = _mm256_unpackhi_epi64(a[i + h], a[i + 2 + h]);
        }
    for (int32_t i = 0; i < 4; i++) {
        _mm256_storeu_si256((__m256i *)(out + i * 64), _mm256_permute2x128_si256(b[i], b[i + 4], 0x20));
        _mm256_storeu_si256((__m256i *)(out + (i + 4) * 64), _mm256_permute2x128_si256(b[i], b[i + 4], 0x31));
    }
}

CDL_INLINE void q_pack(int32_t dtype, q_sixteen rows, int64_t b, int32_t step, q_tile *tile) {
    (void)step;
    for (int32_t h = 0; h < Q_ROWS; h += 8) {
        __m256i v[8];
        for (int32_t r = 0; r < 8; r++) v[r] = q_load32(dtype, rows.row + (h + r) * rows.stride, b);
        q_transpose(v, tile->u[0][h]);
    }
}

CDL_INLINE __m256i q_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Steps [from, to) of `vectors` times 8 rows from row on: a lane a row, out[token][vector]. */
CDL_INLINE void q_run(int32_t dtype, const q_tile *tile, int32_t row, int32_t vectors, const int8_t *q, int64_t k,
                      int32_t from, int32_t to, int32_t count, vi out[][2]) {
    __m256i pairs[Q_TOKENS][2], sums[Q_TOKENS][2];
    for (int32_t i = from; i < to; i += q_room(dtype)) {
        for (int32_t j = i; j < i + q_room(dtype); j++)
            for (int32_t n = 0; n < count; n++)
                for (int32_t v = 0; v < vectors; v++) {
                    __m256i two = q_pairs(dtype, q_load(tile->u[j][row + 8 * v]), q_four(q + n * k + 4 * j));
                    pairs[n][v] = j == i ? two : _mm256_add_epi16(pairs[n][v], two);
                }
        for (int32_t n = 0; n < count; n++)
            for (int32_t v = 0; v < vectors; v++) {
                __m256i wide = q_widen(pairs[n][v]);
                sums[n][v] = i == from ? wide : _mm256_add_epi32(sums[n][v], wide);
            }
    }
    for (int32_t n = 0; n < count; n++)
        for (int32_t v = 0; v < vectors; v++) out[n][v] = (vi)sums[n][v];
}

/* Both vectors at once share a token's four bytes, where the registers suffice: sums that never widen
 * inside a sub-block. */
CDL_INLINE void q_dots(int32_t dtype, const q_tile *tile, const q_input *x, int64_t t, int64_t b, int32_t count,
                       vi isum[][Q_VECTORS]) {
    const int8_t *q = x->q + t * x->k + b * 32;
    const int32_t *seed = x->seed + (t * x->blocks + b) * 2;
    const bool sub = q_shape(dtype) == Q_SUB;
    const int32_t vectors = q_room(dtype) == 8 ? 2 : 1;
    for (int32_t v = 0; v < Q_VECTORS; v += vectors) {
        vi first[Q_TOKENS][2], second[Q_TOKENS][2] = {{{0}}};
        q_run(dtype, tile, 8 * v, vectors, q, x->k, 0, sub ? 4 : 8, count, first);
        if (sub) q_run(dtype, tile, 8 * v, vectors, q, x->k, 4, 8, count, second);
        for (int32_t n = 0; n < count; n++)
            for (int32_t i = 0; i < vectors; i++)
                isum[n][v + i] = q_join(dtype, first[n][i], second[n][i], seed + n * 2 * x->blocks,
                                        tile->c[0] + 8 * (v + i), tile->c[1] + 8 * (v + i));
    }
}
#endif
