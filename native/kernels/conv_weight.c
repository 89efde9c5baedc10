/* conv_weight.c: the operation `conv2d_weight`, the gradient of the weights.
 *
 * patches [channel, taps][pixels] times the gradient [pixels][out channels], lanes over out channels.
 * Pixels of all images are cut, in order, into tiles; where the weights alone give too few tasks, the
 * tiles are shared out to a number of parts that depends on the shapes only, which are then added in
 * order: so the bits never depend on threads.
 *
 * Scratch of the thread: slot 0 patches, slot 1 panels of the gradient, slot 2 its rows; slot 3 of the
 * caller: the parts, each [group][channel, taps][out channels in whole panels].
 */
#include "conv.h"

enum { OUT, IN, GRAD, ROWS = 96 /* at a time */, MOST_ROWS = 960 /* of a task */, TASKS = 16, TILES_A_PART = 4 };

typedef struct job {
    const cdl_conv *c;   /* of the forward pass; `out` is the gradient of its result */
    cdl_conv grad;       /* the gradient as its own patches of one tap */
    int64_t k, panels;   /* rows of a group's result; its panels */
    int64_t pixels, tiles, parts, rows, blocks, part_size;
    float *sums, *out;
    int32_t status;      /* atomic */
} job;

/* Rows of a tile of the gradient, [out channels][pixels], to panels [pixels][16]. */
static void pack_gradient(const job *j, const float *rows, int64_t wide, int64_t count, float *panels) {
    cdl_matrix m = {rows, CDL_F32, j->c->out_channels, count, wide, 1};
    for (int64_t p = 0; p < j->panels; p++)
        CDL_NAME(cdl_pack_panel)(&m, p * CDL_PANEL, 0, count, panels + p * count * CDL_PANEL);
}

static cdl_status sum_task(const job *j, int64_t index) {
    const cdl_conv *c = j->c;
    const int64_t row = index % j->blocks * j->rows, end = CDL_MIN(row + j->rows, j->k);
    const int64_t g = index / j->blocks % c->groups, part = index / j->blocks / c->groups;
    const int64_t first = j->tiles * part / j->parts, last = j->tiles * (part + 1) / j->parts;
    const int64_t wide = CDL_CONV_TILE, c_row = j->panels * CDL_PANEL;
    cdl_conv_run runs[CDL_CONV_TILE];
    float *patches = cdl_scratch(0, (uint64_t)(ROWS * wide) * sizeof(float));
    float *panels = cdl_scratch(1, (uint64_t)(c_row * wide) * sizeof(float));
    float *grad = cdl_scratch(2, (uint64_t)(c->out_channels * wide) * sizeof(float));
    if (!patches || !panels || !grad) return CDL_ENOMEM;
    const float *in = (const float *)c->in + g * c->in_channels * c->in_c;
    const float *out = (const float *)j->grad.in + g * c->out_channels * c->out_c;
    float *sums = j->sums + part * j->part_size + g * j->k * c_row;
    cdl_tile t = {.a = patches, .b = panels, .a_row = wide, .b_k = CDL_PANEL, .c_row = c_row};
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t at = tile * CDL_CONV_TILE, count = CDL_MIN((int64_t)CDL_CONV_TILE, j->pixels - at);
        const int64_t n = CDL_NAME(cdl_conv_runs)(c, at, count, runs);
        CDL_NAME(cdl_conv_gather)(&j->grad, out, runs, n, 0, c->out_channels, grad, wide);
        pack_gradient(j, grad, wide, count, panels);
        t.b_panel = count * CDL_PANEL;
        for (int64_t r = row; r < end; r += ROWS) {
            const int64_t rows = CDL_MIN((int64_t)ROWS, end - r);
            CDL_NAME(cdl_conv_gather)(c, in, runs, n, r, rows, patches, wide);
            t.c = sums + r * c_row;
            CDL_NAME(cdl_tiles)(&t, rows, j->panels, count, tile > first ? CDL_TILE_ADD : CDL_TILE_SET);
        }
    }
    return CDL_OK;
}

static void sum_tasks(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        cdl_status s = sum_task(j, i);
        if (s != CDL_OK) {
            __atomic_store_n(&j->status, (int32_t)s, __ATOMIC_RELAXED);
            return;
        }
    }
}

