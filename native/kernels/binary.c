/* binary.c: every CDL_BINARY row of ops.def, as three tile functions and a kernel each. */
#include "tile.h"
#include <math.h>

#define CDL_NONE 0
CDL_INLINE int64_t cdl_wrap_add(int64_t x, int64_t y) { return (int64_t)((uint64_t)x + (uint64_t)y); }
CDL_INLINE int64_t cdl_wrap_sub(int64_t x, int64_t y) { return (int64_t)((uint64_t)x - (uint64_t)y); }
CDL_INLINE int64_t cdl_wrap_mul(int64_t x, int64_t y) { return (int64_t)((uint64_t)x * (uint64_t)y); }
CDL_INLINE double cdl_maximum_f64(double x, double y) { return x > y || x != x ? x : y; }
CDL_INLINE double cdl_minimum_f64(double x, double y) { return x < y || x != x ? x : y; }

/* Towards minus infinity; the one quotient that does not fit wraps. */
CDL_INLINE int64_t cdl_floor_div(int64_t x, int64_t y, int32_t *status) {
    if (y == 0) {
        *status = CDL_EDIVZERO;
        return 0;
    }
    if (y == -1) return (int64_t)(0u - (uint64_t)x);
    int64_t q = x / y;
    return q - (x % y != 0 && (x < 0) != (y < 0));
}
/* rem: what is left of x after whole multiples of y, exactly, with the sign of y. floor_div: how many
 * multiples those are; x / y rounded down would count one too many where the quotient rounds up. */
#define CDL_FLOORED(T, suffix, fmod_, floor_, copysign_)                                            \
    CDL_INLINE T cdl_rem_##suffix(T x, T y) {                                                      \
        T left = fmod_(x, y);                                                                      \
        if (left == 0) return copysign_(0, y);                                                     \
        return (left < 0) != (y < 0) ? left + y : left;                                            \
    }                                                                                              \
    CDL_INLINE T cdl_floor_div_##suffix(T x, T y) {                                                \
        T left = fmod_(x, y), quotient = x / y;                                                    \
        if (y == 0 || quotient != quotient) return quotient;                                       \
        T whole = (x - left) / y;                                                                  \
        if (left != 0 && (left < 0) != (y < 0)) whole -= 1;                                        \
        if (whole == 0) return copysign_(0, quotient);                                             \
        T below = floor_(whole);                                                                   \
        return whole - below > (T)0.5 ? below + 1 : below;                                         \
    }
CDL_FLOORED(float, f32, fmodf, floorf, copysignf)
CDL_FLOORED(double, f64, fmod, floor, copysign)
/* A function of floats for each lane: exact ones have the same bits on every ISA. */
CDL_INLINE vf cdl_lanes(vf x, vf y, float (*fn)(float, float)) {
    float a[CDL_LANES], b[CDL_LANES];
    v_store(a, x);
    v_store(b, y);
    for (int i = 0; i < CDL_LANES; i++) a[i] = fn(a[i], b[i]);
    return v_load(a);
}

/* Wraps; a negative power is CDL_EPARAM. */
CDL_INLINE int64_t cdl_int_pow(int64_t x, int64_t y, int32_t *status) {
    if (y < 0) {
        *status = CDL_EPARAM;
        return 0;
    }
    uint64_t r = 1, b = (uint64_t)x;
    for (; y; y >>= 1, b *= b)
        if (y & 1) r *= b;
    return (int64_t)r;
}

#define CDL_BINARY(name, vexpr, dexpr, iexpr)                                                      \
    static void name##_f(void *out, const void *in1, const void *in2, int64_t n, int32_t *status) { \
        float *o = out;                                                                            \
        const float *a = in1, *b = in2;                                                            \
        (void)status;                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + CDL_LANES <= n; i += CDL_LANES) {                                               \
            vf x = v_load(a + i), y = v_load(b + i);                                               \
            v_store(o + i, vexpr);                                                                 \
        }                                                                                          \
        if (i < n) {                                                                               \
            vf x = v_load_n(a + i, n - i), y = v_load_n(b + i, n - i);                             \
            v_store_n(o + i, vexpr, n - i);                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_d(void *out, const void *in1, const void *in2, int64_t n, int32_t *status) { \
        double *o = out;                                                                           \
        const double *a = in1, *b = in2;                                                           \
        (void)status;                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            double x = a[i], y = b[i];                                                             \
            o[i] = dexpr;                                                                          \
        }                                                                                          \
    }                                                                                              \
    static void name##_i(void *out, const void *in1, const void *in2, int64_t n, int32_t *status) { \
        int64_t *o = out;                                                                          \
        const int64_t *a = in1, *b = in2;                                                          \
        (void)status;                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            int64_t x = a[i], y = b[i];                                                            \
            o[i] = iexpr;                                                                          \
        }                                                                                          \
    }                                                                                              \
    CDL_KERNEL(name) {                                                                             \
        (void)p;                                                                                   \
        static const cdl_tile_fn fn[3] = {name##_f, name##_d, name##_i};                           \
        return CDL_NAME(cdl_elementwise)(v, n, 2, fn);                                             \
    }
#define CDL_UNARY(name, vexpr, dexpr, iexpr)
#define CDL_COMPARE(name, op)
#define CDL_OP(name, writes, kept)
#include "ops.def"
