/* conv_window.c: one channel a group where the kernel is a square of 3 or 5 and the step 1 or 2: the
 * layers of mobile nets. Forward, input gradient and weight gradient.
 *
 * Each plane is copied between margins of zeros that stand from plane to plane. Several rows of outputs
 * are made at once, with the weights in registers, so that each vector of input is read once for all
 * rows that it touches. Inputs `gap` apart (the gradient of a strided pass) have zeros in between; where
 * outputs step by two, columns are dealt into even and odd halves of a row.
 *
 * Scratch of the thread: slot 0 the plane.
 */
#include "conv.h"
#include "unroll.h"

enum { ROWS = 4 }; /* of outputs at once */

typedef struct window {
    int64_t k, step, gap;
    int64_t base_y, base_x;         /* coordinates of its first row and column */
    int64_t pitch, half;            /* of a row; of one half of it */
    int64_t row, row_end, col, col_end; /* inputs that lie inside */
    int64_t rows;
    float *data;
} window;

static int64_t lowest(const cdl_conv_axis *a) { return a->move < 0 ? a->at + (a->taps - 1) * a->move : a->at; }

bool CDL_NAME(cdl_conv_window_fits)(const cdl_conv *c, int64_t gap) {
    const cdl_conv_axis *y = &c->y, *x = &c->x;
    return (y->taps == 3 || y->taps == 5) && x->taps == y->taps && (y->move == 1 || y->move == -1) && x->move == y->move &&
           y->tap == 0 && x->tap == 0 && y->tap_step == 1 && x->tap_step == 1 && y->to_step == 1 && x->to_step == 1 &&
           y->stride == x->stride && y->stride * gap <= 2 && c->in_x == 1 && c->out_x == 1;
}

static cdl_status window_make(window *w, const cdl_conv *c, int64_t gap) {
    *w = (window){.k = c->y.taps, .step = c->y.stride, .gap = gap, .base_y = lowest(&c->y), .base_x = lowest(&c->x)};
    w->rows = (c->y.out - 1) * w->step + w->k;
    const int64_t cols = (c->x.out - 1) * w->step + w->k;
    w->half = cdl_ceil_div(cdl_ceil_div(cols, w->step) + 1, CDL_PANEL) * CDL_PANEL;
    w->pitch = w->half * w->step;
    w->row = w->base_y > 0 ? cdl_ceil_div(w->base_y, gap) : 0;
    w->col = w->base_x > 0 ? cdl_ceil_div(w->base_x, gap) : 0;
    w->row_end = CDL_MIN(c->y.in, cdl_ceil_div(CDL_MAX(w->rows + w->base_y, (int64_t)0), gap));
    w->col_end = CDL_MIN(c->x.in, cdl_ceil_div(CDL_MAX(cols + w->base_x, (int64_t)0), gap));
    int64_t size, bytes;
    if (!cdl_mul_ok(w->pitch, w->rows, &size) || !cdl_add_ok(size, 2 * CDL_PANEL, &size) ||
        !cdl_mul_ok(size, (int64_t)sizeof(float), &bytes) || !(w->data = cdl_scratch(0, (uint64_t)bytes)))
        return CDL_ENOMEM;
    memset(w->data, 0, (size_t)bytes);
    return CDL_OK;
}

static void window_fill(const window *w, const cdl_conv *c, const float *in) {
    const int64_t count = w->col_end - w->col, first = w->col * w->gap - w->base_x;
    if (count <= 0) return;
    for (int64_t y = w->row; y < w->row_end; y++) {
        const float *restrict from = in + y * c->in_y + w->col;
        float *restrict to = w->data + (y * w->gap - w->base_y) * w->pitch;
        int64_t i = 0;
        if (w->step == 2) {
            float *restrict a = to + first % 2 * w->half + first / 2;
            float *restrict b = to + (first + 1) % 2 * w->half + (first + 1) / 2;
            for (; i < count / 2; i++) a[i] = from[2 * i], b[i] = from[2 * i + 1];
            if (count % 2) a[i] = from[2 * i];
        } else if (w->gap == 2) {
            for (to += first; i < count; i++) to[2 * i] = from[i], to[2 * i + 1] = 0.0f;
        } else {
            for (to += first; i + CDL_LANES <= count; i += CDL_LANES) v_store(to + i, v_load(from + i));
            if (i < count) v_store_n(to + i, v_load_n(from + i, count - i), count - i);
        }
    }
}

