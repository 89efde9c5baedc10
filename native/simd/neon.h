/* neon.h: four lanes; ARMv8-A, which has fused multiply-add, rounding and f16 conversion. */
#ifndef CDL_SIMD_NEON_H
#define CDL_SIMD_NEON_H
#include <arm_neon.h>
#define CDL_LANES 4
#include "vector.h"

CDL_INLINE vf v_set1(float x) { return (vf)vdupq_n_f32(x); }
CDL_INLINE vi vi_set1(int32_t x) { return (vi)vdupq_n_s32(x); }
CDL_INLINE vf v_load_n(const float *p, int64_t n) {
    float t[4] = {0};
    for (int64_t i = 0; i < n; i++) t[i] = p[i];
    return v_load(t);
}
CDL_INLINE void v_store_n(float *p, vf v, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = v[i];
}
CDL_INLINE vf v_load_f16(const uint16_t *p) { return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
CDL_INLINE void v_store_f16(uint16_t *p, vf v) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v)));
}
CDL_VECTOR_HALF_N(f16)

CDL_INLINE vf v_fma(vf a, vf b, vf c) {
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
CDL_INLINE vf v_max(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
CDL_INLINE vf v_min(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
CDL_INLINE vf v_sqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
CDL_INLINE vf v_floor(vf a) { return (vf)vrndmq_f32((float32x4_t)a); }
CDL_INLINE vf v_ceil(vf a) { return (vf)vrndpq_f32((float32x4_t)a); }
CDL_INLINE vf v_round(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
CDL_INLINE vi v_to_vi(vf a) { return (vi)vcvtnq_s32_f32((float32x4_t)a); }
CDL_INLINE vf vi_to_v(vi a) { return (vf)vcvtq_f32_s32((int32x4_t)a); }

CDL_INLINE int v_any(vi mask) { return vmaxvq_u32((uint32x4_t)mask) != 0; }
#define CDL_ACROSS(name, op)                                                                       \
    CDL_INLINE float name(vf a) {                                                                  \
        float32x2_t h = op(vget_low_f32((float32x4_t)a), vget_high_f32((float32x4_t)a));           \
        return vget_lane_f32(op(h, vrev64_f32(h)), 0);                                             \
    }
CDL_ACROSS(v_sum, vadd_f32)
CDL_ACROSS(v_hmax, vmax_f32)
CDL_ACROSS(v_hmin, vmin_f32)
#undef CDL_ACROSS
#endif