/* Parts of 16 rows in order, then turned to [out channels][channel, taps]. */
static void finish(void *ctx, int64_t begin, int64_t end) {
    const job *j = ctx;
    const int64_t c_row = j->panels * CDL_PANEL, blocks = cdl_ceil_div(j->k, CDL_PANEL);
    for (int64_t i = begin; i < end; i++) {
        const int64_t g = i / blocks, row = i % blocks * CDL_PANEL, rows = CDL_MIN(j->k - row, (int64_t)CDL_PANEL);
        float *total = j->sums + (g * j->k + row) * c_row;
        for (int64_t part = 1; part < j->parts; part++)
            for (int64_t at = 0; at < rows * c_row; at += CDL_LANES)
                v_store(total + at, v_load(total + at) + v_load(total + part * j->part_size + at));
        cdl_matrix m = {total, CDL_F32, j->c->out_channels, rows, 1, c_row};
        CDL_NAME(cdl_pack_rows)(&m, 0, j->c->out_channels, 0, rows, j->out + g * j->c->out_channels * j->k + row, j->k);
    }
}

static void as_patches(job *j) {
    const cdl_conv *c = j->c;
    j->grad = *c;
    j->grad.y = (cdl_conv_axis){.in = c->y.out, .out = c->y.out, .stride = 1, .taps = 1};
    j->grad.x = (cdl_conv_axis){.in = c->x.out, .out = c->x.out, .stride = 1, .taps = 1};
    j->grad.in = c->out;
    j->grad.in_b = c->out_b;
    j->grad.in_c = c->out_c;
    j->grad.in_y = c->out_y;
    j->grad.in_x = c->out_x;
}

/* Turning patches costs k a pixel, turning the gradient out_channels a pixel and the result in the end. */
static bool taps_pay(const cdl_conv *c, int64_t k) {
    const int64_t m = c->out_channels, pixels = c->batch * c->y.out * c->x.out;
    return k <= m || pixels / m < 4 * k / (k - m);
}

static cdl_status run(const cdl_conv *c, float *out) {
    job j = {.c = c, .out = out, .k = c->in_channels * c->y.taps * c->x.taps};
    as_patches(&j);
    if (taps_pay(c, j.k)) return CDL_NAME(cdl_conv_weight_taps)(c, &j.grad, out);
    j.panels = cdl_ceil_div(c->out_channels, CDL_PANEL);
    j.pixels = c->batch * c->y.out * c->x.out;
    j.tiles = cdl_ceil_div(j.pixels, CDL_CONV_TILE);
    const int64_t steps = cdl_ceil_div(j.k, ROWS);
    j.parts = CDL_MIN(cdl_ceil_div(TASKS, steps * c->groups), cdl_ceil_div(j.tiles, TILES_A_PART));
    j.rows = ROWS * CDL_MIN(MOST_ROWS / ROWS, CDL_MAX(steps * c->groups * j.parts / (cdl_threads() * 4), (int64_t)1));
    j.blocks = cdl_ceil_div(j.k, j.rows);
    int64_t count, c_row = j.panels * CDL_PANEL;
    if (!cdl_mul_ok(c->groups * j.k, c_row, &j.part_size) || !cdl_mul_ok(j.part_size, j.parts, &count) ||
        count > INT64_MAX / 8)
        return CDL_ENOMEM;
    j.sums = cdl_scratch(3, (uint64_t)count * sizeof(float) + 64);
    if (!j.sums) return CDL_ENOMEM;
    cdl_parallel_for(j.blocks * c->groups * j.parts, 1, sum_tasks, &j);
    if (j.status != CDL_OK) return j.status;
    const int64_t work = CDL_PANEL * c_row * j.parts;
    cdl_parallel_for(cdl_ceil_div(j.k, CDL_PANEL) * c->groups, CDL_MAX((int64_t)1, 32768 / work), finish, &j);
    return CDL_OK;
}

/* -- the operation --------------------------------------------------------------------------------------- */
static int64_t stride_of(const cdl_layout *l, int32_t axis) { return l->shape[axis] > 1 ? l->strides[axis] : 0; }

