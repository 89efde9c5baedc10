/* rope.c: rotary positions. Pair j of a head turns by position * scale * base^(-2j/r) / factor[j].
 * Angles are doubles and reduced as such, so the sine of position 1,000,000 is as good as that of 1;
 * sines and cosines are made once a position and shared by all heads and batches. */
#include "tile.h"
#include <math.h>

typedef struct rope {
    const cdl_view *v;     /* out, in, positions, factors */
    const double *turn;    /* [half] radians a position */
    float *sine, *cosine;  /* [t][half] */
    int64_t half, t, h, d; /* r/2 and the last three axes */
    bool interleaved;
    int32_t status; /* atomic */
} rope;

/* -- tables ------------------------------------------------------------------------------------------ */
static void table_piece(void *ctx, int64_t begin, int64_t end) {
    const rope *r = ctx;
    const cdl_layout *l = r->v[2].layout;
    for (int64_t i = begin; i < end; i++) {
        const double position = ((const int32_t *)r->v[2].data)[r->t == 1 ? 0 : i * l->strides[0]];
        for (int64_t j = 0; j < r->half; j += CDL_LANES) { /* turn[] is padded to whole vectors */
            vd angle;
            vf s, c;
            vi quarter;
            memcpy(&angle, r->turn + j, sizeof angle);
            vd rest = vd_reduce(angle * position, &quarter);
            v_sincos_quarter(CDL_TO_F(rest), quarter, &s, &c);
            const int64_t n = r->half - j;
            if (n >= CDL_LANES) {
                v_store(r->sine + i * r->half + j, s);
                v_store(r->cosine + i * r->half + j, c);
            } else {
                v_store_n(r->sine + i * r->half + j, s, n);
                v_store_n(r->cosine + i * r->half + j, c, n);
            }
        }
    }
}

static cdl_status make_tables(rope *r, const cdl_params *p) {
    const int64_t padded = (r->half + CDL_LANES - 1) / CDL_LANES * CDL_LANES;
    int64_t cells, bytes;
    if (!cdl_mul_ok(r->t, r->half, &cells) || !cdl_mul_ok(cells, 8, &bytes)) return CDL_ESHAPE;
    double *turn = cdl_scratch(1, (uint64_t)padded * 8);
    r->sine = cdl_scratch(2, (uint64_t)bytes);
    if (!turn || !r->sine) return CDL_ENOMEM;
    r->cosine = r->sine + cells;
    const double ratio = pow(p->f[0], -1.0 / (double)r->half);
    const cdl_view *factors = &r->v[3];
    const int64_t step = r->half == 1 ? 0 : factors->layout->strides[0];
    double turns = p->f[1];
    for (int64_t j = 0; j < padded; j++, turns *= ratio) {
        bool divided = factors->data && j < r->half;
        turn[j] = divided ? turns / (double)((const float *)factors->data)[j * step] : turns;
    }
    r->turn = turn;
    cdl_parallel_for(r->t, CDL_GRAIN / 8 / r->half + 1, table_piece, r);
    return CDL_OK;
}

/* -- turning ----------------------------------------------------------------------------------------- */
static void turn_halves(float *o, const float *x, const float *s, const float *c, int64_t half) {
    int64_t j = 0;
    for (; j + CDL_LANES <= half; j += CDL_LANES) {
        vf a = v_load(x + j), b = v_load(x + half + j), sine = v_load(s + j), cosine = v_load(c + j);
        v_store(o + j, a * cosine - b * sine);
        v_store(o + half + j, b * cosine + a * sine);
    }
    for (; j < half; j++) {
        float a = x[j], b = x[half + j];
        o[j] = a * c[j] - b * s[j];
        o[half + j] = b * c[j] + a * s[j];
    }
}
static void turn_pairs(float *o, const float *x, const float *s, const float *c, int64_t half) {
    for (int64_t j = 0; j < half; j++) {
        float a = x[2 * j], b = x[2 * j + 1];
        o[2 * j] = a * c[j] - b * s[j];
        o[2 * j + 1] = b * c[j] + a * s[j];
    }
}

/* A piece: positions of all batches; every head of each. */
static void rope_piece(void *ctx, int64_t begin, int64_t end) {
    rope *r = ctx;
    const cdl_layout *lo = r->v[0].layout, *li = r->v[1].layout;
    const int32_t last = lo->rank - 1;
    const int64_t so = cdl_dtype_size(lo->dtype), si = cdl_dtype_size(li->dtype);
    const int64_t out_step = r->d == 1 ? so : lo->strides[last] * so, in_step = r->d == 1 ? si : li->strides[last] * si;
    float *buffer = cdl_scratch_of(0, r->d, 4);
    if (!buffer) {
        cdl_fail(&r->status, CDL_ENOMEM);
        return;
    }
    for (int64_t row = begin * r->h; row < end * r->h; row++) {
        int64_t rest = row, to = 0, from = 0, t = row / r->h % r->t;
        for (int32_t i = last - 1; i >= 0; i--) {
            to += rest % lo->shape[i] * lo->strides[i];
            from += rest % lo->shape[i] * li->strides[i];
            rest /= lo->shape[i];
        }
        char *out = (char *)r->v[0].data + to * so;
        const float *x = CDL_NAME(cdl_row_load)(li->dtype, (const char *)r->v[1].data + from * si, in_step, r->d, buffer);
        float *o = cdl_tile_out(lo->dtype, out, out_step, buffer);
        const float *s = r->sine + t * r->half, *c = r->cosine + t * r->half;
        if (r->interleaved) turn_pairs(o, x, s, c, r->half);
        else turn_halves(o, x, s, c, r->half);
        if (o != x) memcpy(o + 2 * r->half, x + 2 * r->half, (size_t)(r->d - 2 * r->half) * 4);
        CDL_NAME(cdl_row_store)(lo->dtype, out, out_step, r->d, o);
    }
}

CDL_KERNEL(rope) {
    if (n != 4) return CDL_EARGS;
    const cdl_layout *lo = v[0].layout, *li = v[1].layout, *lp = v[2].layout, *lf = v[3].layout;
    if (cdl_kind_of(lo->dtype) != CDL_KIND_F || cdl_kind_of(li->dtype) != CDL_KIND_F) return CDL_EDTYPE;
    if (lp->dtype != CDL_I32 || (v[3].data && lf->dtype != CDL_F32)) return CDL_EDTYPE;
    if (lo->rank < 3 || !cdl_same_shape(lo, li)) return CDL_ESHAPE;
    const int32_t last = lo->rank - 1;
    rope r = {.v = v, .half = p->i[0] / 2, .d = lo->shape[last], .h = lo->shape[last - 1], .t = lo->shape[last - 2]};
    r.interleaved = p->i[1] == 0;
    if (p->i[0] < 2 || p->i[0] % 2 || (p->i[1] & ~1) || !(p->f[0] > 0) || !(p->f[1] > 0)) return CDL_EPARAM;
    if (p->i[0] > r.d) return CDL_EPARAM;
    if (lp->rank != 1 || lp->shape[0] != r.t) return CDL_ESHAPE;
    if (v[3].data && (lf->rank != 1 || lf->shape[0] != r.half)) return CDL_ESHAPE;
    const int64_t count = cdl_count(lo);
    if (!count) return CDL_OK;
    if (!v[0].data || !v[1].data || !v[2].data) return CDL_EARGS;
    cdl_status status = make_tables(&r, p);
    if (status) return status;
    cdl_parallel_for(count / (r.h * r.d), CDL_GRAIN / (r.h * r.d) + 1, rope_piece, &r);
    return r.status;
}
