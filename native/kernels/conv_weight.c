/* conv_weight.c: the operation `conv2d_weight`, the gradient of the weights.
 *
 * Lanes over out channels: for each tap y, the spread input (conv_spread.c), whose rows [channel, tap x]
 * lie evenly apart, times the gradient turned to panels [pixels][16]. Parts of the outputs (conv.h) are
 * shared out to a number of sums that depends on the shapes only, which are then added in order: so the
 * bits never depend on threads. conv_weight_taps.c has the other way round.
 *
 * Scratch of the thread: slot 0 the spread input, slot 1 panels of the gradient, slot 2 its rows; slot 3
 * of the caller: the sums, each [group][tap y][channel, tap x][out channels in whole panels].
 */
#include "conv.h"

enum {
    OUT, IN, GRAD,
    PIXELS = 224,      /* of a part, about: three panels of them stay in the nearest cache */
    SPREAD = 24576,    /* elements of spread input at a time, about */
    TASKS = 16, PARTS_A_SUM = 4
};

typedef struct job {
    const cdl_conv *c;      /* of the forward pass; `out` is the gradient of its result */
    cdl_conv grad;          /* the gradient as its own patches of one tap */
    int64_t k, panels;      /* rows of a group's result; its panels */
    cdl_conv_cut cut;
    int64_t sum_count, sum_size, channels, blocks; /* sums; in channels of a task */
    float *sums, *out;
    int32_t status;         /* atomic */
} job;

/* The gradient of a part as panels [pixels][16]. */
static cdl_status turn_gradient(const job *j, const cdl_conv_part *p, int64_t g, int64_t pixels, float *panels) {
    const cdl_conv *grad = &j->grad;
    const float *from = (const float *)grad->in + g * j->c->out_channels * grad->in_c;
    cdl_conv_spread s;
    if (CDL_NAME(cdl_conv_spread_make)(&s, grad, p) != CDL_OK) return CDL_ENOMEM;
    float *rows = cdl_scratch(2, (uint64_t)(j->c->out_channels * pixels + CDL_CONV_SLACK) * sizeof(float));
    if (!rows) return CDL_ENOMEM;
    CDL_NAME(cdl_conv_spread_fill)(&s, grad, p, from, j->c->out_channels, rows);
    const cdl_matrix m = {rows, CDL_F32, j->c->out_channels, pixels, pixels, 1};
    CDL_NAME(cdl_pack_panels)(&m, 0, j->panels, 0, pixels, panels);
    return CDL_OK;
}

/* In channels [first, end) of one part, added to `sums` or setting them. */
static cdl_status sum_part(const job *j, const cdl_conv_part *p, int64_t g, int64_t first, int64_t end, float *sums,
                           cdl_tile_mode mode) {
    const cdl_conv *c = j->c;
    const int64_t pixels = p->images * p->rows * p->width, c_row = j->panels * CDL_PANEL;
    cdl_conv_spread s;
    if (CDL_NAME(cdl_conv_spread_make)(&s, c, p) != CDL_OK) return CDL_ENOMEM;
    const int64_t step = CDL_MIN(CDL_MAX(SPREAD / s.channel_size, (int64_t)1), end - first);
    int64_t size;
    if (!cdl_mul_ok(step, s.channel_size, &size) || size > INT64_MAX / 8) return CDL_ENOMEM;
    float *spread = cdl_scratch(0, ((uint64_t)size + CDL_CONV_SLACK) * sizeof(float));
    float *panels = cdl_scratch(1, (uint64_t)(c_row * pixels) * sizeof(float));
    if (!spread || !panels || turn_gradient(j, p, g, pixels, panels) != CDL_OK) return CDL_ENOMEM;
    const float *in = (const float *)c->in + g * c->in_channels * c->in_c;
    cdl_tile t = {.b = panels, .a_row = s.tap_size, .b_k = CDL_PANEL, .b_panel = pixels * CDL_PANEL, .c_row = c_row};
    for (int64_t i = first; i < end; i += step) {
        const int64_t count = CDL_MIN(step, end - i);
        CDL_NAME(cdl_conv_spread_fill)(&s, c, p, in + i * c->in_c, count, spread);
        for (int64_t y = 0; y < c->y.taps; y++) {
            t.a = spread + CDL_NAME(cdl_conv_spread_at)(&s, c, y, 0);
            t.c = sums + (y * c->in_channels + i) * c->x.taps * c_row;
            CDL_NAME(cdl_tiles)(&t, count * c->x.taps, j->panels, pixels, mode);
        }
    }
    return CDL_OK;
}

