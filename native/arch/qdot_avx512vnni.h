/* qdot_avx512vnni.h: integer products by vpdpbusd: unsigned weights times signed activations, four
 * to a lane, exact. The offset of a format comes off as a seed, which is a sum of activations.
 */
#ifndef CDL_QDOT_AVX512VNNI_H
#define CDL_QDOT_AVX512VNNI_H
enum { Q_STEP = 4, Q_PACK = 2, Q_TOKENS = 6 };

CDL_INLINE int32_t q_offset_of(int32_t dtype) { return q_offset(dtype); }

/* Two runs of 32 bytes side by side, or two of 16 bytes, each twice. */
CDL_INLINE __m512i q_pair32(const uint8_t *a, const uint8_t *b) {
    __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a));
    return _mm512_inserti64x4(v, _mm256_loadu_si256((const __m256i *)b), 1);
}
CDL_INLINE __m512i q_pair16(const uint8_t *a, const uint8_t *b) {
    __m512i v = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)a));
    return _mm512_mask_broadcast_i32x4(v, 0xff00, _mm_loadu_si128((const __m128i *)b));
}

/* Sixteen where a fifth bit is set: to be or-ed to nibbles. */
CDL_INLINE __m512i q_sixteens(uint64_t bits) { return _mm512_maskz_mov_epi8(bits, _mm512_set1_epi8(16)); }

/* The integers u of two sub-blocks of a row: b and, in formats of 32 values, the one `next` bytes on
 * (0 at the end of an odd row: the same again, for nobody). */
CDL_INLINE __m512i q_load64(int32_t dtype, const uint8_t *row, int64_t b, int64_t next) {
    const uint8_t *p = q_at(dtype, row, b);
    const __m512i low = _mm512_set1_epi8(15);
    int32_t at = q_nibbles_at(dtype), j = q_inside(dtype, b);
    switch (dtype) {
    case CDL_Q8_0: return _mm512_xor_si512(q_pair32(p + 2, p + next + 2), _mm512_set1_epi8(-128));
    case CDL_Q4_0:
    case CDL_Q4_1:
    case CDL_Q5_0:
    case CDL_Q5_1: {
        const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
        __m512i v = _mm512_and_si512(_mm512_srlv_epi64(q_pair16(p + at, p + next + at), shift), low);
        int32_t fifth = q_fifth_at(dtype);
        if (!fifth) return v;
        uint64_t bits = q_u32(p + fifth) | (uint64_t)q_u32(p + next + fifth) << 32;
        return _mm512_or_si512(v, q_sixteens(bits));
    }
    case CDL_Q4_K:
    case CDL_Q5_K: {
        const __m512i shift = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
        __m512i v = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(p + at + j / 2 * 32)));
        v = _mm512_and_si512(_mm512_srlv_epi64(v, shift), low);
        if (dtype == CDL_Q4_K) return v;
        __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(p + 16)));
        __m512i bit = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << j)), _mm256_set1_epi8((char)(2 << j)), 1);
        return _mm512_or_si512(v, q_sixteens(_mm512_test_epi8_mask(high, bit)));
    }
    default: { /* Q6_K */
        __m512i v = _mm512_loadu_si512(p + j / 4 * 64);
        v = _mm512_and_si512(_mm512_srli_epi16(v, j % 4 * 2), low);
        __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(p + 128 + j / 4 * 32)));
        int64_t s = j % 4 * 2;
        high = _mm512_srlv_epi64(high, _mm512_setr_epi64(s, s, s, s, s + 2, s + 2, s + 2, s + 2));
        high = _mm512_and_si512(high, _mm512_set1_epi8(3));
        return _mm512_or_si512(v, _mm512_slli_epi16(high, 4));
    }
    }
}

/* -- few tokens: a row fills a register, four lanes a quarter ----------------------------------------- */

/* Sub-blocks at a time: the formats of nibbles in 16 bytes hold four, one a quarter; the others two. */
CDL_INLINE bool q_is_quad(int32_t dtype) { return q_block(dtype) == 32 && dtype != CDL_Q8_0; }
CDL_INLINE int32_t q_step(int32_t dtype) { return q_is_quad(dtype) ? 4 : 2; }

/* Activations in the order of the weights, and where the sub-blocks of the step lie. */
typedef struct q_few {
    __m512i q[2];
    int64_t b, next[4]; /* bytes from sub-block b; the last one again past the end of a row */
} q_few;

