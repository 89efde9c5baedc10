/* block_window.c: windows on each channel alone of blocked images (block.h): the operations
 * `conv_block_depth` and `max_pool_block`. Sums and maxima go over the taps in order.
 */
#include "block.h"
#include <math.h>

enum { OUT, IN, W, BIAS };
enum { RUN = 32, PIXELS = CDL_LANES == 16 ? 8 : CDL_LANES == 1 ? 1 : 4 }; /* of a task, and of a tile in registers */

typedef struct job {
    cdl_block_window g;
    cdl_block_end end;
    const float *in, *w, *bias; /* no weights: maxima */
    float *out, outside[CDL_B];
    int64_t taps, runs;
} job;

/* PIXELS results of one block, of which `count` count. */
CDL_INLINE void micro(const job *j, const float *(*at)[RUN], int64_t block, float *out, int count, const bool max) {
    const int64_t shift = block * j->g.in.h * j->g.in.w * CDL_B;
    const float *w = max ? NULL : j->w + block * j->taps * CDL_B;
    vf acc[PIXELS][CDL_VB];
    UNROLL
    for (int k = 0; k < PIXELS; k++)
        UNROLL
        for (int v = 0; v < CDL_VB; v++) acc[k][v] = v_set1(max ? -INFINITY : 0.0f);
    ROLLED
    for (int64_t tap = 0; tap < j->taps; tap++)
        UNROLL
        for (int k = 0; k < PIXELS; k++) {
            const float *x = at[tap][k] ? at[tap][k] + shift : j->outside;
            UNROLL
            for (int v = 0; v < CDL_VB; v++) {
                const vf y = v_load(x + v * CDL_LANES);
                if (max) acc[k][v] = v_maximum(acc[k][v], y);
                else acc[k][v] = v_fma(y, v_load(w + tap * CDL_B + v * CDL_LANES), acc[k][v]);
            }
        }
    UNROLL
    for (int k = 0; k < PIXELS; k++)
        UNROLL
        for (int v = 0; v < CDL_VB; v++) {
            vf result = acc[k][v];
            if (j->bias) result += v_load(j->bias + block * CDL_B + v * CDL_LANES);
            if (k < count) v_store(out + k * CDL_B + v * CDL_LANES, cdl_block_finish(&j->end, result));
        }
}

/* A run of pixels of one row of an image, all blocks. */
static void run_task(const job *j, int64_t index) {
    const cdl_block_image *in = &j->g.in, *out = &j->g.out;
    const int64_t begin = index % j->runs * RUN, row = index / j->runs, y = row % out->h, b = row / out->h;
    const int64_t count = CDL_MIN(RUN, out->w - begin);
    const float *at[CDL_TAPS][RUN], *image = j->in + b * in->blocks * in->h * in->w * CDL_B;
    for (int64_t k = 0; k < RUN; k++)
        cdl_block_taps(&j->g, y, begin + CDL_MIN(k, count - 1), in->w * CDL_B, CDL_B, image, &at[0][k], RUN);
    for (int64_t block = 0; block < out->blocks; block++) {
        float *to = j->out + (((b * out->blocks + block) * out->h + y) * out->w + begin) * CDL_B;
        for (int64_t k = 0; k < count; k += PIXELS) {
            const float *(*from)[RUN] = (const float *(*)[RUN])(&at[0][k]);
            const int most = (int)CDL_MIN(PIXELS, count - k);
            if (j->w) micro(j, from, block, to + k * CDL_B, most, false);
            else micro(j, from, block, to + k * CDL_B, most, true);
        }
    }
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
    j->runs = cdl_ceil_div(out->w, RUN);
    const int64_t work = CDL_MIN(out->w, RUN) * j->taps;
    cdl_parallel_for(out->batch * out->h * j->runs, cdl_grain(work, out->blocks, CDL_B), run_tasks, j);
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
