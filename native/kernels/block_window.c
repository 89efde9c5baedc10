/* block_window.c: windows on each channel alone of blocked images (block.h): the operations
 * `conv_block_depth` and `max_pool_block`. Sums and maxima go over the taps in order.
 */
#include "block.h"
#include <math.h>

enum { OUT, IN, W, BIAS };
enum { PIXELS = CDL_LANES == 16 ? 8 : CDL_LANES == 1 ? 1 : 4 };

typedef struct job {
    cdl_block_window g;
    cdl_block_end end;
    const float *in, *w, *bias; /* no weights: maxima */
    float *out, outside[CDL_B];
    int64_t taps, at[CDL_TAPS];
} job;

/* Where the first taps of PIXELS results read, or each tap of those that meet an edge. */
typedef struct tile {
    const float *base, *at[CDL_TAPS][PIXELS];
    int count;
} tile;

CDL_INLINE vf weigh(vf acc, vf x, const float *w, const bool max) {
    return max ? v_maximum(acc, x) : v_fma(x, v_load(w), acc);
}

CDL_INLINE void micro(const job *j, const tile *t, int64_t block, float *out, const bool max, const bool inside) {
    const int64_t shift = block * j->g.in.h * j->g.in.w * CDL_B, step = j->g.stride[1] * CDL_B;
    const float *w = max ? j->outside : j->w + block * j->taps * CDL_B, *base = t->base + shift;
    vf acc[PIXELS][CDL_VB];
    UNROLL
    for (int k = 0; k < PIXELS; k++)
        UNROLL
        for (int v = 0; v < CDL_VB; v++) acc[k][v] = v_set1(max ? -INFINITY : 0.0f);
    ROLLED
    for (int64_t tap = 0; tap < j->taps; tap++) {
        const float *first = base + j->at[tap];
        UNROLL
        for (int k = 0; k < PIXELS; k++) {
            const float *x = inside ? first + k * step : t->at[tap][k] ? t->at[tap][k] + shift : j->outside;
            UNROLL
            for (int v = 0; v < CDL_VB; v++)
                acc[k][v] = weigh(acc[k][v], v_load(x + v * CDL_LANES), w + tap * CDL_B + v * CDL_LANES, max);
        }
    }
    UNROLL
    for (int k = 0; k < PIXELS; k++)
        UNROLL
        for (int v = 0; v < CDL_VB; v++) {
            vf result = acc[k][v];
            if (j->bias) result += v_load(j->bias + block * CDL_B + v * CDL_LANES);
            if (k < t->count) v_store(out + k * CDL_B + v * CDL_LANES, cdl_block_finish(&j->end, result));
        }
}

/* PIXELS results of a row, all blocks; `out` is the first block's. */
static void run_tile(const job *j, const float *image, int64_t y, int64_t x, float *out) {
    const cdl_block_image *in = &j->g.in, *to = &j->g.out;
    const int64_t row = in->w * CDL_B, iy = cdl_block_y(&j->g, y), ix = cdl_block_x(&j->g, x);
    tile t;
    t.count = (int)CDL_MIN(PIXELS, to->w - x), t.base = image;
    const bool inside = t.count == PIXELS && cdl_block_inside(&j->g, iy, ix) &&
                        cdl_block_inside(&j->g, iy, ix + (PIXELS - 1) * j->g.stride[1]);
    if (inside) t.base = image + iy * row + ix * CDL_B;
    else for (int k = 0; k < PIXELS; k++) {
        const int64_t at = cdl_block_x(&j->g, x + CDL_MIN(k, t.count - 1));
        cdl_block_taps(&j->g, iy, at, row, CDL_B, image, &t.at[0][k], PIXELS);
    }
    for (int64_t block = 0; block < to->blocks; block++, out += to->h * to->w * CDL_B) {
        if (!j->w && inside) micro(j, &t, block, out, true, true);
        else if (!j->w) micro(j, &t, block, out, true, false);
        else if (inside) micro(j, &t, block, out, false, true);
        else micro(j, &t, block, out, false, false);
    }
}

/* A row of an image. */
static void run_task(const job *j, int64_t index) {
    const cdl_block_image *in = &j->g.in, *out = &j->g.out;
    const int64_t y = index % out->h, b = index / out->h;
    const float *image = j->in + b * in->blocks * in->h * in->w * CDL_B;
    float *to = j->out + (b * out->blocks * out->h + y) * out->w * CDL_B;
    for (int64_t x = 0; x < out->w; x += PIXELS) run_tile(j, image, y, x, to + x * CDL_B);
}

static void run_tasks(void *job_, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) run_task(job_, i);
}

static cdl_status run(job *j, const cdl_view *v, const cdl_params *p) {
    cdl_status s = cdl_block_window_of(&j->g, p);
    const cdl_block_image *in = &j->g.in, *out = &j->g.out;
    if (s != CDL_OK) return s;
    if (in->blocks != out->blocks) return CDL_ESHAPE;
    if (!(out->batch && out->blocks && out->h && out->w)) return CDL_OK;
    if (!v[OUT].data || !v[IN].data) return CDL_EARGS;
    j->in = v[IN].data, j->out = v[OUT].data;
    j->taps = j->g.taps[0] * j->g.taps[1];
    cdl_block_offsets(&j->g, in->w * CDL_B, CDL_B, j->at);
    cdl_parallel_for(out->batch * out->h, cdl_grain(out->w * j->taps, out->blocks, CDL_B), run_tasks, j);
    return CDL_OK;
}

static cdl_status images_of(job *j, const cdl_view *v) {
    const cdl_status s = cdl_block_image_of(&v[OUT], &j->g.out);
    return s == CDL_OK ? cdl_block_image_of(&v[IN], &j->g.in) : s;
}

CDL_KERNEL(conv_block_depth) {
    job j = {0};
    cdl_status s;
    if (n != 4) return CDL_EARGS;
    if ((s = images_of(&j, v)) != CDL_OK || (s = cdl_block_end_of(&j.end, p)) != CDL_OK) return s;
    const int64_t *w = v[W].layout->shape;
    if (!cdl_block_plain(&v[W], 4) || w[0] != j.g.in.blocks || w[3] != CDL_B) return CDL_ESHAPE;
    if (v[BIAS].data && (!cdl_block_plain(&v[BIAS], 1) || v[BIAS].layout->shape[0] != w[0] * CDL_B)) return CDL_ESHAPE;
    if (!v[W].data) return CDL_EARGS;
    j.g.taps[0] = w[1], j.g.taps[1] = w[2];
    j.w = v[W].data, j.bias = v[BIAS].data;
    return run(&j, v, p);
}

CDL_KERNEL(max_pool_block) {
    job j = {0};
    if (n != 2) return CDL_EARGS;
    const cdl_status s = images_of(&j, v);
    if (s != CDL_OK) return s;
    j.g.taps[0] = p->i[6], j.g.taps[1] = p->i[7];
    for (int i = 0; i < CDL_B; i++) j.outside[i] = -INFINITY;
    return run(&j, v, p);
}
