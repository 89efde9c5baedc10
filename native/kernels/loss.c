/* loss.c: cross-entropy of rows of logits with class targets, and its gradient. Nothing of the size of
 * the logits is made but the gradient itself. Sums over a row and over rows are kept in f64, rows in
 * order, so that a mean over millions does not drift and does not depend on threads.
 *
 * Row r with target t, smoothing e and weights w: -(1 - e) w[t] logp[t] - e / c sum_j w[j] logp[j].
 * A row whose target is the ignored index counts for nothing. The mean divides by the sum of w[t] of
 * the rows that count; where none does it is 0.
 */
#include "tile.h"
#include <math.h>

enum { NONE = 0, SUM = 1, MEAN = 2 }; /* reductions */

typedef struct loss {
    const char *logits;
    const int64_t *targets;
    int64_t rows, classes, row_step, class_step, target_stride; /* steps in bytes */
    int32_t dtype;
    cdl_kind kind;
    const char *weight;
    int64_t weight_stride;
    double weight_sum, smoothing;
    int64_t ignored;
    double *losses, *weights; /* of each row */
    const char *grad;         /* of each loss, or of their sum or mean */
    int64_t grad_stride;
    char *out;
    int64_t out_row, out_class;
    double scale;             /* of the mean */
    int32_t status;           /* atomic */
} loss;

CDL_INLINE double number(const loss *l, const char *base, int64_t index) {
    return l->kind == CDL_KIND_F ? (double)((const float *)base)[index] : ((const double *)base)[index];
}
CDL_INLINE double weight_of(const loss *l, int64_t c) {
    return l->weight ? number(l, l->weight, c * l->weight_stride) : 1.0;
}