/* The weights in the order of what they read. */
static void take_weights(const cdl_conv *c, const float *w, float *to) {
    const int64_t k = c->y.taps, sign = c->y.move;
    if (sign < 0) w += (k - 1) * (c->w_y + c->w_x);
    for (int64_t y = 0; y < k; y++, w += sign * c->w_y)
        for (int64_t x = 0; x < k; x++) *to++ = w[x * sign * c->w_x];
}

#define COLUMN(w, x, S) ((x) % (S) * (w)->half + (x) / (S)) /* of a row, where output 0 reads by tap x */

/* R rows of outputs from `from` on, the whole width. */
CDL_INLINE void outputs(const window *w, const float *from, const float *weights, float bias, float *out, int64_t out_y,
                        int64_t width, const int R, const int S, const int K) {
    vf taps[25];
    UNROLL
    for (int i = 0; i < K * K; i++) taps[i] = v_set1(weights[i]);
    for (int64_t at = 0; at < width; at += CDL_LANES, from += CDL_LANES) {
        vf acc[ROWS];
        UNROLL
        for (int r = 0; r < R; r++) acc[r] = v_set1(bias);
        UNROLL
        for (int y = 0; y < (R - 1) * S + K; y++)
            UNROLL
            for (int x = 0; x < K; x++) {
                const vf value = v_load(from + y * w->pitch + COLUMN(w, x, S));
                UNROLL
                for (int r = 0; r < R; r++)
                    if (y >= r * S && y < r * S + K) acc[r] = v_fma(taps[(y - r * S) * K + x], value, acc[r]);
            }
        const int64_t left = width - at;
        UNROLL
        for (int r = 0; r < R; r++)
            if (left < CDL_LANES) v_store_n(out + r * out_y + at, acc[r], left);
            else v_store(out + r * out_y + at, acc[r]);
    }
}

/* Sums of R rows of the gradient, one strip, by the inputs they read. */
CDL_INLINE void sum_strip(const window *w, const float *from, const float *grad, int64_t grad_y, int64_t left, vf *sums,
                          const int R, const int S, const int K, const bool whole) {
    vf g[ROWS];
    UNROLL
    for (int r = 0; r < R; r++) g[r] = whole ? v_load(grad + r * grad_y) : v_load_n(grad + r * grad_y, left);
    UNROLL
    for (int y = 0; y < (R - 1) * S + K; y++)
        UNROLL
        for (int x = 0; x < K; x++) {
            const float *at = from + y * w->pitch + COLUMN(w, x, S);
            const vf value = whole ? v_load(at) : v_load_n(at, left);
            UNROLL
            for (int r = 0; r < R; r++)
                if (y >= r * S && y < r * S + K) sums[(y - r * S) * K + x] = v_fma(g[r], value, sums[(y - r * S) * K + x]);
        }
}

/* Rows [y, end) of the gradient, R at a time; answers the first that is left. */
CDL_INLINE int64_t sum_rows(const window *w, const float *grad, int64_t grad_y, int64_t width, int64_t y, int64_t end,
                            vf *total, const int R, const int S, const int K) {
    vf sums[25];
    if (y + R > end) return y;
    UNROLL
    for (int i = 0; i < K * K; i++) sums[i] = total[i];
    for (; y + R <= end; y += R) {
        const float *from = w->data + y * S * w->pitch, *g = grad + y * grad_y;
        int64_t x = 0;
        for (; x + CDL_LANES <= width; x += CDL_LANES) sum_strip(w, from + x, g + x, grad_y, 0, sums, R, S, K, true);
        if (x < width) sum_strip(w, from + x, g + x, grad_y, width - x, sums, R, S, K, false);
    }
    UNROLL
    for (int i = 0; i < K * K; i++) total[i] = sums[i];
    return y;
}

typedef struct plane_fn {
    void (*outputs)(const window *w, const float *weights, float bias, float *out, int64_t out_y, int64_t rows,
                    int64_t width);
    void (*sums)(const window *w, const float *grad, int64_t grad_y, int64_t rows, int64_t width, vf *total);
} plane_fn;

