/* conv_engine.c: one engine of convolution, cut into tasks: a group, a part of the outputs, some of the
 * out channels. A task goes through the in channels in blocks of about CDL_CONV_K taps; each block is
 * spread out (conv_spread.c) and multiplied (conv_tile.c), and the blocks are added in order. So the
 * bits of an output depend on its channels and taps only, never on tasks or threads.
 *
 * Scratch of the thread: slot 0 the spread input, slot 1 its table, slot 2 the result where it cannot be
 * made in place; slot 3 of the caller: the table of the weights.
 */
#include "conv.h"

enum {
    CDL_CONV_K = 160,  /* taps of a block: the input of a tile of pixels stays in the nearest cache */
    PIXELS = 384,      /* of a task, about */
    RESULT = 65536,    /* elements of a task's result, about: they stay in the second-level cache */
    LEAST_ROWS = 32,   /* out channels of a task: fewer would not pay for spreading */
    TASKS = 4          /* a thread, at least, where there is enough to share out */
};

typedef struct job {
    const cdl_conv *c;
    int64_t in_channels, channels, taps; /* channels of a block */
    cdl_conv_cut cut;
    int64_t out_rows, blocks;            /* out channels of a task */
    const int64_t *w_at;
    int32_t status; /* atomic */
} job;

/* Weights of one block of channels, in the order of its taps. */
static cdl_status make_table(job *j) {
    const cdl_conv *c = j->c;
    int64_t count, bytes;
    if (!cdl_mul_ok(j->channels, j->taps, &count) || !cdl_mul_ok(count, sizeof(int64_t), &bytes)) return CDL_ENOMEM;
    int64_t *at = cdl_scratch(3, (uint64_t)bytes + 64);
    if (!at) return CDL_ENOMEM;
    j->w_at = at;
    for (int64_t i = 0; i < j->channels; i++)
        for (int64_t y = 0; y < c->y.taps; y++)
            for (int64_t x = 0; x < c->x.taps; x++)
                *at++ = i * c->w_c + (c->y.tap + y * c->y.tap_step) * c->w_y + (c->x.tap + x * c->x.tap_step) * c->w_x;
    return CDL_OK;
}

/* The same for where pixel 0 of a part reads; the spread input itself. */
static cdl_status place_input(const job *j, const cdl_conv_part *p, cdl_conv_spread *s, float **in, int64_t **in_at) {
    const cdl_conv *c = j->c;
    int64_t size, taps = j->channels * j->taps;
    if (CDL_NAME(cdl_conv_spread_make)(s, c, p) != CDL_OK) return CDL_ENOMEM;
    if (!cdl_mul_ok(s->channel_size, j->channels, &size) || size > INT64_MAX / 8) return CDL_ENOMEM;
    *in = cdl_scratch(0, ((uint64_t)size + CDL_CONV_SLACK + CDL_PANEL) * sizeof(float));
    int64_t *at = *in_at = cdl_scratch(1, (uint64_t)taps * sizeof(int64_t) + 64);
    if (!*in || !at) return CDL_ENOMEM;
    for (int64_t y = 0; y < c->y.taps; y++)
        for (int64_t x = 0; x < c->x.taps; x++) *at++ = CDL_NAME(cdl_conv_spread_at)(s, c, y, x);
    for (int64_t i = j->taps; i < taps; i++, at++) *at = at[-j->taps] + s->channel_size;
    return CDL_OK;
}

/* A result from scratch to its places. */
static void store(const cdl_conv *c, const cdl_conv_part *p, int64_t channel, int64_t rows, const float *from,
                  int64_t from_row) {
    const int64_t step = c->x.to_step * c->out_x;
    for (int64_t o = 0; o < rows; o++, from += from_row) {
        const float *run = from;
        float *plane = (float *)c->out + (channel + o) * c->out_c + (c->x.to + p->x * c->x.to_step) * c->out_x;
        for (int64_t y = p->y; y < p->y + p->rows; y++)
            for (int64_t b = p->image; b < p->image + p->images; b++, run += p->width) {
                float *to = plane + b * c->out_b + (c->y.to + y * c->y.to_step) * c->out_y;
                int64_t i = 0;
                if (step != 1) {
                    for (; i < p->width; i++) to[i * step] = run[i];
                    continue;
                }
                for (; i + CDL_LANES <= p->width; i += CDL_LANES) v_store(to + i, v_load(run + i));
                if (i < p->width) v_store_n(to + i, v_load_n(run + i, p->width - i), p->width - i);
            }
    }
}

/* Whether flat pixels of a part are whole panels of neighbours in memory. */
static bool in_place(const cdl_conv *c, const cdl_conv_part *p) {
    return p->images == 1 && c->x.to_step == 1 && c->out_x == 1 && p->rows * p->width % CDL_PANEL == 0 &&
           (p->rows == 1 || (c->y.to_step == 1 && c->out_y == p->width));
}

