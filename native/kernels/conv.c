/* conv.c: the operations `conv2d` and `conv2d_input`, and the engine behind them.
 *
 * Scratch of the thread: slot 0 patches, slot 2 the tile of the result; slot 3 of the caller: weights
 * laid out as [group][out channel][in channel, taps].
 */
#include "conv.h"

enum { OUT, IN, W, BIAS, FEW_TASKS = 8, FEW_ROWS = 32, LONG = 480 };

typedef struct job {
    const cdl_conv *c;
    const float *w;
    int64_t w_row, w_group, k;
    float *packed;
    bool direct;                /* tiles of one image, written in place */
    int64_t pixels, tile, tiles; /* direct: of one image, else of all */
    int64_t rows, blocks;        /* out channels of a task */
    int32_t status;              /* atomic */
} job;

/* -- weights ------------------------------------------------------------------------------------------ */
static void pack_rows(void *ctx, int64_t begin, int64_t end) {
    const job *j = ctx;
    const cdl_conv *c = j->c;
    for (int64_t row = begin; row < end; row++) {
        const float *w = (const float *)c->w + row / c->out_channels * c->w_g + row % c->out_channels * c->w_o;
        float *to = j->packed + row * j->k;
        w += c->y.tap * c->w_y + c->x.tap * c->w_x;
        for (int64_t i = 0; i < c->in_channels; i++)
            for (int64_t y = 0; y < c->y.taps; y++)
                for (int64_t x = 0; x < c->x.taps; x++)
                    *to++ = w[i * c->w_c + y * c->y.tap_step * c->w_y + x * c->x.tap_step * c->w_x];
    }
}

static bool weights_ready(const cdl_conv *c) {
    return c->y.tap == 0 && c->x.tap == 0 && c->y.tap_step == 1 && c->x.tap_step == 1 &&
           (c->x.taps == 1 || c->w_x == 1) && (c->y.taps == 1 || c->w_y == c->x.taps) &&
           (c->in_channels == 1 || c->w_c == c->y.taps * c->x.taps);
}

static cdl_status place_weights(job *j) {
    const cdl_conv *c = j->c;
    if (j->k == 0) return CDL_OK;
    if (weights_ready(c)) {
        j->w = c->w;
        j->w_row = c->w_o;
        j->w_group = c->w_g;
        return CDL_OK;
    }
    int64_t rows = c->groups * c->out_channels, count;
    if (!cdl_mul_ok(rows, j->k, &count) || count > INT64_MAX / 4) return CDL_ENOMEM;
    j->packed = cdl_scratch(3, (uint64_t)count * sizeof(float));
    if (!j->packed) return CDL_ENOMEM;
    j->w = j->packed;
    j->w_row = j->k;
    j->w_group = c->out_channels * j->k;
    cdl_parallel_for(rows, CDL_MAX((int64_t)1, 16384 / j->k), pack_rows, j);
    return CDL_OK;
}

/* -- tiles ---------------------------------------------------------------------------------------------- */
CDL_INLINE float bias_of(const cdl_conv *c, int64_t channel) {
    return c->bias ? ((const float *)c->bias)[channel * c->bias_c] : 0.0f;
}

/* A tile that was computed in place: only its bias is missing. */
static void add_bias(float *out, int64_t out_row, const cdl_conv *c, int64_t channel, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; r++, out += out_row) {
        const vf bias = v_set1(bias_of(c, channel + r));
        for (int64_t i = 0; i < count; i += CDL_LANES) v_store(out + i, v_load(out + i) + bias);
    }
}

/* A tile from scratch to its places. */
static void store(const float *from, int64_t from_row, const cdl_conv *c, int64_t channel, int64_t rows,
                  const cdl_conv_run *runs, int64_t n) {
    const int64_t step = c->x.to_step * c->out_x;
    for (int64_t o = 0; o < rows; o++, from += from_row) {
        const float bias = bias_of(c, channel + o);
        float *plane = (float *)c->out + (channel + o) * c->out_c + c->y.to * c->out_y + c->x.to * c->out_x;
        for (const cdl_conv_run *r = runs; r < runs + n; r++) {
            float *to = plane + r->b * c->out_b + r->y * c->y.to_step * c->out_y + r->x * step;
            const float *row = from + r->at;
            int64_t i = 0;
            if (step == 1) {
                const vf wide = v_set1(bias);
                for (; i + CDL_LANES <= r->count; i += CDL_LANES) v_store(to + i, v_load(row + i) + wide);
                if (i < r->count) v_store_n(to + i, v_load_n(row + i, r->count - i) + wide, r->count - i);
            } else {
                for (; i < r->count; i++) to[i * step] = row[i] + bias;
            }
        }
    }
}