/* Rows that are left over are made again with some before them: the same bits. */
#define PLANE(K, S)                                                                                \
    static void outputs_##K##_##S(const window *w, const float *weights, float bias, float *out, int64_t out_y, \
                                  int64_t rows, int64_t width) {                                   \
        for (int64_t y = 0; y < rows && rows < ROWS; y++)                                          \
            outputs(w, w->data + y * S * w->pitch, weights, bias, out + y * out_y, out_y, width, 1, S, K); \
        for (int64_t y = 0; y < rows && rows >= ROWS; y += ROWS) {                                 \
            y = CDL_MIN(y, rows - ROWS);                                                           \
            outputs(w, w->data + y * S * w->pitch, weights, bias, out + y * out_y, out_y, width, ROWS, S, K); \
        }                                                                                          \
    }                                                                                              \
    static void sums_##K##_##S(const window *w, const float *grad, int64_t grad_y, int64_t rows, int64_t width, \
                               vf *total) {                                                        \
        int64_t y = sum_rows(w, grad, grad_y, width, 0, rows, total, ROWS, S, K);                  \
        y = sum_rows(w, grad, grad_y, width, y, rows, total, 2, S, K);                             \
        sum_rows(w, grad, grad_y, width, y, rows, total, 1, S, K);                                 \
    }
PLANE(3, 1)
PLANE(3, 2)
PLANE(5, 1)
PLANE(5, 2)

static plane_fn pick(const window *w) {
    if (w->k == 3) return w->step == 1 ? (plane_fn){outputs_3_1, sums_3_1} : (plane_fn){outputs_3_2, sums_3_2};
    return w->step == 1 ? (plane_fn){outputs_5_1, sums_5_1} : (plane_fn){outputs_5_2, sums_5_2};
}

typedef struct job {
    const cdl_conv *c;
    int64_t gap;
    float *out;     /* gradient of the weights */
    int32_t status; /* atomic */
} job;

static void output_planes(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    const cdl_conv *c = j->c;
    window w;
    float weights[25];
    if (window_make(&w, c, j->gap) != CDL_OK) {
        cdl_fail(&j->status, CDL_ENOMEM);
        return;
    }
    const plane_fn fn = pick(&w);
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / c->groups, g = i % c->groups;
        take_weights(c, (const float *)c->w + g * c->w_g, weights);
        window_fill(&w, c, (const float *)c->in + b * c->in_b + g * c->in_c);
        fn.outputs(&w, weights, c->bias ? ((const float *)c->bias)[g * c->bias_c] : 0.0f,
                   (float *)c->out + b * c->out_b + g * c->out_c, c->out_y, c->y.out, c->x.out);
    }
}

/* A sum over each image, then of images in order, each lane for itself; the lanes last. */
static void weight_planes(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    const cdl_conv *c = j->c;
    window w;
    if (window_make(&w, c, 1) != CDL_OK) {
        cdl_fail(&j->status, CDL_ENOMEM);
        return;
    }
    const plane_fn fn = pick(&w);
    const int64_t taps = w.k * w.k;
    for (int64_t g = begin; g < end; g++) {
        vf total[25] = {{0}};
        for (int64_t b = 0; b < c->batch; b++) {
            vf sums[25] = {{0}};
            window_fill(&w, c, (const float *)c->in + b * c->in_b + g * c->in_c);
            fn.sums(&w, (const float *)c->out + b * c->out_b + g * c->out_c, c->out_y, c->y.out, c->x.out, sums);
            for (int64_t i = 0; i < taps; i++) total[i] += sums[i];
        }
        for (int64_t i = 0; i < taps; i++) j->out[g * taps + i] = v_sum(total[i]);
    }
}

cdl_status CDL_NAME(cdl_conv_window)(const cdl_conv *c, int64_t gap) {
    job j = {.c = c, .gap = gap};
    cdl_parallel_for(c->batch * c->groups, cdl_grain(c->y.out, c->x.out, c->y.taps * c->x.taps), output_planes, &j);
    return j.status;
}

cdl_status CDL_NAME(cdl_conv_window_weight)(const cdl_conv *c, float *out) {
    job j = {.c = c, .gap = 1, .out = out};
    cdl_parallel_for(c->groups, cdl_grain(c->y.out * c->x.out, c->batch, c->y.taps * c->x.taps), weight_planes, &j);
    return j.status;
}
