/* conv_spread.c: the input of a tile of outputs, spread out along x: for each channel and tap x the
 * pixels that neighbouring outputs read lie side by side, images beside each other within a row.
 *
 * Taps y share these planes: where output row y reads plane row u, row y + 1 reads u + 1, whatever the
 * stride, if input rows are dealt out by their remainder to it. Only taps that lie further apart than
 * the tile is high have planes of their own.
 */
#include "conv.h"

CDL_INLINE int64_t row_at(const cdl_conv_axis *y, int64_t tap) { return y->at + tap * y->move; }

cdl_status CDL_NAME(cdl_conv_spread_make)(cdl_conv_spread *s, const cdl_conv *c, const cdl_conv_part *p) {
    const cdl_conv_axis *y = &c->y;
    const int64_t first = y->at, last = row_at(y, CDL_MAX(y->taps, (int64_t)1) - 1);
    int64_t shared, plane;
    *s = (cdl_conv_spread){.base = CDL_MIN(first, last), .width = p->images * p->width, .rows = p->rows};
    const int64_t reach = (CDL_MAX(first, last) - s->base) / y->stride;
    s->planes = y->taps;
    if (cdl_mul_ok(p->rows + reach, y->stride, &shared) && shared <= p->rows * y->taps) {
        s->shared = true;
        s->planes = y->stride;
        s->rows += reach;
    }
    if (!cdl_mul_ok(s->rows, s->width, &plane) || !cdl_mul_ok(plane, s->planes, &s->tap_size) ||
        !cdl_mul_ok(s->tap_size, c->x.taps, &s->channel_size))
        return CDL_ENOMEM;
    return CDL_OK;
}

int64_t CDL_NAME(cdl_conv_spread_at)(const cdl_conv_spread *s, const cdl_conv *c, int64_t tap_y, int64_t tap_x) {
    const int64_t ahead = row_at(&c->y, tap_y) - s->base, stride = c->y.stride;
    const int64_t plane = s->shared ? ahead % stride : tap_y, row = s->shared ? ahead / stride : 0;
    return tap_x * s->tap_size + (plane * s->rows + row) * s->width;
}

/* What lies at `n` outputs in a row: some of the margin, `count` inputs, more of the margin. Stores
 * whole vectors: what they write past the end is written again later. */
CDL_INLINE float *put_run(float *to, int64_t n, int64_t before, const float *from, int64_t step, int64_t count) {
    const int64_t end = before + count;
    int64_t i = 0;
    for (; i < before; i += CDL_LANES) v_store(to + i, v_zero());
    i = before;
    if (step == 1) {
        for (; i + CDL_LANES <= end; i += CDL_LANES, from += CDL_LANES) v_store(to + i, v_load(from));
        if (i < end) {
            v_store(to + i, v_load_n(from, end - i));
            i += CDL_LANES;
        }
    } else if (step == 2) {
        float *restrict even = to + before;
        const float *restrict in = from;
        for (int64_t j = 0; j < count; j++) even[j] = in[2 * j];
        i = end;
    } else {
        for (; i < end; i++, from += step) to[i] = *from;
    }
    for (; i < n; i += CDL_LANES) v_store(to + i, v_zero());
    return to + n;
}

/* First output whose input index u * stride + at is not below `bound`. */
CDL_INLINE int64_t first_at(int64_t stride, int64_t at, int64_t bound) {
    return at >= bound ? 0 : stride == 1 ? bound - at : cdl_ceil_div(bound - at, stride);
}

/* One plane of one channel and tap x. */
static float *put_plane(const cdl_conv_spread *s, const cdl_conv *c, const cdl_conv_part *p, const float *in,
                        int64_t tap_x, int64_t row, float *to) {
    const int64_t stride = c->x.stride, at = p->x * stride + c->x.at + tap_x * c->x.move, step = stride * c->in_x;
    const int64_t before = CDL_MIN(first_at(stride, at, 0), p->width);
    const int64_t count = CDL_MAX(CDL_MIN(first_at(stride, at, c->x.in), p->width) - before, (int64_t)0);
    in += p->image * c->in_b + (at + before * stride) * c->in_x;
    for (int64_t u = 0; u < s->rows; u++, row += c->y.stride) {
        const bool inside = row >= 0 && row < c->y.in && count > 0;
        if (!inside) {
            to = put_run(to, s->width, s->width, NULL, 1, 0);
            continue;
        }
        const float *from = in + row * c->in_y;
        for (int64_t b = 0; b < p->images; b++, from += c->in_b)
            to = put_run(to, p->width, before, from, step, count);
    }
    return to;
}

void CDL_NAME(cdl_conv_spread_fill)(const cdl_conv_spread *s, const cdl_conv *c, const cdl_conv_part *p, const float *in,
                                    int64_t channels, float *to) {
    for (int64_t i = 0; i < channels; i++, in += c->in_c)
        for (int64_t tap_x = 0; tap_x < c->x.taps; tap_x++)
            for (int64_t plane = 0; plane < s->planes; plane++) {
                const int64_t at = s->shared ? s->base + plane : row_at(&c->y, plane);
                to = put_plane(s, c, p, in, tap_x, p->y * c->y.stride + at, to);
            }
}
