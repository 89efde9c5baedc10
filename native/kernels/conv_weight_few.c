/* conv_weight_few.c: the gradient of the weights of few out channels (and of few channels a group), where
 * lanes over channels would stand empty: lanes over pixels, one vector of sums a weight.
 *
 * Input and gradient of a part of the outputs are spread out (conv_spread.c), so that a weight is a sum of
 * products of two runs. Parts go in order, for one in channel and all out channels at a time; lanes are
 * added last.
 *
 * Scratch of the thread: slot 0 the spread input, slot 1 its table, slot 2 the gradient; slot 3 of the
 * caller: the sums, each [group][in channel][tap][out channel] vectors.
 */
#include "conv.h"
#include "unroll.h"

enum { PIXELS = 1024, /* of a part, about */ TASKS = 16 };

#if CDL_LANES == 16 || CDL_LANES == 4
enum { ROWS = 4, TAPS = 4 };
#else
enum { ROWS = 2, TAPS = 4 };
#endif

typedef struct job {
    const cdl_conv *c, *grad; /* of the forward pass; the gradient as its own patches */
    cdl_conv_cut cut;
    int64_t taps, sum_count, sum_size;
    float *sums, *out;
    int32_t status; /* atomic */
} job;

/* Sums of R out channels by T taps over `pixels`. */
CDL_INLINE void micro(const float *grad, const float *in, const int64_t *in_at, int64_t pixels, float *sums,
                      int64_t channels, const int R, const int T) {
    vf acc[ROWS][TAPS];
    UNROLL
    for (int i = 0; i < R * T; i++) acc[i / T][i % T] = v_load(sums + (i % T * channels + i / T) * CDL_LANES);
    const float *x[TAPS];
    UNROLL
    for (int t = 0; t < T; t++) x[t] = in + in_at[t];
    for (int64_t at = 0; at < pixels; at += CDL_LANES) {
        const int64_t left = pixels - at;
        const bool whole = left >= CDL_LANES;
        vf g[ROWS];
        UNROLL
        for (int r = 0; r < R; r++) g[r] = whole ? v_load(grad + r * pixels + at) : v_load_n(grad + r * pixels + at, left);
        UNROLL
        for (int t = 0; t < T; t++) {
            const vf value = whole ? v_load(x[t] + at) : v_load_n(x[t] + at, left);
            UNROLL
            for (int r = 0; r < R; r++) acc[r][t] = v_fma(g[r], value, acc[r][t]);
        }
    }
    UNROLL
    for (int i = 0; i < R * T; i++) v_store(sums + (i % T * channels + i / T) * CDL_LANES, acc[i / T][i % T]);
}

CDL_INLINE void rows_by_taps(const float *grad, const float *in, const int64_t *in_at, int64_t taps, int64_t pixels,
                             float *sums, int64_t channels, const int R) {
    int64_t t = 0;
    for (; t + TAPS <= taps; t += TAPS)
        micro(grad, in, in_at + t, pixels, sums + t * channels * CDL_LANES, channels, R, TAPS);
    for (; t < taps; t++) micro(grad, in, in_at + t, pixels, sums + t * channels * CDL_LANES, channels, R, 1);
}

static void sum_channel(const float *grad, int64_t channels, const float *in, const int64_t *in_at, int64_t taps,
                        int64_t pixels, float *sums) {
    int64_t o = 0;
    for (; o + ROWS <= channels; o += ROWS)
        rows_by_taps(grad + o * pixels, in, in_at, taps, pixels, sums + o * CDL_LANES, channels, ROWS);
    if (o + 2 <= channels) {
        rows_by_taps(grad + o * pixels, in, in_at, taps, pixels, sums + o * CDL_LANES, channels, 2);
        o += 2;
    }
    if (o < channels) rows_by_taps(grad + o * pixels, in, in_at, taps, pixels, sums + o * CDL_LANES, channels, 1);
}

