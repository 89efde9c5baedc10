/* conv_gather.c: the patches under a tile of pixels, as rows of a matrix. */
#include "conv.h"

int64_t CDL_NAME(cdl_conv_runs)(const cdl_conv *c, int64_t first, int64_t count, cdl_conv_run *runs) {
    const int64_t width = c->x.out, rows = c->y.out;
    int64_t n = 0, row = first / width, x = first % width;
    for (int64_t at = 0; at < count; n++, row++, x = 0) {
        int64_t here = CDL_MIN(width - x, count - at);
        runs[n] = (cdl_conv_run){row / rows, row % rows, x, at, here};
        at += here;
    }
    return n;
}

CDL_INLINE void put_zeros(float *to, int64_t n) {
    for (; n >= CDL_LANES; n -= CDL_LANES, to += CDL_LANES) v_store(to, v_zero());
    if (n > 0) v_store_n(to, v_zero(), n);
}

CDL_INLINE void put_row(const float *from, int64_t step, float *to, int64_t n) {
    if (step == 1) {
        for (; n >= CDL_LANES; n -= CDL_LANES, from += CDL_LANES, to += CDL_LANES) v_store(to, v_load(from));
        if (n > 0) v_store_n(to, v_load_n(from, n), n);
    } else if (step == 2) {
        for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];
    }
}

/* The first q with q * stride + at >= bound. */
static int64_t first_at(int64_t stride, int64_t at, int64_t bound) {
    return at >= bound ? 0 : cdl_ceil_div(bound - at, stride);
}

/* One row of the matrix: tap (at_y, at_x) of the plane `in`, whose outputs [low, high) lie inside. */
static void gather_tap(const cdl_conv *c, const float *in, const cdl_conv_run *runs, int64_t n, int64_t at_y,
                       int64_t at_x, float *out) {
    const int64_t low = first_at(c->x.stride, at_x, 0), high = first_at(c->x.stride, at_x, c->x.in);
    const int64_t step = c->x.stride * c->in_x;
    for (const cdl_conv_run *r = runs; r < runs + n; r++) {
        const int64_t y = r->y * c->y.stride + at_y;
        float *to = out + r->at;
        if (y < 0 || y >= c->y.in) {
            put_zeros(to, r->count);
            continue;
        }
        int64_t begin = CDL_MIN(CDL_MAX(low - r->x, (int64_t)0), r->count);
        int64_t end = CDL_MAX(CDL_MIN(high - r->x, r->count), begin);
        const float *from = in + r->b * c->in_b + y * c->in_y;
        if (begin) put_zeros(to, begin);
        if (begin < end)
            put_row(from + ((r->x + begin) * c->x.stride + at_x) * c->in_x, step, to + begin, end - begin);
        if (end < r->count) put_zeros(to + end, r->count - end);
    }
}

void CDL_NAME(cdl_conv_gather)(const cdl_conv *c, const float *in, const cdl_conv_run *runs, int64_t n, int64_t k,
                               int64_t count, float *out, int64_t out_row) {
    const int64_t end = runs[n - 1].at + runs[n - 1].count, wide = cdl_ceil_div(end, CDL_PANEL) * CDL_PANEL;
    for (int64_t i = k; i < k + count; i++, out += out_row) {
        const int64_t tap_x = i % c->x.taps, tap_y = i / c->x.taps % c->y.taps;
        const float *plane = in + i / c->x.taps / c->y.taps * c->in_c;
        gather_tap(c, plane, runs, n, c->y.at + tap_y * c->y.move, c->x.at + tap_x * c->x.move, out);
        put_zeros(out + end, wide - end);
    }
}
