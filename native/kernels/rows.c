/* rows.c: softmax, log_softmax, layer_norm, rms_norm over the last axis. f32 f16 bf16 rows are worked
 * on as f32 with every sum in f64, f64 rows in f64; only the result is rounded to the dtype. Sums run
 * in an order that depends on the length of the row alone. A row that holds NaN, or nothing above
 * minus infinity, gives a row of NaN from softmax. */
#include "tile.h"
#include <math.h>

typedef struct rows rows;
/* One row: d values of the kind, contiguous; out may be in. */
typedef void (*row_fn)(void *out, const void *in, const rows *r);

struct rows {
    row_fn fn;
    cdl_kind kind;
    int32_t out_dtype, in_dtype;
    int64_t d, out_step, in_step; /* length; bytes between neighbours */
    const void *weight, *bias;    /* d of the kind, or NULL */
    double epsilon;
    int32_t status; /* atomic */
};

/* -- walking the rows ------------------------------------------------------------------------------ */
static void rows_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    rows *r = ctx;
    char *buffer = NULL;
    if (cdl_tile_out(r->out_dtype, data[0], r->out_step, NULL) != data[0] ||
        cdl_tile_out(r->in_dtype, data[1], r->in_step, NULL) != data[1]) {
        buffer = cdl_scratch_of(0, r->d, cdl_kind_size(r->kind));
        if (!buffer) {
            cdl_fail(&r->status, CDL_ENOMEM);
            return;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        char *to = data[0] + i * step[0];
        char *out = cdl_tile_out(r->out_dtype, to, r->out_step, buffer);
        const void *in = CDL_NAME(cdl_row_load)(r->in_dtype, data[1] + i * step[1], r->in_step, r->d, buffer);
        r->fn(out, in, r);
        CDL_NAME(cdl_row_store)(r->out_dtype, to, r->out_step, r->d, out);
    }
}

/* The layout without its last axis. */
static cdl_layout outer(const cdl_layout *l) {
    cdl_layout o = *l;
    o.rank--;
    return o;
}

/* An optional [d] vector as contiguous values of the kind, kept in scratch `slot`. */
static cdl_status load_vector(const cdl_view *v, const rows *r, int32_t slot, const void **out) {
    const cdl_layout *l = v->layout;
    *out = NULL;
    if (!v->data) return CDL_OK;
    if (cdl_kind_of(l->dtype) != r->kind) return CDL_EDTYPE;
    if (l->rank != 1 || l->shape[0] != r->d) return CDL_ESHAPE;
    int64_t step = r->d == 1 ? cdl_dtype_size(l->dtype) : l->strides[0] * cdl_dtype_size(l->dtype);
    char *buffer = cdl_scratch_of(slot, r->d, cdl_kind_size(r->kind));
    if (!buffer) return CDL_ENOMEM;
    *out = CDL_NAME(cdl_row_load)(l->dtype, v->data, step, r->d, buffer);
    return CDL_OK;
}

static cdl_status run_rows(const cdl_view *v, int32_t vectors, double epsilon, row_fn f, row_fn d) {
    const cdl_layout *lo = v[0].layout, *li = v[1].layout;
    if (li->rank < 1 || !cdl_same_shape(lo, li)) return CDL_ESHAPE;
    const int32_t last = li->rank - 1;
    const int64_t so = cdl_dtype_size(lo->dtype), si = cdl_dtype_size(li->dtype);
    rows r = {.kind = cdl_kind_of(li->dtype), .out_dtype = lo->dtype, .in_dtype = li->dtype, .d = li->shape[last]};
    if (r.kind > CDL_KIND_D || cdl_kind_of(lo->dtype) != r.kind) return CDL_EDTYPE;
    r.fn = r.kind == CDL_KIND_F ? f : d;
    r.out_step = r.d == 1 ? so : lo->strides[last] * so;
    r.in_step = r.d == 1 ? si : li->strides[last] * si;
    r.epsilon = epsilon;
    cdl_layout outer_out = outer(lo), outer_in = outer(li);
    const cdl_view pair[2] = {{v[0].data, &outer_out}, {v[1].data, &outer_in}};
    cdl_nd nd;
    cdl_status status = CDL_OK;
    if (!r.d) return CDL_OK;
    if (vectors > 0) status = load_vector(&v[2], &r, 1, &r.weight);
    if (!status && vectors > 1) status = load_vector(&v[3], &r, 2, &r.bias);
    if (!status) status = CDL_NAME(cdl_nd_make)(&nd, pair, 2);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / 4 / r.d + 1, rows_run, &r);
    return r.status;
}