/* Out channels [row, row + rows) of group g at these pixels, into c[rows][c_row]. */
static cdl_status multiply(const job *j, int64_t g, int64_t row, int64_t rows, const cdl_conv_run *runs, int64_t n,
                           float *out, int64_t out_row) {
    const cdl_conv *c = j->c;
    const int64_t count = runs[n - 1].at + runs[n - 1].count, panels = cdl_ceil_div(count, CDL_PANEL);
    const int64_t wide = (panels | 1) * CDL_PANEL;
    float *patches = cdl_scratch(0, (uint64_t)(CDL_MIN(j->k, (int64_t)CDL_KC) * wide) * sizeof(float) + 64);
    if (!patches) return CDL_ENOMEM;
    for (int64_t k = 0; k == 0 || k < j->k; k += CDL_KC) {
        const int64_t kc = CDL_MIN(j->k - k, (int64_t)CDL_KC);
        const float *in = (const float *)c->in + g * c->in_channels * c->in_c;
        CDL_NAME(cdl_conv_gather)(c, in, runs, n, k, kc, patches, wide);
        cdl_tile t = {.a = j->w ? j->w + g * j->w_group + row * j->w_row + k : patches, .b = patches, .c = out,
                      .a_row = j->w_row, .b_k = wide, .b_panel = CDL_PANEL, .c_row = out_row};
        CDL_NAME(cdl_tiles)(&t, rows, panels, kc, k ? CDL_TILE_ADD : CDL_TILE_SET);
    }
    return CDL_OK;
}

static cdl_status run_task(const job *j, int64_t index) {
    const cdl_conv *c = j->c;
    const int64_t row = index % j->blocks * j->rows, rows = CDL_MIN(j->rows, c->out_channels - row);
    const int64_t tile = index / j->blocks % j->tiles, rest = index / j->blocks / j->tiles;
    const int64_t g = j->direct ? rest % c->groups : rest, image = j->direct ? rest / c->groups : 0;
    const int64_t first = tile * j->tile, count = CDL_MIN(j->tile, j->pixels - first), channel = g * c->out_channels + row;
    cdl_conv_run runs[CDL_CONV_TILE];
    const int64_t n = CDL_NAME(cdl_conv_runs)(c, image * j->pixels + first, count, runs);
    if (j->direct) {
        float *out = (float *)c->out + image * c->out_b + channel * c->out_c + first;
        cdl_status s = multiply(j, g, row, rows, runs, n, out, c->out_c);
        if (s == CDL_OK && c->bias) add_bias(out, c->out_c, c, channel, rows, count);
        return s;
    }
    const int64_t wide = (cdl_ceil_div(count, CDL_PANEL) | 1) * CDL_PANEL;
    float *part = cdl_scratch(2, (uint64_t)(rows * wide) * sizeof(float));
    if (!part) return CDL_ENOMEM;
    cdl_status s = multiply(j, g, row, rows, runs, n, part, wide);
    if (s == CDL_OK) store(part, wide, c, channel, rows, runs, n);
    return s;
}