/* All blocks of in channels. */
static cdl_status multiply(const job *j, const cdl_conv_part *p, int64_t group, cdl_conv_tile *t) {
    const cdl_conv *c = j->c;
    const float *in = (const float *)c->in + group * c->in_channels * c->in_c;
    const int64_t pixels = p->images * p->rows * p->width;
    cdl_conv_spread spread;
    float *room;
    int64_t *in_at;
    if (j->in_channels == 0) {
        CDL_NAME(cdl_conv_tiles)(t, pixels);
        return CDL_OK;
    }
    if (place_input(j, p, &spread, &room, &in_at) != CDL_OK) return CDL_ENOMEM;
    t->in = room;
    t->in_at = in_at;
    for (int64_t i = 0; i < j->in_channels; i += j->channels) {
        const int64_t count = CDL_MIN(j->channels, j->in_channels - i);
        CDL_NAME(cdl_conv_spread_fill)(&spread, c, p, in + i * c->in_c, count, room);
        t->k = count * j->taps;
        CDL_NAME(cdl_conv_tiles)(t, pixels);
        t->w += count * c->w_c;
        t->add = true;
    }
    return CDL_OK;
}

static cdl_status run_task(void *ctx, int64_t index) {
    const job *j = ctx;
    const cdl_conv *c = j->c;
    const int64_t row = index % j->blocks * j->out_rows;
    index /= j->blocks;
    const int64_t group = index / j->cut.count, channel = group * c->out_channels + row;
    const cdl_conv_part p = cdl_conv_part_at(c, &j->cut, index % j->cut.count);
    cdl_conv_tile t = {.w = (const float *)c->w + group * c->w_g + row * c->w_o, .w_at = j->w_at, .w_row = c->w_o,
                       .rows = CDL_MIN(j->out_rows, c->out_channels - row), .bias_step = c->bias_c};
    if (c->bias) t.bias = (const float *)c->bias + channel * c->bias_c;
    const int64_t pixels = p.images * p.rows * p.width;
    if (in_place(c, &p)) {
        t.out = (float *)c->out + channel * c->out_c + p.image * c->out_b +
                (c->y.to + p.y * c->y.to_step) * c->out_y + c->x.to + p.x;
        t.out_row = c->out_c;
        return multiply(j, &p, group, &t);
    }
    t.out_row = (cdl_ceil_div(pixels, CDL_PANEL) | 1) * CDL_PANEL;
    t.out = cdl_scratch(2, (uint64_t)(t.rows * t.out_row) * sizeof(float));
    if (!t.out) return CDL_ENOMEM;
    cdl_status s = multiply(j, &p, group, &t);
    if (s == CDL_OK) store(c, &p, channel, t.rows, t.out, t.out_row);
    return s;
}

static void run_tasks(void *ctx, int64_t begin, int64_t end) {
    cdl_each_task(ctx, &((job *)ctx)->status, run_task, begin, end);
}

/* Rows of a part: about PIXELS of them, and whole panels where that can be had. */
static int64_t rows_of(int64_t width, int64_t rows) {
    int64_t step = 1, most = CDL_MAX(PIXELS / width, (int64_t)1);
    while (step * width % CDL_PANEL) step *= 2;
    if (most >= step) most = most / step * step;
    return CDL_MIN(most, rows);
}

static int64_t cut(job *j) {
    const cdl_conv *c = j->c;
    const int64_t image = c->y.out * c->x.out, threads = cdl_threads();
    const int64_t images = image < PIXELS ? CDL_MIN(cdl_ceil_div(PIXELS, image), c->batch) : 1;
    const int64_t width = CDL_MIN(c->x.out, (int64_t)PIXELS), rows = images > 1 ? c->y.out : rows_of(width, c->y.out);
    j->cut = cdl_conv_cut_by(c, images, rows, width);
    const int64_t parts = c->groups * j->cut.count;
    int64_t blocks = cdl_ceil_div(c->out_channels * images * rows * width, RESULT);
    if (threads > 1 && parts * blocks < threads * TASKS) blocks = cdl_ceil_div(threads * TASKS, parts);
    j->out_rows = CDL_MAX(cdl_ceil_div(cdl_ceil_div(c->out_channels, blocks), 8) * 8, (int64_t)LEAST_ROWS);
    j->out_rows = CDL_MIN(j->out_rows, c->out_channels);
    j->blocks = cdl_ceil_div(c->out_channels, j->out_rows);
    return parts * j->blocks;
}

cdl_status CDL_NAME(cdl_conv_run_engine)(const cdl_conv *c) {
    if (c->batch * c->groups * c->out_channels * c->y.out * c->x.out == 0) return CDL_OK;
    if (c->dtype == CDL_F64) {
        CDL_NAME(cdl_conv_plain)(c);
        return CDL_OK;
    }
    if (c->in_channels == 1 && c->out_channels == 1) return CDL_NAME(cdl_conv_depth)(c);
    job j = {.c = c, .taps = c->y.taps * c->x.taps};
    j.in_channels = j.taps ? c->in_channels : 0;
    if (j.in_channels) {
        const int64_t blocks = cdl_ceil_div(j.in_channels, CDL_MAX(CDL_CONV_K / j.taps, (int64_t)1));
        j.channels = cdl_ceil_div(j.in_channels, blocks);
        cdl_status s = make_table(&j);
        if (s != CDL_OK) return s;
    }
    const int64_t tasks = cut(&j), pixels = j.cut.images * j.cut.rows * j.cut.width;
    cdl_parallel_for(tasks, cdl_grain(pixels, j.out_rows, CDL_MAX(j.in_channels * j.taps, (int64_t)1)), run_tasks, &j);
    return j.status;
}