/* -- softmax ----------------------------------------------------------------------------------------- */
static float row_max(const float *x, int64_t n) {
    vf m = v_set1(-CDL_INF), m2 = m;
    int64_t i = 0;
    for (; i + 2 * CDL_LANES <= n; i += 2 * CDL_LANES) {
        m = v_max(v_load(x + i), m);
        m2 = v_max(v_load(x + i + CDL_LANES), m2);
    }
    float top = v_hmax(v_max(m, m2));
    for (; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}

/* The sum of e^(x - top); the terms go to `out` unless it is NULL. f32 within a tile, f64 between. */
static double exp_sum(float *out, const float *x, float top, int64_t n) {
    double sum = 0;
    for (int64_t at = 0; at < n; at += CDL_TILE) {
        const int64_t end = CDL_MIN(at + CDL_TILE, n);
        vf part = v_zero();
        int64_t i = at;
        for (; i + CDL_LANES <= end; i += CDL_LANES) {
            vf e = v_exp(v_load(x + i) - top);
            part += e;
            if (out) v_store(out + i, e);
        }
        if (i < end) {
            vf e = v_exp(v_load_n(x + i, end - i) - top);
            e = v_select(vi_iota() < vi_set1((int32_t)(end - i)), e, v_zero());
            part += e;
            if (out) v_store_n(out + i, e, end - i);
        }
        sum += (double)v_sum(part);
    }
    return sum;
}

/* out = x * scale + shift */
static void scale_shift(float *out, const float *x, float scale, float shift, int64_t n) {
    const vf s = v_set1(scale), t = v_set1(shift);
    int64_t i = 0;
    for (; i + CDL_LANES <= n; i += CDL_LANES) v_store(out + i, v_load(x + i) * s + t);
    if (i < n) v_store_n(out + i, v_load_n(x + i, n - i) * s + t, n - i);
}

static void softmax_f(void *out, const void *in, const rows *r) {
    double sum = exp_sum(out, in, row_max(in, r->d), r->d);
    scale_shift(out, out, (float)(1.0 / sum), 0.0f, r->d);
}
static void log_softmax_f(void *out, const void *in, const rows *r) {
    const float top = row_max(in, r->d), lse = (float)log(exp_sum(NULL, in, top, r->d));
    const float *x = in;
    float *y = out;
    for (int64_t i = 0; i < r->d; i++) y[i] = (x[i] - top) - lse;
}

static double row_max_d(const double *x, int64_t n) {
    double top = x[0];
    for (int64_t i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    return top;
}
static void softmax_d(void *out, const void *in, const rows *r) {
    const double *x = in, top = row_max_d(in, r->d);
    double *y = out, sum = 0;
    for (int64_t i = 0; i < r->d; i++) sum += y[i] = exp(x[i] - top);
    for (int64_t i = 0; i < r->d; i++) y[i] /= sum;
}
static void log_softmax_d(void *out, const void *in, const rows *r) {
    const double *x = in, top = row_max_d(in, r->d);
    double *y = out, sum = 0;
    for (int64_t i = 0; i < r->d; i++) sum += exp(x[i] - top);
    sum = log(sum);
    for (int64_t i = 0; i < r->d; i++) y[i] = (x[i] - top) - sum;
}

/* -- norms ------------------------------------------------------------------------------------------- */
CDL_INLINE double lanes_sum(vd v) {
    double a[CDL_LANES];
    memcpy(a, &v, sizeof a);
    for (int w = CDL_LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++) a[i] += a[i + w];
    return a[0];
}

/* The sum of (x - centre), or of its square. */
CDL_INLINE double moment(const float *x, double centre, bool square, int64_t n) {
    vd a = {0}, b = {0};
    int64_t i = 0;
    for (; i + 2 * CDL_LANES <= n; i += 2 * CDL_LANES) {
        vd p = CDL_TO_D(v_load(x + i)) - centre, q = CDL_TO_D(v_load(x + i + CDL_LANES)) - centre;
        a += square ? p * p : p;
        b += square ? q * q : q;
    }
    double sum = lanes_sum(a + b);
    for (; i < n; i++) {
        double p = (double)x[i] - centre;
        sum += square ? p * p : p;
    }
    return sum;
}

/* out = (x - centre) * scale * weight + bias */
static void normalise(float *out, const float *x, double centre, double scale, const float *w, const float *b, int64_t n) {
    int64_t i = 0;
    for (; i + CDL_LANES <= n; i += CDL_LANES) {
        vf y = CDL_TO_F((CDL_TO_D(v_load(x + i)) - centre) * scale);
        if (w) y *= v_load(w + i);
        if (b) y += v_load(b + i);
        v_store(out + i, y);
    }
    for (; i < n; i++) {
        float y = (float)(((double)x[i] - centre) * scale);
        if (w) y *= w[i];
        if (b) y += b[i];
        out[i] = y;
    }
}
static void layer_norm_f(void *out, const void *in, const rows *r) {
    const double n = (double)r->d, mean = moment(in, 0.0, false, r->d) / n;
    const double variance = moment(in, mean, true, r->d) / n;
    normalise(out, in, mean, 1.0 / sqrt(variance + r->epsilon), r->weight, r->bias, r->d);
}
static void rms_norm_f(void *out, const void *in, const rows *r) {
    const double square = moment(in, 0.0, true, r->d) / (double)r->d;
    normalise(out, in, 0.0, 1.0 / sqrt(square + r->epsilon), r->weight, NULL, r->d);
}

static void normalise_d(double *out, const double *x, double mean, const rows *r) {
    double square = 0;
    for (int64_t i = 0; i < r->d; i++) square += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / sqrt(square / (double)r->d + r->epsilon), *w = r->weight, *b = r->bias;
    for (int64_t i = 0; i < r->d; i++) out[i] = (x[i] - mean) * scale * (w ? w[i] : 1.0) + (b ? b[i] : 0.0);
}
static void layer_norm_d(void *out, const void *in, const rows *r) {
    const double *x = in;
    double mean = 0;
    for (int64_t i = 0; i < r->d; i++) mean += x[i] / (double)r->d;
    normalise_d(out, in, mean, r);
}
static void rms_norm_d(void *out, const void *in, const rows *r) { normalise_d(out, in, 0.0, r); }

/* -- entries ----------------------------------------------------------------------------------------- */
CDL_KERNEL(softmax) {
    (void)p;
    return n == 2 ? run_rows(v, 0, 0.0, softmax_f, softmax_d) : CDL_EARGS;
}
CDL_KERNEL(log_softmax) {
    (void)p;
    return n == 2 ? run_rows(v, 0, 0.0, log_softmax_f, log_softmax_d) : CDL_EARGS;
}
CDL_KERNEL(layer_norm) { return n == 4 ? run_rows(v, 2, p->f[0], layer_norm_f, layer_norm_d) : CDL_EARGS; }
CDL_KERNEL(rms_norm) { return n == 3 ? run_rows(v, 1, p->f[0], rms_norm_f, rms_norm_d) : CDL_EARGS; }