/* log of the sum of exponentials of a row, less its maximum: f32 exponentials, f64 sums. */
static double exponentials(const loss *l, const void *row, double *most) {
    double sum = 0.0;
    if (l->kind == CDL_KIND_D) {
        const double *x = row;
        *most = x[0];
        for (int64_t i = 1; i < l->classes; i++) *most = x[i] > *most || x[i] != x[i] ? x[i] : *most;
        for (int64_t i = 0; i < l->classes; i++) sum += exp(x[i] - *most);
        return log(sum);
    }
    const float *x = row;
    float top = x[0];
    for (int64_t i = 1; i < l->classes; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
    *most = (double)top;
    float terms[CDL_LANES];
    for (int64_t i = 0; i < l->classes; i += CDL_LANES) {
        const int64_t n = CDL_MIN(l->classes - i, (int64_t)CDL_LANES);
        v_store(terms, v_exp(v_load_n(x + i, n) - v_set1(top)));
        for (int64_t k = 0; k < n; k++) sum += (double)terms[k];
    }
    return log(sum);
}

/* A row of logits, contiguous, and its target; false where the row does not count. */
static bool row_at(loss *l, int64_t r, const void **row, int64_t *target) {
    *target = l->targets[r * l->target_stride];
    if (*target == l->ignored) return false;
    if (*target < 0 || *target >= l->classes) {
        cdl_fail(&l->status, CDL_ERANGE);
        return false;
    }
    void *buffer = cdl_scratch(0, (uint64_t)(l->classes * cdl_kind_size(l->kind)) + 64);
    if (!buffer) {
        cdl_fail(&l->status, CDL_ENOMEM);
        return false;
    }
    *row = CDL_NAME(cdl_row_load)(l->dtype, l->logits + r * l->row_step, l->class_step, l->classes, buffer);
    return true;
}

static void loss_rows(void *ctx, int64_t begin, int64_t end) {
    loss *l = ctx;
    for (int64_t r = begin; r < end; r++) {
        const void *row;
        int64_t target;
        double most, total, spread = 0.0;
        l->losses[r] = l->weights[r] = 0.0;
        if (!row_at(l, r, &row, &target)) continue;
        total = exponentials(l, row, &most);
        l->weights[r] = weight_of(l, target);
        if (l->smoothing != 0.0)
            for (int64_t i = 0; i < l->classes; i++) spread -= weight_of(l, i) * (number(l, row, i) - most - total);
        const double own = -l->weights[r] * (number(l, row, target) - most - total);
        l->losses[r] = (1.0 - l->smoothing) * own + (l->smoothing != 0.0 ? l->smoothing / (double)l->classes * spread : 0.0);
    }
}

/* -- shared checks ---------------------------------------------------------------------------------------- */
static cdl_status set_inputs(loss *l, const cdl_view *v, const cdl_params *p) {
    const cdl_layout *x = v[0].layout, *t = v[1].layout, *w = v[2].layout;
    if (x->rank != 2 || t->rank != 1 || x->shape[0] != t->shape[0] || x->shape[1] < 1) return CDL_ESHAPE;
    if ((x->dtype != CDL_F32 && x->dtype != CDL_F64) || t->dtype != CDL_I64) return CDL_EDTYPE;
    if (v[2].data && w->dtype != x->dtype) return CDL_EDTYPE;
    if (v[2].data && (w->rank != 1 || w->shape[0] != x->shape[1])) return CDL_ESHAPE;
    if (!(p->f[0] >= 0.0 && p->f[0] <= 1.0) || p->i[1] < NONE || p->i[1] > MEAN) return CDL_EPARAM;
    if (x->shape[0] && (!v[0].data || !v[1].data)) return CDL_EARGS;
    const int64_t size = cdl_dtype_size(x->dtype);
    *l = (loss){.logits = v[0].data, .targets = v[1].data, .rows = x->shape[0], .classes = x->shape[1],
                .row_step = x->shape[0] > 1 ? x->strides[0] * size : 0,
                .class_step = x->shape[1] > 1 ? x->strides[1] * size : size,
                .target_stride = t->shape[0] > 1 ? t->strides[0] : 0, .dtype = x->dtype, .kind = cdl_kind_of(x->dtype),
                .weight = v[2].data, .smoothing = p->f[0], .ignored = p->i[0], .scale = 1.0};
    if (l->weight) l->weight_stride = w->shape[0] > 1 ? w->strides[0] : 0;
    for (int64_t i = 0; i < l->classes; i++) l->weight_sum += weight_of(l, i);
    return CDL_OK;
}

static void put(const loss *l, char *to, int64_t step, int64_t i, double value) {
    if (l->kind == CDL_KIND_F) *(float *)(to + i * step) = (float)value;
    else *(double *)(to + i * step) = value;
}

static int64_t grain(const loss *l) { return CDL_MAX((int64_t)1, 8192 / l->classes); }

CDL_KERNEL(cross_entropy) {
    loss l;
    if (n != 4) return CDL_EARGS;
    cdl_status s = set_inputs(&l, v + 1, p);
    const cdl_layout *out = v[0].layout;
    if (s != CDL_OK) return s;
    if (out->dtype != l.dtype) return CDL_EDTYPE;
    if (p->i[1] == NONE ? out->rank != 1 || out->shape[0] != l.rows : out->rank != 0) return CDL_ESHAPE;
    if (!v[0].data && cdl_count(out)) return CDL_EARGS;
    if (l.rows > INT64_MAX / 32) return CDL_ENOMEM;
    l.losses = cdl_scratch(3, (uint64_t)l.rows * 2 * sizeof(double) + 64);
    if (!l.losses) return CDL_ENOMEM;
    l.weights = l.losses + l.rows;
    cdl_parallel_for(l.rows, grain(&l), loss_rows, &l);
    if (l.status != CDL_OK) return l.status;
    if (p->i[1] == NONE) {
        const int64_t step = out->shape[0] > 1 ? out->strides[0] * cdl_kind_size(l.kind) : 0;
        for (int64_t r = 0; r < l.rows; r++) put(&l, v[0].data, step, r, l.losses[r]);
        return CDL_OK;
    }
    double sum = 0.0, weights = 0.0;
    for (int64_t r = 0; r < l.rows; r++) {
        sum += l.losses[r];
        weights += l.weights[r];
    }
    put(&l, v[0].data, 0, 0, p->i[1] == SUM ? sum : weights == 0.0 ? 0.0 : sum / weights);
    return CDL_OK;
}

/* -- the gradient: scale * (a[j] summed over j, times softmax - a[j]), a the weight of each logp -------------- */
static void gradient_row(const loss *l, const void *row, int64_t target, double scale, char *to) {
    double most;
    const double even = l->smoothing / (double)l->classes, own = (1.0 - l->smoothing) * weight_of(l, target);
    const double total = exponentials(l, row, &most), all = own + even * l->weight_sum;
    float terms[CDL_LANES];
    for (int64_t i = 0; i < l->classes; i += CDL_LANES) {
        const int64_t n = CDL_MIN(l->classes - i, (int64_t)CDL_LANES);
        if (l->kind == CDL_KIND_F)
            v_store(terms, v_exp(v_load_n((const float *)row + i, n) - v_set1((float)(most + total))));
        for (int64_t k = 0; k < n; k++) {
            const int64_t j = i + k;
            const double p = l->kind == CDL_KIND_F ? (double)terms[k] : exp(number(l, row, j) - most - total);
            put(l, to, l->out_class, j, scale * (all * p - even * weight_of(l, j) - (j == target ? own : 0.0)));
        }
    }
}

static void gradient_rows(void *ctx, int64_t begin, int64_t end) {
    loss *l = ctx;
    for (int64_t r = begin; r < end; r++) {
        const void *row;
        int64_t target;
        char *to = l->out + r * l->out_row;
        if (row_at(l, r, &row, &target))
            gradient_row(l, row, target, l->scale * number(l, l->grad, r * l->grad_stride), to);
        else
            for (int64_t i = 0; i < l->classes; i++) put(l, to, l->out_class, i, 0.0);
    }
}

/* The sum of weights of the rows that count; the targets are checked on the way. */
static double weights_of_rows(loss *l) {
    double sum = 0.0;
    for (int64_t r = 0; r < l->rows; r++) {
        const int64_t t = l->targets[r * l->target_stride];
        if (t == l->ignored) continue;
        if (t < 0 || t >= l->classes) l->status = CDL_ERANGE;
        else sum += weight_of(l, t);
    }
    return sum;
}

CDL_KERNEL(cross_entropy_grad) {
    loss l;
    if (n != 5) return CDL_EARGS;
    cdl_status s = set_inputs(&l, v + 1, p);
    const cdl_layout *out = v[0].layout, *g = v[4].layout;
    if (s != CDL_OK) return s;
    if (out->dtype != l.dtype || g->dtype != l.dtype) return CDL_EDTYPE;
    if (!cdl_same_shape(out, v[1].layout)) return CDL_ESHAPE;
    if (p->i[1] == NONE ? g->rank != 1 || g->shape[0] != l.rows : g->rank != 0) return CDL_ESHAPE;
    if (l.rows == 0) return CDL_OK;
    if (!v[0].data || !v[4].data) return CDL_EARGS;
    const int64_t size = cdl_kind_size(l.kind);
    l.out = v[0].data;
    l.out_row = out->shape[0] > 1 ? out->strides[0] * size : 0;
    l.out_class = out->shape[1] > 1 ? out->strides[1] * size : size;
    l.grad = v[4].data;
    l.grad_stride = g->rank == 1 && g->shape[0] > 1 ? g->strides[0] : 0;
    const double weights = weights_of_rows(&l);
    if (l.status != CDL_OK) return l.status;
    if (p->i[1] == MEAN) l.scale = weights == 0.0 ? 0.0 : 1.0 / weights;
    cdl_parallel_for(l.rows, grain(&l), gradient_rows, &l);
    return l.status;
}