/* One part of one group: all its weights. */
static cdl_status sum_part(const job *j, const cdl_conv_part *p, int64_t g, float *sums) {
    const cdl_conv *c = j->c, *grad = j->grad;
    const int64_t pixels = p->images * p->rows * p->width, channels = c->out_channels;
    cdl_conv_spread s, sg;
    if (CDL_NAME(cdl_conv_spread_make)(&s, c, p) != CDL_OK || CDL_NAME(cdl_conv_spread_make)(&sg, grad, p) != CDL_OK ||
        s.channel_size > INT64_MAX / 8)
        return CDL_ENOMEM;
    float *in = cdl_scratch(0, ((uint64_t)s.channel_size + CDL_CONV_SLACK) * sizeof(float));
    int64_t *in_at = cdl_scratch(1, (uint64_t)j->taps * sizeof(int64_t) + 64);
    float *rows = cdl_scratch(2, (uint64_t)(channels * pixels + CDL_CONV_SLACK) * sizeof(float));
    if (!in || !in_at || !rows) return CDL_ENOMEM;
    for (int64_t t = 0; t < j->taps; t++) in_at[t] = CDL_NAME(cdl_conv_spread_at)(&s, c, t / c->x.taps, t % c->x.taps);
    CDL_NAME(cdl_conv_spread_fill)(&sg, grad, p, (const float *)grad->in + g * channels * grad->in_c, channels, rows);
    const float *from = (const float *)c->in + g * c->in_channels * c->in_c;
    for (int64_t i = 0; i < c->in_channels; i++) {
        CDL_NAME(cdl_conv_spread_fill)(&s, c, p, from + i * c->in_c, 1, in);
        sum_channel(rows, channels, in, in_at, j->taps, pixels, sums + i * j->taps * channels * CDL_LANES);
    }
    return CDL_OK;
}

static void sum_tasks(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    const cdl_conv *c = j->c;
    for (int64_t index = begin; index < end; index++) {
        const int64_t g = index % c->groups, sum = index / c->groups, size = j->sum_size / c->groups;
        const int64_t first = j->cut.count * sum / j->sum_count, last = j->cut.count * (sum + 1) / j->sum_count;
        float *sums = j->sums + sum * j->sum_size + g * size;
        memset(sums, 0, (size_t)size * sizeof(float));
        for (int64_t at = first; at < last; at++) {
            const cdl_conv_part p = cdl_conv_part_at(j->c, &j->cut, at);
            const cdl_status s = sum_part(j, &p, g, sums);
            if (s != CDL_OK) {
                cdl_fail(&j->status, s);
                return;
            }
        }
    }
}

/* Sums in order, their lanes last; to [out channel][in channel, tap]. */
static void finish(const job *j) {
    const cdl_conv *c = j->c;
    const int64_t k = c->in_channels * j->taps, m = c->out_channels;
    for (int64_t i = 0; i < c->groups * k * m; i++) {
        vf total = v_load(j->sums + i * CDL_LANES);
        for (int64_t sum = 1; sum < j->sum_count; sum++) total += v_load(j->sums + sum * j->sum_size + i * CDL_LANES);
        j->out[(i / (k * m) * m + i % m) * k + i / m % k] = v_sum(total);
    }
}

cdl_status CDL_NAME(cdl_conv_weight_few)(const cdl_conv *c, const cdl_conv *grad, float *out) {
    job j = {.c = c, .grad = grad, .out = out, .taps = c->y.taps * c->x.taps};
    j.cut = cdl_conv_cut_to(c, PIXELS);
    j.sum_count = CDL_MIN(cdl_ceil_div(TASKS, c->groups), j.cut.count);
    int64_t count;
    if (!cdl_mul_ok(c->groups * c->in_channels * j.taps * c->out_channels, CDL_LANES, &j.sum_size) ||
        !cdl_mul_ok(j.sum_size, j.sum_count, &count) || count > INT64_MAX / 8)
        return CDL_ENOMEM;
    j.sums = cdl_scratch(3, (uint64_t)count * sizeof(float) + 64);
    if (!j.sums) return CDL_ENOMEM;
    cdl_parallel_for(c->groups * j.sum_count, 1, sum_tasks, &j);
    if (j.status == CDL_OK) finish(&j);
    return j.status;
}
