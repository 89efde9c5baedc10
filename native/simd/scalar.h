/* scalar.h: one lane; the meaning of every verb. Rounding needs no libm: adding and taking off 2^23
 * rounds a float below it to an integer, to nearest even. */
#ifndef CDL_SIMD_SCALAR_H
#define CDL_SIMD_SCALAR_H
#define CDL_LANES 1
#include "vector.h"

CDL_INLINE vf v_set1(float x) { return (vf){x}; }
CDL_INLINE vi vi_set1(int32_t x) { return (vi){x}; }
CDL_INLINE vf v_load_n(const float *p, int64_t n) { return n > 0 ? v_load(p) : v_zero(); }
CDL_INLINE void v_store_n(float *p, vf v, int64_t n) {
    if (n > 0) v_store(p, v);
}
CDL_INLINE vf v_load_f16(const uint16_t *p) { return (vf){cdl_f16_to_f32(*p)}; }
CDL_INLINE void v_store_f16(uint16_t *p, vf v) { *p = cdl_f32_to_f16(v[0]); }
CDL_VECTOR_HALF_N(f16)

CDL_INLINE vf v_fma(vf a, vf b, vf c) { return a * b + c; }
CDL_INLINE vf v_max(vf a, vf b) { return a[0] > b[0] ? a : b; }
CDL_INLINE vf v_min(vf a, vf b) { return a[0] < b[0] ? a : b; }
CDL_INLINE vf v_sqrt(vf a) { return (vf){__builtin_sqrtf(a[0])}; }

CDL_INLINE vf v_round(vf a) {
    vf magnitude = v_abs(a), rounded = (magnitude + 0x1p23f) - 0x1p23f;
    return v_select(magnitude < 0x1p23f, v_copysign(rounded, a), a);
}
CDL_INLINE vf v_floor(vf a) {
    vf r = v_round(a);
    return v_copysign(r - v_select(r > a, v_set1(1.0f), v_zero()), a);
}
CDL_INLINE vf v_ceil(vf a) {
    vf r = v_round(a);
    return v_copysign(r + v_select(r < a, v_set1(1.0f), v_zero()), a);
}
/* outside int32: INT32_MIN, as x86 (other ISAs may saturate) */
CDL_INLINE vi v_to_vi(vf a) {
    float r = v_round(a)[0];
    return vi_set1(r >= -0x1p31f && r < 0x1p31f ? (int32_t)r : INT32_MIN);
}
CDL_INLINE vf vi_to_v(vi a) { return v_set1((float)a[0]); }

CDL_INLINE int v_any(vi mask) { return mask[0] != 0; }
CDL_INLINE float v_sum(vf a) { return a[0]; }
CDL_INLINE float v_hmax(vf a) { return a[0]; }
CDL_INLINE float v_hmin(vf a) { return a[0]; }
#endif