/* Fifth bits of four sub-blocks: 16 bits of each, at p and `next` bytes on. */
CDL_INLINE uint64_t q_bits4(const uint8_t *p, const int64_t *next) {
    return q_u16(p) | (uint64_t)q_u16(p + next[1]) << 16 | (uint64_t)q_u16(p + next[2]) << 32 |
           (uint64_t)q_u16(p + next[3]) << 48;
}

/* Four sub-blocks: their low nibbles, then their high ones. */
CDL_INLINE __m512i q_row_quad(int32_t dtype, const uint8_t *p, const q_few *x) {
    const __m512i low_bits = _mm512_set1_epi8(15);
    const uint8_t *n = p + q_nibbles_at(dtype), *fifth = p + q_fifth_at(dtype);
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)n));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(n + x->next[1])), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(n + x->next[2])), 2);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(n + x->next[3])), 3);
    __m512i low = _mm512_and_si512(v, low_bits), high = _mm512_and_si512(_mm512_srli_epi16(v, 4), low_bits);
    if (q_fifth_at(dtype)) {
        low = _mm512_or_si512(low, q_sixteens(q_bits4(fifth, x->next)));
        high = _mm512_or_si512(high, q_sixteens(q_bits4(fifth + 2, x->next)));
    }
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x->q[0]), high, x->q[1]);
}

/* Sixteen partial sums of a row. In Q4_K those of the second sub-block are 16 times too much: its
 * nibbles stay where they are. */
CDL_INLINE __m512i q_row(int32_t dtype, const uint8_t *row, const q_few *x) {
    const uint8_t *p = q_at(dtype, row, x->b);
    if (q_is_quad(dtype)) return q_row_quad(dtype, p, x);
    __m512i v;
    if (dtype == CDL_Q4_K) {
        const __m512i mask = _mm512_inserti64x4(_mm512_set1_epi8(15), _mm256_set1_epi8(-16), 1);
        v = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(p + 16 + q_inside(dtype, x->b) / 2 * 32)));
        v = _mm512_and_si512(v, mask);
    } else {
        v = q_load64(dtype, row, x->b, x->next[1]);
    }
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), v, x->q[0]);
}

