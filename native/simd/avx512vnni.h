/* avx512vnni.h: sixteen lanes; AVX-512 F, BW, DQ, VL (x86-64-v4) and VNNI. */
#ifndef CDL_SIMD_AVX512VNNI_H
#define CDL_SIMD_AVX512VNNI_H
#include <immintrin.h>
#define CDL_LANES 16
#include "vector.h"

CDL_INLINE vf v_set1(float x) { return (vf)_mm512_set1_ps(x); }
CDL_INLINE vi vi_set1(int32_t x) { return (vi)_mm512_set1_epi32(x); }
CDL_INLINE __mmask16 v_first_n(int64_t n) { return (__mmask16)((1u << n) - 1u); }
CDL_INLINE vf v_load_n(const float *p, int64_t n) { return (vf)_mm512_maskz_loadu_ps(v_first_n(n), p); }
CDL_INLINE void v_store_n(float *p, vf v, int64_t n) { _mm512_mask_storeu_ps(p, v_first_n(n), (__m512)v); }
CDL_INLINE vf v_load_f16(const uint16_t *p) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
CDL_INLINE void v_store_f16(uint16_t *p, vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
CDL_VECTOR_HALF_N(f16)

CDL_INLINE vf v_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
CDL_INLINE vf v_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
CDL_INLINE vf v_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
CDL_INLINE vf v_sqrt(vf a) { return (vf)_mm512_sqrt_ps((__m512)a); }
#define CDL_ROUND(a, mode) ((vf)_mm512_roundscale_ps((__m512)(a), (mode) | _MM_FROUND_NO_EXC))
CDL_INLINE vf v_floor(vf a) { return CDL_ROUND(a, _MM_FROUND_TO_NEG_INF); }
CDL_INLINE vf v_ceil(vf a) { return CDL_ROUND(a, _MM_FROUND_TO_POS_INF); }
CDL_INLINE vf v_round(vf a) { return CDL_ROUND(a, _MM_FROUND_TO_NEAREST_INT); }
#undef CDL_ROUND
CDL_INLINE vi v_to_vi(vf a) { return (vi)_mm512_cvtps_epi32((__m512)a); }
CDL_INLINE vf vi_to_v(vi a) { return (vf)_mm512_cvtepi32_ps((__m512i)a); }

CDL_INLINE int v_any(vi mask) { return _mm512_movepi32_mask((__m512i)mask) != 0; }
#define CDL_ACROSS(name, op256, op)                                                                \
    CDL_INLINE float name(vf a) {                                                                  \
        __m256 q = op256(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1)); \
        __m128 h = op(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));                     \
        h = op(h, _mm_movehl_ps(h, h));                                                            \
        return _mm_cvtss_f32(op(h, _mm_movehdup_ps(h)));                                           \
    }
CDL_ACROSS(v_sum, _mm256_add_ps, _mm_add_ps)
CDL_ACROSS(v_hmax, _mm256_max_ps, _mm_max_ps)
CDL_ACROSS(v_hmin, _mm256_min_ps, _mm_min_ps)
#undef CDL_ACROSS
#endif
