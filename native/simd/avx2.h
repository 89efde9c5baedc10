/* avx2.h: eight lanes; AVX2, FMA and F16C (x86-64-v3). */
#ifndef CDL_SIMD_AVX2_H
#define CDL_SIMD_AVX2_H
#include <immintrin.h>
#define CDL_LANES 8
#include "vector.h"

CDL_INLINE vf v_set1(float x) { return (vf)_mm256_set1_ps(x); }
CDL_INLINE vi vi_set1(int32_t x) { return (vi)_mm256_set1_epi32(x); }
CDL_INLINE __m256i v_first_n(int64_t n) { return (__m256i)(vi_iota() < vi_set1((int32_t)n)); }
CDL_INLINE vf v_load_n(const float *p, int64_t n) { return (vf)_mm256_maskload_ps(p, v_first_n(n)); }
CDL_INLINE void v_store_n(float *p, vf v, int64_t n) { _mm256_maskstore_ps(p, v_first_n(n), (__m256)v); }
CDL_INLINE vf v_load_f16(const uint16_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
CDL_INLINE void v_store_f16(uint16_t *p, vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
CDL_VECTOR_HALF_N(f16)

CDL_INLINE vf v_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
CDL_INLINE vf v_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
CDL_INLINE vf v_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
CDL_INLINE vf v_sqrt(vf a) { return (vf)_mm256_sqrt_ps((__m256)a); }
CDL_INLINE vf v_floor(vf a) { return (vf)_mm256_floor_ps((__m256)a); }
CDL_INLINE vf v_ceil(vf a) { return (vf)_mm256_ceil_ps((__m256)a); }
CDL_INLINE vf v_round(vf a) {
    return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
CDL_INLINE vi v_to_vi(vf a) { return (vi)_mm256_cvtps_epi32((__m256)a); }
CDL_INLINE vf vi_to_v(vi a) { return (vf)_mm256_cvtepi32_ps((__m256i)a); }

CDL_INLINE int v_any(vi mask) { return _mm256_movemask_ps((__m256)mask) != 0; }
#define CDL_ACROSS(name, op)                                                                       \
    CDL_INLINE float name(vf a) {                                                                  \
        __m128 h = op(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));     \
        h = op(h, _mm_movehl_ps(h, h));                                                            \
        return _mm_cvtss_f32(op(h, _mm_movehdup_ps(h)));                                           \
    }
CDL_ACROSS(v_sum, _mm_add_ps)
CDL_ACROSS(v_hmax, _mm_max_ps)
CDL_ACROSS(v_hmin, _mm_min_ps)
#undef CDL_ACROSS
#endif
