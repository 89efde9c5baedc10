/* vector.h: the verbs that clang's and gcc's vector extensions express alike on every ISA. The
 * including header has defined CDL_LANES; 1 is legal and is the scalar meaning. */
#ifndef CDL_VECTOR_H
#define CDL_VECTOR_H
#include "../base/base.h"

typedef float vf __attribute__((vector_size(CDL_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(CDL_LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(CDL_LANES * 4)));
typedef uint16_t vh __attribute__((vector_size(CDL_LANES * 2)));

CDL_INLINE vi v_as_vi(vf a) { return (vi)a; }
CDL_INLINE vf vi_as_v(vi a) { return (vf)a; }
CDL_INLINE vf v_zero(void) { return (vf){0}; }

CDL_INLINE vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
CDL_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
CDL_INLINE vi vi_load(const int32_t *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}
CDL_INLINE void vi_store(int32_t *p, vi v) { memcpy(p, &v, sizeof v); }

CDL_INLINE vf v_abs(vf a) { return (vf)((vi)a & 0x7fffffff); }
CDL_INLINE vf v_select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
CDL_INLINE vi vi_select(vi mask, vi a, vi b) { return (mask & a) | (~mask & b); }
/* magnitude of a, sign of b */
CDL_INLINE vf v_copysign(vf a, vf b) {
    return (vf)(((vi)a & 0x7fffffff) | ((vi)b & INT32_MIN));
}
CDL_INLINE vi v_isnan(vf a) { return a != a; }

/* exact: a shift. */
CDL_INLINE vf v_load_bf16(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}
/* nearest even; NaN keeps its top bits and turns quiet */
CDL_INLINE void v_store_bf16(uint16_t *p, vf a) {
    vu u = (vu)a;
    vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    vi nan = a != a;
    vh h = __builtin_convertvector((vu)vi_select(nan, (vi)((u >> 16) | 64u), (vi)rounded), vh);
    memcpy(p, &h, sizeof h);
}

/* 0, 1, 2, ... */
CDL_INLINE vi vi_iota(void) {
    vi v;
    for (int i = 0; i < CDL_LANES; i++) v[i] = i;
    return v;
}

/* Short halves: the same conversions on the first n < CDL_LANES items, through a zeroed buffer. */
#define CDL_VECTOR_HALF_N(kind)                                                                    \
    CDL_INLINE vf v_load_##kind##_n(const uint16_t *p, int64_t n) {                                \
        uint16_t t[CDL_LANES] = {0};                                                               \
        for (int64_t i = 0; i < n; i++) t[i] = p[i];                                               \
        return v_load_##kind(t);                                                                   \
    }                                                                                              \
    CDL_INLINE void v_store_##kind##_n(uint16_t *p, vf v, int64_t n) {                             \
        uint16_t t[CDL_LANES];                                                                     \
        v_store_##kind(t, v);                                                                      \
        for (int64_t i = 0; i < n; i++) p[i] = t[i];                                               \
    }
CDL_VECTOR_HALF_N(bf16)
#endif
