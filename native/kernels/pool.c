/* pool.c: max and average over windows of planes, and their adjoints. f32 and f64, any strides.
 *
 * `max_pool2d` picks, for each window of x, the element of `values` at the place of the maximum: the
 * first of equals, or the first NaN. With values = x it is max pooling, with another tensor it is the
 * adjoint of `max_unpool2d`, which adds gradients at those places: nothing is saved between the two.
 * A window that meets no element gives minus infinity, and takes no gradient.
 */
#include "tile.h"
#include <math.h>

enum { KERNEL = 0, STRIDE = 2, PADDING = 4, OTHER = 6 }; /* places in the parameters, for y and x */

typedef struct side { /* a plane of [b,c] and its strides */
    char *data;
    int64_t b, c, y, x;
} side;

typedef struct pool {
    side large, values, small; /* x (or its gradient), what is picked, the windows */
    int64_t channels, large_n[2], small_n[2];
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    bool count_padding;
} pool;

/* Taps [begin, end) of window `at` of an axis lie inside; `from` is the first element. */
typedef struct span {
    int64_t from, begin, end;
} span;

static span span_of(const pool *p, int axis, int64_t at) {
    const int64_t from = at * p->stride[axis] - p->padding[axis], d = p->dilation[axis], n = p->large_n[axis];
    span s = {from, from < 0 ? (d - 1 - from) / d : 0, 0};
    s.end = from >= n ? s.begin : CDL_MIN((n - from + d - 1) / d, p->kernel[axis]);
    s.end = CDL_MAX(s.begin, s.end);
    return s;
}

/* How many elements an average divides by. */
static double divisor(const pool *p, const span *y, const span *x) {
    if (!p->count_padding) return (double)((y->end - y->begin) * (x->end - x->begin));
    const int64_t rows = CDL_MIN(y->from + p->kernel[0], p->large_n[0] + p->padding[0]) - y->from;
    const int64_t cols = CDL_MIN(x->from + p->kernel[1], p->large_n[1] + p->padding[1]) - x->from;
    return (double)(rows * cols);
}

#define BEATS(v, m) (((v) > (m)) | (((v) != (v)) & ((m) == (m))))

/* Two by two, stride two, rows next to each other: the common case, in vectors. */
static void pool_pairs(const float *a, const float *b, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float m = a[2 * i];
        m = BEATS(a[2 * i + 1], m) ? a[2 * i + 1] : m;
        m = BEATS(b[2 * i], m) ? b[2 * i] : m;
        out[i] = BEATS(b[2 * i + 1], m) ? b[2 * i + 1] : m;
    }
}

static void unpool_pairs(const float *restrict a, const float *restrict b, const float *restrict g,
                         float *restrict to_a, float *restrict to_b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float m = a[2 * i], where = 0.0f;
        where = BEATS(a[2 * i + 1], m) ? 1.0f : where;
        m = BEATS(a[2 * i + 1], m) ? a[2 * i + 1] : m;
        where = BEATS(b[2 * i], m) ? 2.0f : where;
        m = BEATS(b[2 * i], m) ? b[2 * i] : m;
        where = BEATS(b[2 * i + 1], m) ? 3.0f : where;
        to_a[2 * i] = where == 0.0f ? g[i] : 0.0f;
        to_a[2 * i + 1] = where == 1.0f ? g[i] : 0.0f;
        to_b[2 * i] = where == 2.0f ? g[i] : 0.0f;
        to_b[2 * i + 1] = where == 3.0f ? g[i] : 0.0f;
    }
}

static bool is_pairs(const pool *p, const side *a, const side *b, const side *c) {
    for (int i = 0; i < 2; i++)
        if (p->kernel[i] != 2 || p->stride[i] != 2 || p->padding[i] || p->dilation[i] != 1 ||
            p->small_n[i] * 2 > p->large_n[i])
            return false;
    return a->x == 1 && b->x == 1 && c->x == 1;
}