static void run_tasks(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        cdl_status s = run_task(j, i);
        if (s != CDL_OK) {
            __atomic_store_n(&j->status, (int32_t)s, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Tasks: groups by tiles by blocks of out channels; blocks only where there is little else to share out. */
static int64_t cut(job *j) {
    const cdl_conv *c = j->c;
    const int64_t image = c->y.out * c->x.out;
    j->direct = c->x.to_step == 1 && c->y.to_step == 1 && c->out_x == 1 && c->out_y == c->x.out &&
                image % CDL_PANEL == 0 && image >= LONG;
    j->pixels = j->direct ? image : image * c->batch;
    j->tile = CDL_CONV_TILE;
    j->tiles = cdl_ceil_div(j->pixels, j->tile);
    int64_t tasks = j->tiles * c->groups * (j->direct ? c->batch : 1);
    j->rows = c->out_channels;
    if (tasks < FEW_TASKS)
        j->rows = CDL_MAX((int64_t)FEW_ROWS, cdl_ceil_div(cdl_ceil_div(c->out_channels * tasks, FEW_TASKS), 8) * 8);
    j->blocks = cdl_ceil_div(c->out_channels, j->rows);
    return tasks * j->blocks;
}

cdl_status CDL_NAME(cdl_conv_run_engine)(const cdl_conv *c) {
    if (c->batch * c->groups * c->out_channels * c->y.out * c->x.out == 0) return CDL_OK;
    if (c->dtype == CDL_F64) {
        CDL_NAME(cdl_conv_plain)(c);
        return CDL_OK;
    }
    if (c->in_channels == 1 && c->out_channels == 1) return CDL_NAME(cdl_conv_depth)(c);
    job j = {.c = c, .k = c->in_channels * c->y.taps * c->x.taps};
    cdl_status s = place_weights(&j);
    if (s != CDL_OK) return s;
    int64_t tasks = cut(&j), macs = CDL_MIN(j.tile, j.pixels) * j.rows * CDL_MAX(j.k, (int64_t)1);
    cdl_parallel_for(tasks, CDL_MAX((int64_t)1, 50000 / macs), run_tasks, &j);
    return j.status;
}

/* -- the operations: i0 i1 stride, i2 i3 padding, i4 i5 dilation, i6 groups ------------------------------ */
typedef struct geometry {
    int64_t stride, padding, dilation, kernel, large, small; /* lengths of x and of conv2d's result */
} geometry;

static int64_t stride_of(const cdl_layout *l, int32_t axis) { return l->shape[axis] > 1 ? l->strides[axis] : 0; }

static bool is_empty(const cdl_layout *l) {
    return !(l->shape[0] && l->shape[1] && l->shape[2] && l->shape[3]);
}

static cdl_status check_axis(const geometry *g) {
    const int64_t most = (int64_t)1 << 31;
    int64_t reach, far;
    if (g->stride < 1 || g->stride > most || g->padding < 0 || g->padding > most || g->dilation < 1 ||
        g->dilation > most)
        return CDL_EPARAM;
    if (!cdl_mul_ok(g->kernel, g->dilation, &reach) || !cdl_mul_ok(g->small, g->stride, &far)) return CDL_ESHAPE;
    return reach > INT64_MAX / 4 || far > INT64_MAX / 4 || g->large > INT64_MAX / 4 ? CDL_ESHAPE : CDL_OK;
}

/* x [b,c,h,w] (the larger side), small [b,o,p,q], w [o,c/groups,kh,kw]. */
static cdl_status check(const cdl_view *v, int32_t x, int32_t small, const cdl_params *p, geometry *g) {
    const cdl_layout *lx = v[x].layout, *ls = v[small].layout, *lw = v[W].layout;
    if (lx->rank != 4 || ls->rank != 4 || lw->rank != 4) return CDL_ESHAPE;
    if (lx->dtype != CDL_F32 && lx->dtype != CDL_F64) return CDL_EDTYPE;
    if (ls->dtype != lx->dtype || lw->dtype != lx->dtype) return CDL_EDTYPE;
    const int64_t groups = p->i[6];
    if (groups < 1) return CDL_EPARAM;
    if (lx->shape[0] != ls->shape[0] || lw->shape[0] != ls->shape[1] || ls->shape[1] % groups) return CDL_ESHAPE;
    if (lx->shape[1] % groups || lw->shape[1] != lx->shape[1] / groups) return CDL_ESHAPE;
    if (lw->shape[2] < 1 || lw->shape[3] < 1) return CDL_ESHAPE;
    for (int32_t i = 0; i < 2; i++) {
        g[i] = (geometry){p->i[i], p->i[2 + i], p->i[4 + i], lw->shape[2 + i], lx->shape[2 + i], ls->shape[2 + i]};
        cdl_status s = check_axis(&g[i]);
        if (s != CDL_OK) return s;
    }
    return CDL_OK;
}

static cdl_status set_bias(cdl_conv *c, const cdl_view *v) {
    const cdl_layout *l = v->layout;
    if (!v->data) return CDL_OK;
    if (l->dtype != c->dtype) return CDL_EDTYPE;
    if (l->rank != 1 || l->shape[0] != c->groups * c->out_channels) return CDL_ESHAPE;
    c->bias = v->data;
    c->bias_c = stride_of(l, 0);
    return CDL_OK;
}

static void set_sides(cdl_conv *c, const cdl_view *v, int64_t groups) {
    const cdl_layout *in = v[IN].layout, *out = v[OUT].layout, *w = v[W].layout;
    *c = (cdl_conv){.batch = in->shape[0], .groups = groups, .in_channels = in->shape[1] / groups,
                    .out_channels = out->shape[1] / groups, .dtype = out->dtype, .in = v[IN].data, .w = v[W].data,
                    .out = v[OUT].data, .in_b = stride_of(in, 0), .in_c = stride_of(in, 1), .in_y = stride_of(in, 2),
                    .in_x = in->shape[3] > 1 ? in->strides[3] : 1, .w_y = stride_of(w, 2), .w_x = stride_of(w, 3),
                    .out_b = stride_of(out, 0), .out_c = stride_of(out, 1), .out_y = stride_of(out, 2),
                    .out_x = out->shape[3] > 1 ? out->strides[3] : 1};
    c->w_g = w->shape[0] / groups * stride_of(w, 0);
}

static cdl_conv_axis forward_axis(const geometry *g) {
    return (cdl_conv_axis){.in = g->large, .out = g->small, .stride = g->stride, .at = -g->padding,
                           .move = g->dilation, .taps = g->kernel, .tap_step = 1, .to_step = 1};
}

CDL_KERNEL(conv2d) {
    geometry g[2];
    cdl_conv c;
    if (n != 4) return CDL_EARGS;
    cdl_status s = check(v, IN, OUT, p, g);
    if (s != CDL_OK) return s;
    set_sides(&c, v, p->i[6]);
    c.w_o = stride_of(v[W].layout, 0);
    c.w_c = stride_of(v[W].layout, 1);
    if ((s = set_bias(&c, &v[BIAS])) != CDL_OK || is_empty(v[OUT].layout)) return s;
    if (!c.out || (c.in_channels && (!c.w || (!c.in && !is_empty(v[IN].layout))))) return CDL_EARGS;
    c.y = forward_axis(&g[0]);
    c.x = forward_axis(&g[1]);
    return CDL_NAME(cdl_conv_run_engine)(&c);
}

static int64_t gcd(int64_t a, int64_t b) {
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Positions remainder, remainder + stride, ... of x: result q + at + t * move meets them by these taps. */
static cdl_conv_axis gradient_axis(const geometry *g, int64_t remainder) {
    const int64_t common = gcd(g->stride, g->dilation), step = g->stride / common;
    cdl_conv_axis a = {.in = g->small, .stride = 1, .move = -g->dilation / common, .tap_step = step, .to = remainder,
                       .to_step = g->stride, .out = cdl_ceil_div(g->large - remainder, g->stride)};
    while (a.tap < step && a.tap < g->kernel && (remainder + g->padding - g->dilation * a.tap) % g->stride) a.tap++;
    if (a.tap < step && a.tap < g->kernel) a.taps = cdl_ceil_div(g->kernel - a.tap, step);
    a.at = (remainder + g->padding - g->dilation * a.tap) / g->stride;
    return a;
}

CDL_KERNEL(conv2d_input) {
    geometry g[2];
    cdl_conv c;
    if (n != 4) return CDL_EARGS;
    cdl_status s = check(v, OUT, IN, p, g);
    if (s != CDL_OK) return s;
    set_sides(&c, v, p->i[6]);
    c.w_o = stride_of(v[W].layout, 1);
    c.w_c = stride_of(v[W].layout, 0);
    if ((s = set_bias(&c, &v[BIAS])) != CDL_OK || is_empty(v[OUT].layout)) return s;
    if (!c.out || (c.in_channels && (!c.w || (!c.in && !is_empty(v[IN].layout))))) return CDL_EARGS;
    for (int64_t y = 0; s == CDL_OK && y < CDL_MIN(g[0].stride, g[0].large); y++)
        for (int64_t x = 0; s == CDL_OK && x < CDL_MIN(g[1].stride, g[1].large); x++) {
            c.y = gradient_axis(&g[0], y);
            c.x = gradient_axis(&g[1], x);
            s = CDL_NAME(cdl_conv_run_engine)(&c);
        }
    return s;
}
