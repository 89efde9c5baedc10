/* resize.c: images of another size, and the adjoint. f32 and f64, any strides.
 *
 * Each axis has a table: output i is `low` times element `a` plus `high` times element `b`.
 * Rows are mixed first, then columns: the order of the sums is fixed, and a weight of zero takes no part
 * (an infinite neighbour makes no NaN). The adjoint adds each gradient to its four places, plane by
 * plane, rows in order, so that threads do not change a bit.
 *
 *   nearest       a = floor(i * in / out), exact
 *   linear        at (i + 1/2) in / out - 1/2, within the image
 *   corners       at i (in - 1) / (out - 1)
 */
#include "tile.h"

enum { NEAREST = 0, LINEAR = 1, CORNERS = 2 };

typedef struct tap {
    int64_t a, b;
    double low, high;
    float low_f, high_f;
} tap;

typedef struct plane { /* the first element, strides in elements */
    char *data;
    int64_t b, c, y, x;
} plane;

typedef struct resize {
    plane large, small;               /* the image and its other size: out and in, or in and out */
    int64_t planes, channels, n[2], m[2]; /* sizes of the image and of the other one, of y and x */
    const tap *taps[2];
    int64_t size;
    int32_t status;                   /* atomic */
} resize;

/* -- tables ----------------------------------------------------------------------------------------------- */
/* Output i lies at (first + i * step) / parts, counted in whole elements and a rest: exact. */
static void make_taps(tap *t, int64_t n, int64_t m, int64_t mode) {
    const int64_t first = mode == LINEAR ? n - m : 0, step = mode == LINEAR ? 2 * n : mode == CORNERS ? n - 1 : n;
    const int64_t parts = mode == LINEAR ? 2 * m : mode == CORNERS ? CDL_MAX(m - 1, 1) : m;
    if (!m) return;
    int64_t at = first / parts, rest = first % parts;
    if (rest < 0) rest += parts, at--;
    for (int64_t i = 0; i < m; i++) {
        const int64_t a = at < 0 ? 0 : CDL_MIN(at, n - 1);
        const bool between = mode != NEAREST && at == a && a < n - 1;
        const double high = between ? (double)rest / (double)parts : 0.0;
        t[i] = (tap){a, CDL_MIN(a + 1, n - 1), 1.0 - high, high, (float)(1.0 - high), (float)high};
        at += step / parts;
        rest += step % parts;
        if (rest >= parts) rest -= parts, at++;
    }
}

/* -- planes ------------------------------------------------------------------------------------------------ */
#define RESIZE(T, suffix, low_, high_)                                                             \
    static const T *mixed_##suffix(const resize *r, const T *from, const tap *t, T *row) {         \
        const int64_t step = r->large.x, n = r->n[1];                                              \
        const T *a = from + t->a * r->large.y, *b = from + t->b * r->large.y;                      \
        const T low = t->low_, high = t->high_;                                                    \
        if (high == 0 && step == 1) return a;                                                      \
        if (high == 0)                                                                             \
            for (int64_t i = 0; i < n; i++) row[i] = a[i * step];                                  \
        else if (step == 1)                                                                        \
            for (int64_t i = 0; i < n; i++) row[i] = low * a[i] + high * b[i];                     \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) row[i] = low * a[i * step] + high * b[i * step];       \
        return row;                                                                                \
    }                                                                                              \
    static void row_##suffix(const resize *r, T *to, const T *from, int64_t y, T *buffer) {        \
        const T *row = mixed_##suffix(r, from, &r->taps[0][y], buffer);                            \
        const int64_t step = r->small.x;                                                           \
        for (int64_t i = 0; i < r->m[1]; i++) {                                                    \
            const tap *t = &r->taps[1][i];                                                         \
            T value = t->low_ * row[t->a];                                                         \
            if (t->high_ != 0) value += t->high_ * row[t->b];                                      \
            to[y * r->small.y + i * step] = value;                                                 \
        }                                                                                          \
    }                                                                                              \
    static void add_row_##suffix(const resize *r, T *to, const T *row, int64_t y, T weight) {      \
        T *out = to + y * r->large.y;                                                              \
        const int64_t step = r->large.x;                                                           \
        if (step == 1)                                                                             \
            for (int64_t i = 0; i < r->n[1]; i++) out[i] += weight * row[i];                       \
        else                                                                                       \
            for (int64_t i = 0; i < r->n[1]; i++) out[i * step] += weight * row[i];                \
    }                                                                                              \
    static void adjoint_##suffix(const resize *r, T *to, const T *g, T *row) {                     \
        for (int64_t y = 0; y < r->n[0]; y++)                                                      \
            for (int64_t x = 0; x < r->n[1]; x++) to[y * r->large.y + x * r->large.x] = 0;         \
        for (int64_t y = 0; y < r->m[0]; y++) {                                                    \
            const tap *ty = &r->taps[0][y];                                                        \
            for (int64_t i = 0; i < r->n[1]; i++) row[i] = 0;                                      \
            for (int64_t i = 0; i < r->m[1]; i++) {                                                \
                const tap *t = &r->taps[1][i];                                                     \
                const T value = g[y * r->small.y + i * r->small.x];                                \
                row[t->a] += t->low_ * value;                                                      \
                if (t->high_ != 0) row[t->b] += t->high_ * value;                                  \
            }                                                                                      \
            add_row_##suffix(r, to, row, ty->a, ty->low_);                                         \
            if (ty->high_ != 0) add_row_##suffix(r, to, row, ty->b, ty->high_);                    \
        }                                                                                          \
    }