CDL_INLINE __m512i q_add_pairs(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

/* Four rows: 128 bits a quarter, a lane a row. */
CDL_INLINE __m512i q_four_rows(int32_t dtype, const uint8_t *row, int64_t stride, const q_few *x) {
    __m512i a = q_add_pairs(q_row(dtype, row, x), q_row(dtype, row + stride, x));
    __m512i b = q_add_pairs(q_row(dtype, row + 2 * stride, x), q_row(dtype, row + 3 * stride, x));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* Sums of each quarter over its lanes, a lane a row. Unrolled, the loop would spill addresses. */
CDL_INLINE void q_quarters(int32_t dtype, q_sixteen rows, const q_few *x, __m512i out[4]) {
    __m512i f[4];
    const uint8_t *p = rows.row;
    for (int32_t i = 0; i < 4; i++) {
        f[i] = q_four_rows(dtype, p, rows.stride, x);
        p += 4 * rows.stride;
        __asm__("" : "+r"(p));
    }
    __m512i a0 = _mm512_shuffle_i32x4(f[0], f[1], 0x88), a1 = _mm512_shuffle_i32x4(f[0], f[1], 0xdd);
    __m512i b0 = _mm512_shuffle_i32x4(f[2], f[3], 0x88), b1 = _mm512_shuffle_i32x4(f[2], f[3], 0xdd);
    out[0] = _mm512_shuffle_i32x4(a0, b0, 0x88);
    out[1] = _mm512_shuffle_i32x4(a1, b1, 0x88);
    out[2] = _mm512_shuffle_i32x4(a0, b0, 0xdd);
    out[3] = _mm512_shuffle_i32x4(a1, b1, 0xdd);
}

CDL_INLINE q_few q_few_of(int32_t dtype, int64_t b, int32_t count, const int8_t *q) {
    q_few x = {.b = b};
    for (int32_t i = 0; i < 4; i++) x.next[i] = CDL_MIN(i, count - 1) * q_size(dtype);
    x.q[0] = _mm512_loadu_si512(q);
    if (!q_is_quad(dtype)) return x;
    __m512i first = x.q[0], second = _mm512_loadu_si512(q + 64);
    x.q[0] = _mm512_shuffle_i64x2(first, second, 0x88);
    x.q[1] = _mm512_shuffle_i64x2(first, second, 0xdd);
    return x;
}

/* isum[count] of token t with sub-blocks b.. of 16 rows, whose scales are columns at.. */
CDL_INLINE void q_rows(int32_t dtype, q_sixteen rows, int64_t b, int32_t count, const q_input *x, int64_t t,
                       const q_columns *scale, int64_t at, vi isum[][Q_VECTORS]) {
    const int32_t *seed = x->seed + (t * x->blocks + b) * 2;
    q_few few = q_few_of(dtype, b, count, x->q + t * x->k + b * 32);
    __m512i s[4];
    q_quarters(dtype, rows, &few, s);
    if (q_is_quad(dtype)) {
        for (int32_t i = 0; i < 4; i++) isum[i][0] = (vi)s[i] + (q_offset(dtype) ? vi_set1(seed[2 * i]) : (vi){0});
    } else if (q_shape(dtype) == Q_SUB) {
        for (int32_t i = 0; i < 4; i++)
            s[i] = (__m512i)(((vi)s[i] + vi_set1(seed[i])) * vi_load(scale->c[at + i / 2][i % 2]));
        isum[0][0] = (vi)s[0] + (vi)s[1];
        isum[1][0] = (vi)s[2] + (vi)s[3];
    } else {
        isum[0][0] = (vi)s[0] + (vi)s[1] + (q_offset(dtype) ? vi_set1(seed[0]) : (vi){0});
        isum[1][0] = (vi)s[2] + (vi)s[3] + (q_offset(dtype) ? vi_set1(seed[2]) : (vi){0});
        if (dtype == CDL_Q4_K) isum[1][0] >>= 4;
    }
}

/* -- many tokens: a tile unpacked once ---------------------------------------------------------------- */

/* 16 x 16 dwords turned: out[i] lane r = in[r] lane i. */
CDL_INLINE void q_transpose(__m512i v[16]) {
    __m512i a[16];
    for (int32_t i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int32_t i = 0; i < 16; i += 4)
        for (int32_t h = 0; h < 2; h++) {
            v[i + 2 * h] = _mm512_unpacklo_epi64(a[i + h], a[i + 2 + h]);
            v[i + 2 * h + 1] = _mm512_unpackhi_epi64(a[i + h], a[i + 2 + h]);
        }
    for (int32_t i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    for (int32_t i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_i32x4(a[i + 4], a[i + 12], 0xdd);
    }
}

CDL_INLINE void q_pack(int32_t dtype, q_sixteen rows, int64_t b, int32_t step, q_tile *tile) {
    __m512i v[16];
    int64_t next = step == 2 ? q_size(dtype) : 0;
    for (int32_t r = 0; r < Q_ROWS; r++) v[r] = q_load64(dtype, rows.row + r * rows.stride, b, next);
    q_transpose(v);
    for (int32_t i = 0; i < 8; i++) _mm512_storeu_si512(tile[0].u[i], v[i]);
    if (step == 2)
        for (int32_t i = 0; i < 8; i++) _mm512_storeu_si512(tile[1].u[i], v[8 + i]);
}

CDL_INLINE __m512i q_four(const int8_t *q) {
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* Steps [from, to) of a tile added to sums[count]. */
CDL_INLINE void q_steps(const q_tile *tile, const int8_t *q, int64_t k, int32_t from, int32_t to, int32_t count, __m512i *sums) {
    for (int32_t i = from; i < to; i++) {
        __m512i w = _mm512_loadu_si512(tile->u[i]);
        for (int32_t n = 0; n < count; n++) sums[n] = _mm512_dpbusd_epi32(sums[n], w, q_four(q + n * k + 4 * i));
    }
}

CDL_INLINE void q_dots(int32_t dtype, const q_tile *tile, const q_input *x, int64_t t, int64_t b, int32_t count,
                       vi isum[][Q_VECTORS]) {
    const int8_t *q = x->q + t * x->k + b * 32;
    const int32_t *seed = x->seed + (t * x->blocks + b) * 2;
    int32_t halves = q_shape(dtype) == Q_SUB ? 2 : 1;
    for (int32_t h = 0; h < halves; h++) {
        __m512i sums[Q_TOKENS];
        for (int32_t n = 0; n < count; n++)
            sums[n] = q_offset(dtype) ? _mm512_set1_epi32(seed[n * 2 * x->blocks + h]) : _mm512_setzero_si512();
        q_steps(tile, q, x->k, h * 4, halves == 2 ? h * 4 + 4 : 8, count, sums);
        for (int32_t n = 0; n < count; n++) {
            if (halves == 1) isum[n][0] = (vi)sums[n];
            if (halves == 2) {
                vi scaled = (vi)_mm512_mullo_epi32(sums[n], _mm512_loadu_si512(tile->c[h]));
                isum[n][0] = h ? isum[n][0] + scaled : scaled;
            }
        }
    }
}
#endif
