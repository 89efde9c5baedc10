/* conv_depth.c: convolution of one channel a group, where a product would have a single row.
 *
 * A plane is copied once with its margins, its columns dealt out by their remainder to the stride, so
 * that the inputs of neighbouring outputs are neighbours for every tap: u * stride + f is at [f][u].
 *
 * Scratch of the thread: slot 0 the plane, slot 1 offsets of the taps, slot 2 a row of the result.
 */
#include "conv.h"

enum { AHEAD = 4 }; /* vectors of a row at once */

typedef struct plane {
    int64_t length;   /* of a dealt row, with room to read whole vectors */
    int64_t row;      /* all dealt rows of one input row */
    int64_t base;     /* input column at [0][0] */
    int64_t *offsets; /* of each tap x in a row */
    float *data;
} plane;

static cdl_status plane_make(plane *p, const cdl_conv *c) {
    const int64_t last = c->x.at + (c->x.taps - 1) * c->x.move, stride = c->x.stride;
    int64_t size;
    *p = (plane){.base = CDL_MIN(c->x.at, last)};
    p->length = c->x.out + (CDL_MAX(c->x.at, last) - p->base) / stride + CDL_LANES;
    if (!cdl_mul_ok(p->length, stride, &p->row) || !cdl_mul_ok(p->row, c->y.in, &size) || size > INT64_MAX / 8)
        return CDL_ENOMEM;
    p->data = cdl_scratch(0, (uint64_t)size * sizeof(float) + 64);
    p->offsets = cdl_scratch(1, (uint64_t)c->x.taps * sizeof(int64_t) + 64);
    if (!p->data || !p->offsets) return CDL_ENOMEM;
    for (int64_t t = 0; t < c->x.taps; t++) {
        const int64_t ahead = c->x.at + t * c->x.move - p->base;
        p->offsets[t] = ahead % stride * p->length + ahead / stride;
    }
    return CDL_OK;
}

static void plane_fill(const plane *p, const cdl_conv *c, const float *in) {
    const int64_t stride = c->x.stride, step = stride * c->in_x;
    float *to = p->data;
    for (int64_t y = 0; y < c->y.in; y++, in += c->in_y)
        for (int64_t f = 0; f < stride; f++, to += p->length) {
            const int64_t at = p->base + f;
            int64_t begin = CDL_MIN(at < 0 ? cdl_ceil_div(-at, stride) : 0, p->length);
            int64_t end = at >= c->x.in ? begin : CDL_MIN(cdl_ceil_div(c->x.in - at, stride), p->length);
            end = CDL_MAX(begin, end);
            for (int64_t i = 0; i < begin; i++) to[i] = 0.0f;
            const float *from = in + (at + begin * stride) * c->in_x;
            if (step == 1) memcpy(to + begin, from, (size_t)(end - begin) * sizeof(float));
            else
                for (int64_t i = begin; i < end; i++, from += step) to[i] = *from;
            for (int64_t i = end; i < p->length; i++) to[i] = 0.0f;
        }
}

/* Taps of the rows that lie inside, for output row y: [begin, end) is all that matters of them. */
static bool row_inside(const cdl_conv *c, int64_t y, int64_t tap, int64_t *row) {
    *row = y * c->y.stride + c->y.at + tap * c->y.move;
    return *row >= 0 && *row < c->y.in;
}

CDL_INLINE void outputs(const cdl_conv *c, const plane *p, const float *w, int64_t y, int64_t x, float bias, float *to,
                        int64_t left, const int V) {
    vf acc[AHEAD];
    for (int v = 0; v < V; v++) acc[v] = v_set1(bias);
    for (int64_t ty = 0; ty < c->y.taps; ty++) {
        int64_t row;
        if (!row_inside(c, y, ty, &row)) continue;
        const float *in = p->data + row * p->row + x;
        const float *wy = w + (c->y.tap + ty * c->y.tap_step) * c->w_y + c->x.tap * c->w_x;
        for (int64_t tx = 0; tx < c->x.taps; tx++) {
            const vf weight = v_set1(wy[tx * c->x.tap_step * c->w_x]);
            const float *from = in + p->offsets[tx];
            for (int v = 0; v < V; v++) acc[v] = v_fma(weight, v_load(from + v * CDL_LANES), acc[v]);
        }
    }
    if (left < V * CDL_LANES) v_store_n(to, acc[0], left);
    else
        for (int v = 0; v < V; v++) v_store(to + v * CDL_LANES, acc[v]);
}

static void output_row(const cdl_conv *c, const plane *p, const float *w, int64_t y, float bias, float *to) {
    int64_t x = 0;
    for (; x + AHEAD * CDL_LANES <= c->x.out; x += AHEAD * CDL_LANES)
        outputs(c, p, w, y, x, bias, to + x, AHEAD * CDL_LANES, AHEAD);
    for (; x < c->x.out; x += CDL_LANES) outputs(c, p, w, y, x, bias, to + x, c->x.out - x, 1);
}

typedef struct job {
    const cdl_conv *c;
    float *out;     /* gradient of the weights */
    int32_t status; /* atomic */
} job;

