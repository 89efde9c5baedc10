/* conv_weight_taps.c: the gradient of the weights, lanes over in channels and taps.
 *
 * out[out channel][channel, taps] = gradient [out channel][pixels] times patches turned to panels
 * [pixels][16 taps]: the result lies as the weights do, and the gradient is read where it is. Pays where
 * there are many out channels to each pixel's taps; conv_weight.c has the other way round and chooses.
 *
 * Pixels of all images are cut, in order, into tiles; tiles are shared out to parts whose number depends
 * on the shapes only, which are then added in order: so the bits never depend on threads.
 *
 * Scratch of the thread: slot 0 patches, slot 1 their panels, slot 2 the gradient; slot 3 of the caller:
 * the parts, each [group][out channel][taps in whole panels].
 */
#include "conv.h"

enum { PANELS = 6 /* at a time */, MOST_PANELS = 24 /* of a task */, TASKS = 16, TILES_A_PART = 4 };

typedef struct job {
    const cdl_conv *c, *grad; /* of the forward pass; the gradient as its own patches */
    int64_t k, panels, blocks, block, pixels, tiles, parts, part_size, row_size;
    bool in_place;            /* the gradient's pixels are neighbours in memory */
    float *sums, *out;
    int32_t status; /* atomic */
} job;

/* The gradient of a tile: where it is, or copied. */
static const float *take_gradient(const job *j, int64_t g, const cdl_conv_run *runs, int64_t n, int64_t *row) {
    const cdl_conv *c = j->c, *grad = j->grad;
    const float *from = (const float *)grad->in + g * c->out_channels * grad->in_c;
    if (j->in_place && runs[n - 1].b == runs[0].b) {
        *row = grad->in_c;
        return from + runs[0].b * grad->in_b + runs[0].y * grad->in_y + runs[0].x;
    }
    *row = CDL_CONV_TILE;
    float *to = cdl_scratch(2, (uint64_t)(c->out_channels * CDL_CONV_TILE) * sizeof(float));
    if (to) CDL_NAME(cdl_conv_gather)(grad, from, runs, n, 0, c->out_channels, to, CDL_CONV_TILE);
    return to;
}

/* Panels [panel, panel + panels) of one tile. */
static void sum_panels(const job *j, const float *in, const cdl_conv_run *runs, int64_t n, int64_t panel, int64_t panels,
                       float *patches, float *turned, cdl_tile *t, cdl_tile_mode mode) {
    const int64_t row = panel * CDL_PANEL, rows = CDL_MIN(panels * CDL_PANEL, j->k - row);
    const int64_t wide = CDL_CONV_TILE, count = runs[n - 1].at + runs[n - 1].count;
    CDL_NAME(cdl_conv_gather)(j->c, in, runs, n, row, rows, patches, wide);
    const cdl_matrix m = {patches, CDL_F32, rows, count, wide, 1};
    CDL_NAME(cdl_pack_panels)(&m, 0, panels, 0, count, turned);
    t->b_panel = count * CDL_PANEL;
    CDL_NAME(cdl_tiles)(t, j->c->out_channels, panels, count, mode);
}

static cdl_status sum_task(void *ctx, int64_t index) {
    const job *j = ctx;
    const cdl_conv *c = j->c;
    const int64_t panel = index % j->blocks * j->block, end = CDL_MIN(panel + j->block, j->panels);
    const int64_t g = index / j->blocks % c->groups, part = index / j->blocks / c->groups;
    const int64_t first = j->tiles * part / j->parts, last = j->tiles * (part + 1) / j->parts;
    cdl_conv_run runs[CDL_CONV_TILE];
    float *patches = cdl_scratch(0, PANELS * CDL_PANEL * CDL_CONV_TILE * sizeof(float));
    float *turned = cdl_scratch(1, PANELS * CDL_PANEL * CDL_CONV_TILE * sizeof(float));
    if (!patches || !turned) return CDL_ENOMEM;
    const float *in = (const float *)c->in + g * c->in_channels * c->in_c;
    float *sums = j->sums + part * j->part_size + g * c->out_channels * j->row_size;
    cdl_tile t = {.b = turned, .b_k = CDL_PANEL, .c_row = j->row_size};
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t at = tile * CDL_CONV_TILE, count = CDL_MIN((int64_t)CDL_CONV_TILE, j->pixels - at);
        const int64_t n = CDL_NAME(cdl_conv_runs)(c, at, count, runs);
        if (!(t.a = take_gradient(j, g, runs, n, &t.a_row))) return CDL_ENOMEM;
        for (int64_t p = panel; p < end; p += PANELS) {
            t.c = sums + p * CDL_PANEL;
            sum_panels(j, in, runs, n, p, CDL_MIN(end - p, (int64_t)PANELS), patches, turned, &t,
                       tile > first ? CDL_TILE_ADD : CDL_TILE_SET);
        }
    }
    return CDL_OK;
}

static void sum_tasks(void *ctx, int64_t begin, int64_t end) {
    cdl_each_task(ctx, &((job *)ctx)->status, sum_task, begin, end);
}

/* Rows of the parts, added in order, without what fills their last panel. */
static void finish(void *ctx, int64_t begin, int64_t end) {
    const job *j = ctx;
    for (int64_t i = begin; i < end; i++) {
        float *total = j->sums + i * j->row_size;
        for (int64_t part = 1; part < j->parts; part++)
            for (int64_t at = 0; at < j->row_size; at += CDL_LANES)
                v_store(total + at, v_load(total + at) + v_load(total + part * j->part_size + at));
        memcpy(j->out + i * j->k, total, (size_t)j->k * sizeof(float));
    }
}

cdl_status CDL_NAME(cdl_conv_weight_taps)(const cdl_conv *c, const cdl_conv *grad, float *out) {
    job j = {.c = c, .grad = grad, .out = out, .k = c->in_channels * c->y.taps * c->x.taps};
    j.panels = cdl_ceil_div(j.k, CDL_PANEL);
    const int64_t steps = cdl_ceil_div(j.panels, PANELS), wanted = cdl_threads() * 4;
    j.block = PANELS * CDL_MIN(MOST_PANELS / PANELS, CDL_MAX(steps * c->groups / wanted, (int64_t)1));
    j.blocks = cdl_ceil_div(j.panels, j.block);
    j.row_size = j.panels * CDL_PANEL;
    j.pixels = c->batch * c->y.out * c->x.out;
    j.tiles = cdl_ceil_div(j.pixels, CDL_CONV_TILE);
    j.parts = CDL_MIN(cdl_ceil_div(TASKS, steps * c->groups), cdl_ceil_div(j.tiles, TILES_A_PART));
    j.in_place = grad->in_x == 1 && (grad->in_y == c->x.out || c->y.out == 1);
    const int64_t rows = c->groups * c->out_channels;
    const bool direct = j.parts == 1 && j.row_size == j.k;
    int64_t count;
    if (!cdl_mul_ok(rows, j.row_size, &j.part_size) || !cdl_mul_ok(j.part_size, j.parts, &count) ||
        count > INT64_MAX / 8)
        return CDL_ENOMEM;
    j.sums = direct ? out : cdl_scratch(3, (uint64_t)count * sizeof(float) + 64);
    if (!j.sums) return CDL_ENOMEM;
    cdl_parallel_for(j.blocks * c->groups * j.parts, 1, sum_tasks, &j);
    if (j.status == CDL_OK && !direct) cdl_parallel_for(rows, cdl_grain(j.row_size, j.parts, 1), finish, &j);
    return j.status;
}