static int64_t count_of(const cdl_layout *l) {
    int64_t count = 1;
    for (int32_t i = 0; i < l->rank; i++) count *= l->shape[i];
    return count;
}

static bool row_major(const cdl_layout *l) {
    int64_t expect = 1;
    for (int32_t i = l->rank - 1; i >= 0; i--) {
        if (l->shape[i] > 1 && l->strides[i] != expect) return false;
        expect *= l->shape[i];
    }
    return true;
}

static cdl_status check(const cdl_view *v, const cdl_params *p) {
    const cdl_layout *w = v[OUT].layout, *x = v[IN].layout, *g = v[GRAD].layout;
    const int64_t most = (int64_t)1 << 31, groups = p->i[6];
    if (w->rank != 4 || x->rank != 4 || g->rank != 4 || (count_of(w) && !row_major(w))) return CDL_ESHAPE;
    if (w->dtype != CDL_F32 && w->dtype != CDL_F64) return CDL_EDTYPE;
    if (x->dtype != w->dtype || g->dtype != w->dtype) return CDL_EDTYPE;
    if (groups < 1) return CDL_EPARAM;
    if (x->shape[0] != g->shape[0] || w->shape[0] != g->shape[1] || g->shape[1] % groups) return CDL_ESHAPE;
    if (x->shape[1] % groups || w->shape[1] != x->shape[1] / groups) return CDL_ESHAPE;
    for (int32_t i = 0; i < 2; i++) {
        int64_t far;
        if (p->i[i] < 1 || p->i[i] > most || p->i[2 + i] < 0 || p->i[2 + i] > most || p->i[4 + i] < 1 ||
            p->i[4 + i] > most)
            return CDL_EPARAM;
        if (!cdl_mul_ok(w->shape[2 + i], p->i[4 + i], &far) || far > INT64_MAX / 4) return CDL_ESHAPE;
        if (!cdl_mul_ok(g->shape[2 + i], p->i[i], &far) || far > INT64_MAX / 4) return CDL_ESHAPE;
    }
    return CDL_OK;
}

static cdl_conv_axis axis(const cdl_view *v, const cdl_params *p, int32_t i) {
    return (cdl_conv_axis){.in = v[IN].layout->shape[2 + i], .out = v[GRAD].layout->shape[2 + i], .stride = p->i[i],
                           .at = -p->i[2 + i], .move = p->i[4 + i], .taps = v[OUT].layout->shape[2 + i],
                           .tap_step = 1, .to_step = 1};
}

CDL_KERNEL(conv2d_weight) {
    if (n != 3) return CDL_EARGS;
    cdl_status s = check(v, p);
    const cdl_layout *w = v[OUT].layout, *x = v[IN].layout, *g = v[GRAD].layout;
    if (s != CDL_OK || count_of(w) == 0) return s;
    if (!v[OUT].data) return CDL_EARGS;
    if (count_of(g) == 0 || count_of(x) == 0) {
        memset(v[OUT].data, 0, (size_t)(count_of(w) * cdl_dtype_size(w->dtype)));
        return CDL_OK;
    }
    if (!v[IN].data || !v[GRAD].data) return CDL_EARGS;
    cdl_conv c = {.y = axis(v, p, 0), .x = axis(v, p, 1), .batch = x->shape[0], .groups = p->i[6],
                  .in_channels = w->shape[1], .out_channels = w->shape[0] / p->i[6], .dtype = w->dtype,
                  .in = v[IN].data, .in_b = stride_of(x, 0), .in_c = stride_of(x, 1), .in_y = stride_of(x, 2),
                  .in_x = x->shape[3] > 1 ? x->strides[3] : 1, .out = v[GRAD].data, .out_b = stride_of(g, 0),
                  .out_c = stride_of(g, 1), .out_y = stride_of(g, 2), .out_x = g->shape[3] > 1 ? g->strides[3] : 1};
    if (w->dtype == CDL_F64) {
        CDL_NAME(cdl_conv_plain_weight)(&c, v[OUT].data);
        return CDL_OK;
    }
    if (c.in_channels == 1 && c.out_channels == 1) return CDL_NAME(cdl_conv_depth_weight)(&c, v[OUT].data);
    return run(&c, v[OUT].data);
}
