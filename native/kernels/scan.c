/* scan.c: cumsum, the running sum along one axis.
 *
 * Floats are summed in f64, one after the other from the start of the axis, and each sum is rounded
 * once: the order depends on nothing but the axis, so neither threads nor batch mates change a bit.
 * Integers wrap, in i64. Lines whose neighbours lie closer in memory than their own elements are summed
 * side by side (columns), the others one by one.
 */
#include "tile.h"

typedef struct scan {
    int64_t n, out_step, in_step; /* along the axis: length, bytes */
    int32_t out_dtype, in_dtype;
    cdl_kind kind;
} scan;

typedef union total { /* of one line so far */
    double number;
    uint64_t whole;
} total;

/* n sums at their places: floats are rounded here, once, for their dtype. */
static void put(const scan *s, char *out, int64_t step, int64_t n, const void *sums) {
    _Alignas(64) double rounded[CDL_TILE];
    if (s->kind == CDL_KIND_F)
        sums = CDL_NAME(cdl_tile_cast)(CDL_KIND_D, sums, s->out_dtype, n, cdl_tile_out(s->out_dtype, out, step, rounded));
    if (sums != out) CDL_NAME(cdl_tile_store)(s->out_dtype, out, step, n, sums);
}

/* Where sums of doubles or integers may be written at once. */
CDL_INLINE void *sums_at(const scan *s, char *out, int64_t step, void *buffer) {
    return s->kind == CDL_KIND_F ? buffer : cdl_tile_out(s->out_dtype, out, step, buffer);
}

/* -- along a line: n elements, one after the other ------------------------------------------------------ */
static void line_tile(cdl_kind kind, void *out, const void *in, int64_t n, total *t) {
    if (kind == CDL_KIND_F)
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = t->number += (double)((const float *)in)[i];
    else if (kind == CDL_KIND_D)
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = t->number += ((const double *)in)[i];
    else
        for (int64_t i = 0; i < n; i++) ((uint64_t *)out)[i] = t->whole += ((const uint64_t *)in)[i];
}

static void scan_line(const scan *s, char *out, const char *in) {
    _Alignas(64) double from[CDL_TILE], to[CDL_TILE];
    total t = {0}; /* all bits zero: 0.0 and 0 */
    for (int64_t at = 0; at < s->n; at += CDL_TILE) {
        const int64_t n = CDL_MIN(CDL_TILE, s->n - at);
        char *place = out + at * s->out_step;
        void *sums = sums_at(s, place, s->out_step, to);
        line_tile(s->kind, sums, CDL_NAME(cdl_tile_load)(s->in_dtype, in + at * s->in_step, s->in_step, n, from), n, &t);
        put(s, place, s->out_step, n, sums);
    }
}

/* -- across lines: one element of each of n lines ------------------------------------------------------- */
static void column_tile(cdl_kind kind, void *out, const void *in, int64_t n, total *t) {
    if (kind == CDL_KIND_F)
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = t[i].number += (double)((const float *)in)[i];
    else if (kind == CDL_KIND_D)
        for (int64_t i = 0; i < n; i++) ((double *)out)[i] = t[i].number += ((const double *)in)[i];
    else
        for (int64_t i = 0; i < n; i++) ((uint64_t *)out)[i] = t[i].whole += ((const uint64_t *)in)[i];
}

/* n <= CDL_TILE lines, step[] bytes apart in out and in. */
static void scan_columns(const scan *s, char *out, const char *in, const int64_t *step, int64_t n) {
    _Alignas(64) double from[CDL_TILE], to[CDL_TILE];
    _Alignas(64) total t[CDL_TILE];
    memset(t, 0, sizeof t);
    for (int64_t j = 0; j < s->n; j++, out += s->out_step, in += s->in_step) {
        void *sums = sums_at(s, out, step[0], to);
        column_tile(s->kind, sums, CDL_NAME(cdl_tile_load)(s->in_dtype, in, step[1], n, from), n, t);
        put(s, out, step[0], n, sums);
    }
}

static int64_t distance(int64_t step) { return step < 0 ? -step : step; }

static void scan_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    const scan *s = ctx;
    const bool columns = count >= 4 && s->n > 1 && distance(step[1]) < distance(s->in_step);
    for (int64_t at = 0; at < count;) {
        const int64_t n = columns ? CDL_MIN(CDL_TILE, count - at) : 1;
        char *out = data[0] + at * step[0], *in = data[1] + at * step[1];
        if (columns) scan_columns(s, out, in, step, n);
        else scan_line(s, out, in);
        at += n;
    }
}

CDL_KERNEL(cumsum) {
    if (n != 2) return CDL_EARGS;
    const cdl_layout *lo = v[0].layout, *li = v[1].layout;
    const int64_t axis = p->i[0];
    scan s = {.out_dtype = lo->dtype, .in_dtype = li->dtype, .kind = cdl_kind_of(li->dtype)};
    if (s.kind == CDL_KIND_NONE || cdl_kind_of(lo->dtype) != s.kind) return CDL_EDTYPE;
    if (s.kind == CDL_KIND_I && lo->dtype != CDL_I64) return CDL_EDTYPE;
    if (axis < 0 || axis >= li->rank) return CDL_EPARAM;
    if (!cdl_same_shape(lo, li)) return CDL_ESHAPE;
    s.n = li->shape[axis];
    if (!s.n) return CDL_OK;
    s.out_step = (s.n == 1 ? 1 : lo->strides[axis]) * cdl_dtype_size(lo->dtype);
    s.in_step = (s.n == 1 ? 1 : li->strides[axis]) * cdl_dtype_size(li->dtype);
    const cdl_layout out = cdl_without_axis(lo, axis), in = cdl_without_axis(li, axis);
    const cdl_view pair[2] = {{v[0].data, &out}, {v[1].data, &in}};
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, pair, 2);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / s.n + 1, scan_run, &s);
    return CDL_OK;
}