static cdl_status forward_plane(const cdl_conv *c, int64_t b, int64_t g) {
    plane p;
    cdl_status s = plane_make(&p, c);
    const int64_t step = c->x.to_step * c->out_x;
    float *row = step == 1 ? NULL : cdl_scratch(2, (uint64_t)c->x.out * sizeof(float) + 64);
    if (s != CDL_OK || (step != 1 && !row)) return CDL_ENOMEM;
    plane_fill(&p, c, (const float *)c->in + b * c->in_b + g * c->in_c);
    const float *w = (const float *)c->w + g * c->w_g;
    const float bias = c->bias ? ((const float *)c->bias)[g * c->bias_c] : 0.0f;
    for (int64_t y = 0; y < c->y.out; y++) {
        float *to = (float *)c->out + b * c->out_b + g * c->out_c + (c->y.to + y * c->y.to_step) * c->out_y +
                    c->x.to * c->out_x;
        output_row(c, &p, w, y, bias, row ? row : to);
        if (row)
            for (int64_t x = 0; x < c->x.out; x++) to[x * step] = row[x];
    }
    return CDL_OK;
}

static void forward_planes(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        cdl_status s = forward_plane(j->c, i / j->c->groups, i % j->c->groups);
        if (s != CDL_OK) cdl_fail(&j->status, s);
    }
}

static int64_t grain(const cdl_conv *c) {
    return CDL_MAX((int64_t)1, 50000 / CDL_MAX(c->y.out * c->x.out * c->y.taps * c->x.taps, (int64_t)1));
}

cdl_status CDL_NAME(cdl_conv_depth)(const cdl_conv *c) {
    if (CDL_NAME(cdl_conv_window_fits)(c, 1)) return CDL_NAME(cdl_conv_window)(c, 1);
    job j = {.c = c};
    cdl_parallel_for(c->batch * c->groups, grain(c), forward_planes, &j);
    return j.status;
}

/* -- the gradient of the weights: a sum over each image in f32, of images in f64 ---------------------------- */
static void add_row(const cdl_conv *c, const plane *p, const float *grad, int64_t y, vf *sums) {
    for (int64_t x = 0; x < c->x.out; x += CDL_LANES) {
        const int64_t n = CDL_MIN(c->x.out - x, (int64_t)CDL_LANES);
        const vf g = v_load_n(grad + x, n);
        for (int64_t ty = 0; ty < c->y.taps; ty++) {
            int64_t row;
            if (!row_inside(c, y, ty, &row)) continue;
            const float *in = p->data + row * p->row + x;
            for (int64_t tx = 0; tx < c->x.taps; tx++) {
                const vf value = n == CDL_LANES ? v_load(in + p->offsets[tx]) : v_load_n(in + p->offsets[tx], n);
                sums[ty * c->x.taps + tx] = v_fma(g, value, sums[ty * c->x.taps + tx]);
            }
        }
    }
}

static cdl_status weight_plane(const cdl_conv *c, int64_t g, float *out) {
    plane p;
    const int64_t taps = c->y.taps * c->x.taps, row_room = (c->x.out * 4 + 63) / 64 * 64;
    const int64_t total_room = (taps * 8 + 63) / 64 * 64; /* each is aligned, whatever the lanes */
    cdl_status s = plane_make(&p, c);
    char *room = cdl_scratch(2, (uint64_t)(row_room + total_room + taps * (int64_t)sizeof(vf)) + 64);
    if (s != CDL_OK || !room) return CDL_ENOMEM;
    float *row = (float *)room;
    double *totals = (double *)(room + row_room);
    vf *sums = (vf *)(room + row_room + total_room);
    for (int64_t t = 0; t < taps; t++) totals[t] = 0.0;
    for (int64_t b = 0; b < c->batch; b++) {
        plane_fill(&p, c, (const float *)c->in + b * c->in_b + g * c->in_c);
        for (int64_t t = 0; t < taps; t++) sums[t] = v_zero();
        for (int64_t y = 0; y < c->y.out; y++) {
            const float *grad = (const float *)c->out + b * c->out_b + g * c->out_c + y * c->out_y;
            if (c->out_x != 1) {
                for (int64_t x = 0; x < c->x.out; x++) row[x] = grad[x * c->out_x];
                grad = row;
            }
            add_row(c, &p, grad, y, sums);
        }
        for (int64_t t = 0; t < taps; t++) totals[t] += (double)v_sum(sums[t]);
    }
    for (int64_t t = 0; t < taps; t++) out[t] = (float)totals[t];
    return CDL_OK;
}

static void weight_planes(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t g = begin; g < end; g++) {
        cdl_status s = weight_plane(j->c, g, j->out + g * j->c->y.taps * j->c->x.taps);
        if (s != CDL_OK) cdl_fail(&j->status, s);
    }
}

cdl_status CDL_NAME(cdl_conv_depth_weight)(const cdl_conv *c, float *out) {
    if (CDL_NAME(cdl_conv_window_fits)(c, 1)) return CDL_NAME(cdl_conv_window_weight)(c, out);
    job j = {.c = c, .out = out};
    cdl_parallel_for(c->groups, 1, weight_planes, &j);
    return j.status;
}
