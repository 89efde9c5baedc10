/* random.c: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011). Element e of the output is made from the
 * block whose counter is e + i1, with key i0: no state, no order, any number of threads. Normal numbers
 * are computed in f64 by plain products and sums, so that every ISA gives the same bits. */
#include "tile.h"

#define LOW(v) __builtin_convertvector(v, vu)
#define WIDE(v) __builtin_convertvector(v, vul)

/* The first two words of the blocks with these counters. */
CDL_INLINE void philox(vul counter, uint64_t key, vu *word0, vu *word1) {
    vu c0 = LOW(counter), c1 = LOW(counter >> 32), c2 = {0}, c3 = {0};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const vul a = WIDE(c0) * 0xD2511F53u, b = WIDE(c2) * 0xCD9E8D57u;
        c0 = LOW(b >> 32) ^ c1 ^ k0;
        c2 = LOW(a >> 32) ^ c3 ^ k1;
        c1 = LOW(b);
        c3 = LOW(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    *word0 = c0;
    *word1 = c1;
}

/* 24 bits of a word as a float in [0, 1). */
CDL_INLINE vf uniform_of(vu word0, vu word1) {
    (void)word1;
    return vi_to_v((vi)(word0 >> 8)) * 0x1p-24f;
}

/* Box-Muller: sqrt(-2 ln u) cos(2 pi w), u in (0, 1] and w in [0, 1) on 32 bits each. */
CDL_INLINE vf normal_of(vu word0, vu word1) {
    const vd u = (__builtin_convertvector(word0, vd) + 1.0) * 0x1p-32;
    const vd quarters = __builtin_convertvector(word1, vd) * 0x1p-30;
    const vd nearest = (quarters + 0x1.8p52) - 0x1.8p52, x = (quarters - nearest) * 1.5707963267948966, z = x * x;
    vd s = z * -2.505210838544172e-8 + 2.755731922398589e-6; /* Taylor: |x| <= pi/4 */
    s = s * z + -1.984126984126984e-4;
    s = s * z + 8.333333333333333e-3;
    s = s * z + -0.16666666666666666;
    s = s * z * x + x;
    vd c = z * 2.08767569878681e-9 + -2.755731922398589e-7;
    c = c * z + 2.48015873015873e-5;
    c = c * z + -1.388888888888889e-3;
    c = c * z + 4.1666666666666664e-2;
    c = c * z + -0.5;
    c = c * z + 1.0;
    const vl odd = (nearest == 1.0) | (nearest == 3.0), minus = (nearest == 1.0) | (nearest == 2.0);
    vd cosine = vd_select(odd, s, c);
    cosine = vd_select(minus, -cosine, cosine);
    const vd square = vd_log(u) * -2.0;
    vd radius = square;
    for (int i = 0; i < CDL_LANES; i++) radius[i] = __builtin_sqrt(square[i]);
    return CDL_TO_F(radius * cosine);
}

typedef struct job {
    float *out;
    uint64_t first, key;
} job;

#define CDL_RANDOM(name, number)                                                                   \
    static void name##_piece(void *ctx, int64_t begin, int64_t end) {                              \
        const job *j = ctx;                                                                        \
        vul lane;                                                                                  \
        for (int i = 0; i < CDL_LANES; i++) lane[i] = (uint64_t)i;                                 \
        for (int64_t at = begin; at < end; at += CDL_LANES) {                                      \
            vu word0, word1;                                                                       \
            philox(lane + (j->first + (uint64_t)at), j->key, &word0, &word1);                      \
            const vf x = number(word0, word1);                                                     \
            if (end - at >= CDL_LANES) v_store(j->out + at, x);                                    \
            else v_store_n(j->out + at, x, end - at);                                              \
        }                                                                                          \
    }                                                                                              \
    CDL_KERNEL(name) { return fill_random(v, n, p, name##_piece); }

/* out: f32, contiguous. */
static cdl_status fill_random(const cdl_view *v, int32_t n, const cdl_params *p, cdl_range_fn piece) {
    if (n != 1) return CDL_EARGS;
    const cdl_layout *l = v[0].layout;
    if (l->dtype != CDL_F32) return CDL_EDTYPE;
    const int64_t count = cdl_count(l);
    if (!count) return CDL_OK;
    if (!cdl_contiguous(l)) return CDL_ESHAPE;
    if (!v[0].data) return CDL_EARGS;
    job j = {v[0].data, (uint64_t)p->i[1], (uint64_t)p->i[0]};
    cdl_parallel_for(count, CDL_GRAIN / 4, piece, &j);
    return CDL_OK;
}
CDL_RANDOM(uniform, uniform_of)
CDL_RANDOM(normal, normal_of)
