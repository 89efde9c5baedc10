/* compare.c: every CDL_COMPARE row of ops.def. Both inputs of one dtype, out bool; exact in every
 * dtype; NaN is unequal to all. */
#include "tile.h"

typedef struct job {
    cdl_tile_fn fn;
    int32_t dtype;
} job;

static void compare_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    const job *j = ctx;
    _Alignas(64) double buffer[2][CDL_TILE];
    uint8_t bytes[CDL_TILE];
    const void *in[2] = {NULL, NULL};
    int32_t status = CDL_OK;
    for (int64_t at = 0; at < count; at += CDL_TILE) {
        const int64_t n = CDL_MIN(CDL_TILE, count - at);
        for (int k = 0; k < 2; k++)
            if (!at || step[k + 1]) /* a broadcast fills its buffer once */
                in[k] = CDL_NAME(cdl_tile_load)(j->dtype, data[k + 1] + at * step[k + 1], step[k + 1], n, buffer[k]);
        uint8_t *to = (uint8_t *)data[0] + at * step[0];
        j->fn(step[0] == 1 ? to : bytes, in[0], in[1], n, &status);
        if (step[0] == 1) continue;
        for (int64_t i = 0; i < n; i++) to[i * step[0]] = bytes[i];
    }
}

static cdl_status compare(const cdl_view *v, int32_t n, const cdl_tile_fn fn[3]) {
    if (n != 3) return CDL_EARGS;
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, v, 3);
    if (status) return status;
    const cdl_kind kind = cdl_kind_of(nd.dtype[1]);
    if (nd.dtype[0] != CDL_BOOL || kind == CDL_KIND_NONE || nd.dtype[2] != nd.dtype[1]) return CDL_EDTYPE;
    job j = {fn[kind], nd.dtype[1]};
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN, compare_run, &j);
    return CDL_OK;
}

#define CDL_COMPARE_TILE(name, type, op)                                                           \
    static void name(void *out, const void *in1, const void *in2, int64_t n, int32_t *status) {    \
        uint8_t *restrict o = out;                                                                 \
        const type *a = in1, *b = in2;                                                             \
        (void)status;                                                                              \
        for (int64_t i = 0; i < n; i++) o[i] = a[i] op b[i];                                       \
    }
#define CDL_COMPARE(name, op)                                                                      \
    CDL_COMPARE_TILE(name##_f, float, op)                                                          \
    CDL_COMPARE_TILE(name##_d, double, op)                                                         \
    CDL_COMPARE_TILE(name##_i, int64_t, op)                                                        \
    CDL_KERNEL(name) {                                                                             \
        (void)p;                                                                                   \
        static const cdl_tile_fn fn[3] = {name##_f, name##_d, name##_i};                           \
        return compare(v, n, fn);                                                                  \
    }
#define CDL_UNARY(name, vexpr, dexpr, iexpr)
#define CDL_BINARY(name, vexpr, dexpr, iexpr)
#define CDL_OP(name, writes, kept)
#include "ops.def"
