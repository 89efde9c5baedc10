/* conv.c: the operations `conv2d` and `conv2d_input`: what they are asked for, as engines (conv.h). */
#include "conv.h"

enum { OUT, IN, W, BIAS };

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

/* The same in one piece, results `stride` apart. */
static cdl_conv_axis spaced_axis(const geometry *g) {
    return (cdl_conv_axis){.in = g->small, .out = g->large, .stride = 1, .at = g->padding, .move = -g->dilation,
                           .taps = g->kernel, .tap_step = 1, .to_step = 1};
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
    if (c.dtype == CDL_F32 && c.in_channels == 1 && c.out_channels == 1) {
        c.y = spaced_axis(&g[0]);
        c.x = spaced_axis(&g[1]);
        const int64_t gap = g[0].stride;
        if (gap == g[1].stride && CDL_NAME(cdl_conv_window_fits)(&c, gap)) return CDL_NAME(cdl_conv_window)(&c, gap);
    }
    for (int64_t y = 0; s == CDL_OK && y < CDL_MIN(g[0].stride, g[0].large); y++)
        for (int64_t x = 0; s == CDL_OK && x < CDL_MIN(g[1].stride, g[1].large); x++) {
            c.y = gradient_axis(&g[0], y);
            c.x = gradient_axis(&g[1], x);
            s = CDL_NAME(cdl_conv_run_engine)(&c);
        }
    return s;
}
