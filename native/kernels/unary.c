/* unary.c: every CDL_UNARY row of ops.def, as three tile functions and a kernel each. */
#include "tile.h"
#include <math.h>

#define CDL_NONE 0
CDL_INLINE int64_t cdl_wrap_neg(int64_t x) { return (int64_t)(0u - (uint64_t)x); }
CDL_INLINE int64_t cdl_wrap_mul(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }
CDL_INLINE double cdl_sign_f64(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x; }
CDL_INLINE double cdl_relu_f64(double x) { return x < 0 ? 0.0 : x; }
CDL_INLINE double cdl_gelu_f64(double x) { return x < -40.0 ? -0.0 : 0.5 * x * erfc(x * -0.70710678118654752440); }
CDL_INLINE double cdl_gelu_tanh_f64(double x) {
    if (x < -40.0) return -0.0;
    return x / (1.0 + exp(x * (x * x * 0.044715 + 1.0) * -1.5957691216057307117));
}

/* The loop over a tile of f32: whole vectors, then the rest in one. `expr` reads x. */
#define VF_LOOP(expr)                                                                              \
    int64_t i = 0;                                                                                 \
    for (; i + CDL_LANES <= n; i += CDL_LANES) {                                                   \
        vf x = v_load(a + i);                                                                      \
        v_store(o + i, expr);                                                                      \
    }                                                                                              \
    if (i < n) {                                                                                   \
        vf x = v_load_n(a + i, n - i);                                                             \
        v_store_n(o + i, expr, n - i);                                                             \
    }

#define CDL_UNARY(name, vexpr, dexpr, iexpr)                                                       \
    static void name##_f(void *out, const void *in, const void *b, int64_t n, int32_t *status) {   \
        float *o = out;                                                                            \
        const float *a = in;                                                                       \
        (void)b, (void)status;                                                                     \
        VF_LOOP(vexpr)                                                                             \
    }                                                                                              \
    static void name##_d(void *out, const void *in, const void *b, int64_t n, int32_t *status) {   \
        double *o = out;                                                                           \
        const double *a = in;                                                                      \
        (void)b, (void)status;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            double x = a[i];                                                                       \
            o[i] = dexpr;                                                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_i(void *out, const void *in, const void *b, int64_t n, int32_t *status) {   \
        int64_t *o = out;                                                                          \
        const int64_t *a = in;                                                                     \
        (void)b, (void)status;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int64_t x = a[i];                                                                      \
            (void)x;                                                                               \
            o[i] = iexpr;                                                                          \
        }                                                                                          \
    }                                                                                              \
    CDL_KERNEL(name) {                                                                             \
        (void)p;                                                                                   \
        const bool ints = __builtin_strcmp(#iexpr, "CDL_NONE") != 0;                               \
        const cdl_tile_fn fn[3] = {name##_f, name##_d, ints ? name##_i : NULL};                    \
        return CDL_NAME(cdl_elementwise)(v, n, 1, fn);                                             \
    }
#define CDL_BINARY(name, vexpr, dexpr, iexpr)
#define CDL_COMPARE(name, op)
#define CDL_OP(name, writes, kept)
#include "ops.def"