static cdl_status sum_task(void *ctx, int64_t index) {
    const job *j = ctx;
    const int64_t i = index % j->blocks * j->channels, end = CDL_MIN(i + j->channels, j->c->in_channels);
    const int64_t g = index / j->blocks % j->c->groups, sum = index / j->blocks / j->c->groups;
    const int64_t first = j->cut.count * sum / j->sum_count, last = j->cut.count * (sum + 1) / j->sum_count;
    float *sums = j->sums + sum * j->sum_size + g * j->k * j->panels * CDL_PANEL;
    for (int64_t at = first; at < last; at++) {
        const cdl_conv_part p = cdl_conv_part_at(j->c, &j->cut, at);
        const cdl_status s = sum_part(j, &p, g, i, end, sums, at > first ? CDL_TILE_ADD : CDL_TILE_SET);
        if (s != CDL_OK) return s;
    }
    return CDL_OK;
}

static void sum_tasks(void *ctx, int64_t begin, int64_t end) {
    cdl_each_task(ctx, &((job *)ctx)->status, sum_task, begin, end);
}

/* One channel and tap y: sums in order, then turned to [out channels][channel, tap y, tap x]. */
static void finish(void *ctx, int64_t begin, int64_t end) {
    const job *j = ctx;
    const cdl_conv *c = j->c;
    const int64_t c_row = j->panels * CDL_PANEL, size = c->x.taps * c_row;
    for (int64_t i = begin; i < end; i++) {
        float *total = j->sums + i * size;
        for (int64_t sum = 1; sum < j->sum_count; sum++)
            for (int64_t at = 0; at < size; at += CDL_LANES)
                v_store(total + at, v_load(total + at) + v_load(total + sum * j->sum_size + at));
        const int64_t channel = i % c->in_channels, y = i / c->in_channels % c->y.taps, g = i / c->in_channels / c->y.taps;
        float *to = j->out + g * c->out_channels * j->k + (channel * c->y.taps + y) * c->x.taps;
        for (int64_t o = 0; o < c->out_channels; o++, to += j->k)
            for (int64_t x = 0; x < c->x.taps; x++) to[x] = total[x * c_row + o];
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

static void cut(job *j) {
    const cdl_conv *c = j->c;
    j->cut = cdl_conv_cut_to(c, PIXELS);
    j->sum_count = CDL_MIN(cdl_ceil_div(TASKS, c->groups), cdl_ceil_div(j->cut.count, PARTS_A_SUM));
    const int64_t wanted = cdl_ceil_div((int64_t)cdl_threads() * 4, j->sum_count * c->groups);
    j->blocks = CDL_MIN(cdl_threads() > 1 ? wanted : 1, c->in_channels);
    j->channels = cdl_ceil_div(c->in_channels, j->blocks);
    j->blocks = cdl_ceil_div(c->in_channels, j->channels);
}

static cdl_status run(const cdl_conv *c, float *out) {
    job j = {.c = c, .out = out, .k = c->in_channels * c->y.taps * c->x.taps};
    as_patches(&j);
    if (c->out_channels <= CDL_PANEL / 2) return CDL_NAME(cdl_conv_weight_few)(c, &j.grad, out);
    if (taps_pay(c, j.k)) return CDL_NAME(cdl_conv_weight_taps)(c, &j.grad, out);
    j.panels = cdl_ceil_div(c->out_channels, CDL_PANEL);
    cut(&j);
    int64_t count, c_row = j.panels * CDL_PANEL;
    if (!cdl_mul_ok(c->groups * j.k, c_row, &j.sum_size) || !cdl_mul_ok(j.sum_size, j.sum_count, &count) ||
        count > INT64_MAX / 8)
        return CDL_ENOMEM;
    j.sums = cdl_scratch(3, (uint64_t)count * sizeof(float) + 64);
    if (!j.sums) return CDL_ENOMEM;
    cdl_parallel_for(j.blocks * c->groups * j.sum_count, 1, sum_tasks, &j);
    if (j.status != CDL_OK) return j.status;
    cdl_parallel_for(c->groups * c->y.taps * c->in_channels, cdl_grain(c->x.taps * c_row, j.sum_count, 1), finish, &j);
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