RESIZE(float, f, low_f, high_f)
RESIZE(double, d, low, high)

CDL_INLINE char *plane_of(const resize *r, const plane *p, int64_t index) {
    return p->data + (index / r->channels * p->b + index % r->channels * p->c) * r->size;
}

static void *row_buffer(resize *r) {
    void *row = cdl_scratch_of(0, r->n[1], r->size);
    if (!row) cdl_fail(&r->status, CDL_ENOMEM);
    return row;
}

/* Rows of all planes of the other size. */
static void resize_rows(void *ctx, int64_t begin, int64_t end) {
    resize *r = ctx;
    void *row = row_buffer(r);
    for (int64_t i = begin; row && i < end; i++) {
        void *to = plane_of(r, &r->small, i / r->m[0]), *from = plane_of(r, &r->large, i / r->m[0]);
        if (r->size == 4) row_f(r, to, from, i % r->m[0], row);
        else row_d(r, to, from, i % r->m[0], row);
    }
}

static void adjoint_planes(void *ctx, int64_t begin, int64_t end) {
    resize *r = ctx;
    void *row = row_buffer(r);
    for (int64_t i = begin; row && i < end; i++) {
        void *to = plane_of(r, &r->large, i), *g = plane_of(r, &r->small, i);
        if (r->size == 4) adjoint_f(r, to, g, row);
        else adjoint_d(r, to, g, row);
    }
}

/* -- entries ------------------------------------------------------------------------------------------------ */
static plane plane_from(const cdl_view *v) {
    const cdl_layout *l = v->layout;
    int64_t s[4];
    for (int i = 0; i < 4; i++) s[i] = l->shape[i] == 1 ? 0 : l->strides[i];
    if (l->shape[3] == 1) s[3] = 1;
    return (plane){v->data, s[0], s[1], s[2], s[3]};
}

static cdl_status prepare(resize *r, const cdl_view *image, const cdl_view *other, int64_t mode) {
    const cdl_layout *l = image->layout, *o = other->layout;
    if (l->dtype != o->dtype || (l->dtype != CDL_F32 && l->dtype != CDL_F64)) return CDL_EDTYPE;
    if (mode < NEAREST || mode > CORNERS) return CDL_EPARAM;
    if (l->rank != 4 || o->rank != 4 || l->shape[0] != o->shape[0] || l->shape[1] != o->shape[1]) return CDL_ESHAPE;
    *r = (resize){.large = plane_from(image), .small = plane_from(other), .planes = l->shape[0] * l->shape[1],
                  .channels = l->shape[1], .size = cdl_dtype_size(l->dtype)};
    for (int i = 0; i < 2; i++) {
        r->n[i] = l->shape[2 + i], r->m[i] = o->shape[2 + i];
        if ((r->m[i] && !r->n[i]) || CDL_MAX(r->n[i], r->m[i]) > INT64_MAX / 4) return CDL_ESHAPE;
    }
    if ((cdl_count(l) && !image->data) || (cdl_count(o) && !other->data)) return CDL_EARGS;
    int64_t taps;
    if (!cdl_add_ok(r->m[0], r->m[1], &taps)) return CDL_ENOMEM;
    tap *t = cdl_scratch_of(3, CDL_MAX(taps, 1), sizeof *t);
    if (!t) return CDL_ENOMEM;
    for (int i = 0; i < 2; i++, t += r->m[0]) {
        r->taps[i] = t;
        make_taps(t, r->n[i], r->m[i], mode);
    }
    return CDL_OK;
}

CDL_KERNEL(resize2d) {
    resize r;
    if (n != 2) return CDL_EARGS;
    cdl_status status = prepare(&r, &v[1], &v[0], p->i[0]);
    if (status || !cdl_count(v[0].layout)) return status;
    cdl_parallel_for(r.planes * r.m[0], CDL_GRAIN / 4 / (r.n[1] + r.m[1]) + 1, resize_rows, &r);
    return r.status;
}

CDL_KERNEL(resize2d_grad) {
    resize r;
    if (n != 2) return CDL_EARGS;
    cdl_status status = prepare(&r, &v[0], &v[1], p->i[0]);
    if (status || !cdl_count(v[0].layout)) return status;
    cdl_parallel_for(r.planes, CDL_GRAIN / 4 / (r.n[0] * r.n[1] + 1) + 1, adjoint_planes, &r);
    return r.status;
}
