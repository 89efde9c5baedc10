/* conv_plain.c: convolution in f64, by its definition. */
#include "conv.h"

/* The sum under one output: `in` and `w` at its group, image and channel. */
static double one_output(const cdl_conv *c, const double *in, const double *w, int64_t y, int64_t x) {
    double sum = 0.0;
    for (int64_t i = 0; i < c->in_channels; i++)
        for (int64_t ty = 0; ty < c->y.taps; ty++) {
            const int64_t row = y * c->y.stride + c->y.at + ty * c->y.move;
            if (row < 0 || row >= c->y.in) continue;
            for (int64_t tx = 0; tx < c->x.taps; tx++) {
                const int64_t col = x * c->x.stride + c->x.at + tx * c->x.move;
                if (col < 0 || col >= c->x.in) continue;
                sum += in[i * c->in_c + row * c->in_y + col * c->in_x] *
                       w[i * c->w_c + (c->y.tap + ty * c->y.tap_step) * c->w_y + (c->x.tap + tx * c->x.tap_step) * c->w_x];
            }
        }
    return sum;
}

static void plain_planes(void *ctx, int64_t begin, int64_t end) {
    const cdl_conv *c = ctx;
    const int64_t channels = c->groups * c->out_channels;
    for (int64_t index = begin; index < end; index++) {
        const int64_t b = index / channels, o = index % channels, g = o / c->out_channels;
        const double *in = (const double *)c->in + b * c->in_b + g * c->in_channels * c->in_c;
        const double *w = (const double *)c->w + g * c->w_g + o % c->out_channels * c->w_o;
        const double bias = c->bias ? ((const double *)c->bias)[o * c->bias_c] : 0.0;
        for (int64_t y = 0; y < c->y.out; y++)
            for (int64_t x = 0; x < c->x.out; x++)
                ((double *)c->out)[b * c->out_b + o * c->out_c + (c->y.to + y * c->y.to_step) * c->out_y +
                                   (c->x.to + x * c->x.to_step) * c->out_x] = one_output(c, in, w, y, x) + bias;
    }
}

void CDL_NAME(cdl_conv_plain)(const cdl_conv *c) {
    cdl_parallel_for(c->batch * c->groups * c->out_channels, 1, plain_planes, (void *)c);
}

/* The sum over images and pixels for one weight; `in` and `grad` at their channels. */
static double one_weight(const cdl_conv *c, const double *in, const double *grad, int64_t ty, int64_t tx) {
    double sum = 0.0;
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t y = 0; y < c->y.out; y++) {
            const int64_t row = y * c->y.stride + c->y.at + ty * c->y.move;
            if (row < 0 || row >= c->y.in) continue;
            for (int64_t x = 0; x < c->x.out; x++) {
                const int64_t col = x * c->x.stride + c->x.at + tx * c->x.move;
                if (col < 0 || col >= c->x.in) continue;
                sum += in[b * c->in_b + row * c->in_y + col * c->in_x] *
                       grad[b * c->out_b + y * c->out_y + x * c->out_x];
            }
        }
    return sum;
}

typedef struct weights {
    const cdl_conv *c;
    double *out;
} weights;

static void plain_weights(void *ctx, int64_t begin, int64_t end) {
    const weights *j = ctx;
    const cdl_conv *c = j->c;
    const int64_t taps = c->y.taps * c->x.taps;
    for (int64_t index = begin; index < end; index++) {
        const int64_t tap = index % taps, i = index / taps % c->in_channels, o = index / taps / c->in_channels;
        const double *in = (const double *)c->in + (o / c->out_channels * c->in_channels + i) * c->in_c;
        const double *grad = (const double *)c->out + o * c->out_c;
        j->out[index] = one_weight(c, in, grad, tap / c->x.taps, tap % c->x.taps);
    }
}

void CDL_NAME(cdl_conv_plain_weight)(const cdl_conv *c, double *out) {
    weights j = {c, out};
    cdl_parallel_for(c->groups * c->out_channels * c->in_channels * c->y.taps * c->x.taps, 1, plain_weights, &j);
}