CDL_INLINE char *plane_of(const side *s, int64_t b, int64_t c, int64_t size) {
    return s->data ? s->data + (b * s->b + c * s->c) * size : NULL;
}

#define AT(T, base, s, row, col) ((T *)(base))[(row) * (s).y + (col) * (s).x]

#define PLANES(T, suffix)                                                                          \
    /* Whether the window meets an element; its place in the plane. */                             \
    static bool best_##suffix(const pool *p, const char *x, const span *wy, const span *wx, int64_t *row, int64_t *col) { \
        bool found = false;                                                                        \
        T most = 0;                                                                                \
        for (int64_t i = wy->begin; i < wy->end; i++)                                              \
            for (int64_t j = wx->begin; j < wx->end; j++) {                                        \
                const int64_t r = wy->from + i * p->dilation[0], c = wx->from + j * p->dilation[1]; \
                const T v = AT(T, x, p->large, r, c);                                              \
                if (found && !BEATS(v, most)) continue;                                            \
                found = true, most = v, *row = r, *col = c;                                        \
            }                                                                                      \
        return found;                                                                              \
    }                                                                                              \
    static void max_##suffix(const pool *p, const char *x, const char *values, char *out) {        \
        for (int64_t y = 0; y < p->small_n[0]; y++) {                                              \
            const span wy = span_of(p, 0, y);                                                      \
            for (int64_t i = 0; i < p->small_n[1]; i++) {                                          \
                const span wx = span_of(p, 1, i);                                                  \
                int64_t row, col;                                                                  \
                const bool found = best_##suffix(p, x, &wy, &wx, &row, &col);                      \
                AT(T, out, p->small, y, i) = found ? AT(const T, values, p->values, row, col) : -(T)INFINITY; \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void clear_##suffix(const pool *p, char *to, const side *s) {                           \
        for (int64_t y = 0; y < p->large_n[0]; y++)                                                \
            for (int64_t x = 0; x < p->large_n[1]; x++) AT(T, to, *s, y, x) = 0;                   \
    }                                                                                              \
    static void unmax_##suffix(const pool *p, const char *x, char *to, const char *grad) {         \
        clear_##suffix(p, to, &p->values);                                                         \
        for (int64_t y = 0; y < p->small_n[0]; y++) {                                              \
            const span wy = span_of(p, 0, y);                                                      \
            for (int64_t i = 0; i < p->small_n[1]; i++) {                                          \
                const span wx = span_of(p, 1, i);                                                  \
                int64_t row, col;                                                                  \
                if (best_##suffix(p, x, &wy, &wx, &row, &col))                                     \
                    AT(T, to, p->values, row, col) += AT(const T, grad, p->small, y, i);           \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void mean_##suffix(const pool *p, const char *x, char *out) {                           \
        for (int64_t y = 0; y < p->small_n[0]; y++) {                                              \
            const span wy = span_of(p, 0, y);                                                      \
            for (int64_t i = 0; i < p->small_n[1]; i++) {                                          \
                const span wx = span_of(p, 1, i);                                                  \
                double sum = 0.0;                                                                  \
                for (int64_t r = wy.from + wy.begin; r < wy.from + wy.end; r++)                    \
                    for (int64_t c = wx.from + wx.begin; c < wx.from + wx.end; c++)                \
                        sum += (double)AT(const T, x, p->large, r, c);                             \
                AT(T, out, p->small, y, i) = (T)(sum / divisor(p, &wy, &wx));                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void unmean_##suffix(const pool *p, char *to, const char *grad) {                       \
        clear_##suffix(p, to, &p->large);                                                          \
        for (int64_t y = 0; y < p->small_n[0]; y++) {                                              \
            const span wy = span_of(p, 0, y);                                                      \
            for (int64_t i = 0; i < p->small_n[1]; i++) {                                          \
                const span wx = span_of(p, 1, i);                                                  \
                const T share = (T)((double)AT(const T, grad, p->small, y, i) / divisor(p, &wy, &wx)); \
                for (int64_t r = wy.from + wy.begin; r < wy.from + wy.end; r++)                    \
                    for (int64_t c = wx.from + wx.begin; c < wx.from + wx.end; c++)                \
                        AT(T, to, p->large, r, c) += share;                                        \
            }                                                                                      \
        }                                                                                          \
    }
PLANES(float, f32)
PLANES(double, f64)

/* -- walks over planes ------------------------------------------------------------------------------------ */
static void max_planes_f32(void *ctx, int64_t begin, int64_t end) {
    const pool *p = ctx;
    const bool pairs = is_pairs(p, &p->large, &p->values, &p->small) && p->large.data == p->values.data;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / p->channels, c = i % p->channels;
        const char *x = plane_of(&p->large, b, c, 4), *values = plane_of(&p->values, b, c, 4);
        char *out = plane_of(&p->small, b, c, 4);
        if (!pairs) max_f32(p, x, values, out);
        else
            for (int64_t y = 0; y < p->small_n[0]; y++)
                pool_pairs((const float *)x + 2 * y * p->large.y, (const float *)x + (2 * y + 1) * p->large.y,
                           (float *)out + y * p->small.y, p->small_n[1]);
    }
}

static void unmax_planes_f32(void *ctx, int64_t begin, int64_t end) {
    const pool *p = ctx;
    const bool pairs = is_pairs(p, &p->large, &p->values, &p->small) && p->small_n[0] * 2 == p->large_n[0] &&
                       p->small_n[1] * 2 == p->large_n[1];
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / p->channels, c = i % p->channels;
        const char *x = plane_of(&p->large, b, c, 4), *grad = plane_of(&p->small, b, c, 4);
        char *to = plane_of(&p->values, b, c, 4);
        if (!pairs) unmax_f32(p, x, to, grad);
        else
            for (int64_t y = 0; y < p->small_n[0]; y++)
                unpool_pairs((const float *)x + 2 * y * p->large.y, (const float *)x + (2 * y + 1) * p->large.y,
                             (const float *)grad + y * p->small.y, (float *)to + 2 * y * p->values.y,
                             (float *)to + (2 * y + 1) * p->values.y, p->small_n[1]);
    }
}

#define WALK(name, call, size)                                                                     \
    static void name(void *ctx, int64_t begin, int64_t end) {                                      \
        const pool *p = ctx;                                                                       \
        for (int64_t i = begin; i < end; i++) {                                                    \
            const int64_t b = i / p->channels, c = i % p->channels;                                \
            char *large = plane_of(&p->large, b, c, size), *values = plane_of(&p->values, b, c, size); \
            char *small = plane_of(&p->small, b, c, size);                                         \
            (void)values;                                                                          \
            call;                                                                                  \
        }                                                                                          \
    }
WALK(max_planes_f64, max_f64(p, large, values, small), 8)
WALK(unmax_planes_f64, unmax_f64(p, large, values, small), 8)
WALK(mean_planes_f32, mean_f32(p, large, small), 4)
WALK(mean_planes_f64, mean_f64(p, large, small), 8)
WALK(unmean_planes_f32, unmean_f32(p, large, small), 4)
WALK(unmean_planes_f64, unmean_f64(p, large, small), 8)

/* -- the operations --------------------------------------------------------------------------------------- */
static side side_of(const cdl_view *v) {
    int64_t s[4];
    for (int i = 0; i < 4; i++) s[i] = v->layout->shape[i] > 1 ? v->layout->strides[i] : (i == 3);
    return (side){v->data, s[0], s[1], s[2], s[3]};
}

static cdl_status check_window(pool *p, const cdl_params *q, bool dilated) {
    const int64_t most = (int64_t)1 << 31;
    for (int i = 0; i < 2; i++) {
        int64_t far;
        p->kernel[i] = q->i[KERNEL + i];
        p->stride[i] = q->i[STRIDE + i];
        p->padding[i] = q->i[PADDING + i];
        p->dilation[i] = dilated ? q->i[OTHER + i] : 1;
        if (p->kernel[i] < 1 || p->kernel[i] > most || p->stride[i] < 1 || p->stride[i] > most || p->padding[i] < 0 ||
            p->padding[i] > most || p->dilation[i] < 1 || p->dilation[i] > most)
            return CDL_EPARAM;
        if (!cdl_mul_ok(p->small_n[i], p->stride[i], &far) || far > INT64_MAX / 4 || p->large_n[i] > INT64_MAX / 4)
            return CDL_ESHAPE;
    }
    p->count_padding = q->i[OTHER] != 0;
    return CDL_OK;
}

/* Views at `large` and `other` have one shape, that at `small` the windows. */
static cdl_status make(pool *p, const cdl_view *v, int large, int other, int small, const cdl_params *q, bool dilated) {
    const cdl_layout *l = v[large].layout, *s = v[small].layout;
    if (l->rank != 4 || s->rank != 4 || !cdl_same_shape(l, v[other].layout)) return CDL_ESHAPE;
    if (l->dtype != CDL_F32 && l->dtype != CDL_F64) return CDL_EDTYPE;
    if (s->dtype != l->dtype || v[other].layout->dtype != l->dtype) return CDL_EDTYPE;
    if (l->shape[0] != s->shape[0] || l->shape[1] != s->shape[1]) return CDL_ESHAPE;
    *p = (pool){.large = side_of(&v[large]), .values = side_of(&v[other]), .small = side_of(&v[small]),
                .channels = l->shape[1], .large_n = {l->shape[2], l->shape[3]}, .small_n = {s->shape[2], s->shape[3]}};
    return check_window(p, q, dilated);
}

static cdl_status run(const cdl_view *v, int out, int large, int small, pool *p, cdl_range_fn f32, cdl_range_fn f64) {
    const cdl_layout *l = v[large].layout, *s = v[small].layout;
    if (cdl_count(v[out].layout) == 0) return CDL_OK;
    if (!p->small.data && cdl_count(s)) return CDL_EARGS;
    if ((!p->large.data || !p->values.data) && cdl_count(l)) return CDL_EARGS;
    const int64_t work = p->large_n[0] * p->large_n[1] + p->small_n[0] * p->small_n[1] * 4;
    cdl_parallel_for(l->shape[0] * l->shape[1], CDL_MAX((int64_t)1, 16384 / CDL_MAX(work, (int64_t)1)),
                     l->dtype == CDL_F32 ? f32 : f64, p);
    return CDL_OK;
}

CDL_KERNEL(max_pool2d) {
    pool q;
    if (n != 3) return CDL_EARGS;
    cdl_status s = make(&q, v, 1, 2, 0, p, true);
    return s != CDL_OK ? s : run(v, 0, 1, 0, &q, max_planes_f32, max_planes_f64);
}

CDL_KERNEL(max_unpool2d) {
    pool q;
    if (n != 3) return CDL_EARGS;
    cdl_status s = make(&q, v, 1, 0, 2, p, true);
    return s != CDL_OK ? s : run(v, 0, 1, 2, &q, unmax_planes_f32, unmax_planes_f64);
}

CDL_KERNEL(avg_pool2d) {
    pool q;
    if (n != 2) return CDL_EARGS;
    cdl_status s = make(&q, v, 1, 1, 0, p, false);
    return s != CDL_OK ? s : run(v, 0, 1, 0, &q, mean_planes_f32, mean_planes_f64);
}

CDL_KERNEL(avg_unpool2d) {
    pool q;
    if (n != 2) return CDL_EARGS;
    cdl_status s = make(&q, v, 0, 0, 1, p, false);
    return s != CDL_OK ? s : run(v, 0, 0, 1, &q, unmean_planes_f32, unmean_planes_f64);
}
