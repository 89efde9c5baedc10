/* quant_dequant.c: rows of blocks to f32, equal to GGUF's reference to the bit. */
#include "../simd/simd.h"
#include "quant.h"
#include "quant_formats.h"

typedef uint8_t vb __attribute__((vector_size(CDL_LANES)));

/* s * (u - offset) + m; SUB formats come with c folded into s, which is exact. */
CDL_INLINE void dequant_run(const uint8_t *u, int32_t n, int32_t offset, float s, float m, bool has_m, float *out) {
    for (int32_t i = 0; i < n; i += CDL_LANES) {
        vb bytes;
        memcpy(&bytes, u + i, sizeof bytes);
        vf w = v_set1(s) * vi_to_v(__builtin_convertvector(bytes, vi) - vi_set1(offset));
        v_store(out + i, has_m ? w + v_set1(m) : w);
    }
}

CDL_INLINE void dequant_as(int32_t dtype, const uint8_t *row, float *out, int64_t k) {
    for (int64_t b = 0; b < k / Q_SUB_BLOCK; b++, out += Q_SUB_BLOCK) {
        uint8_t u[32];
        q_integers(dtype, row, b, u);
        q_scale q = q_scales(dtype, row, b);
        if (q_shape(dtype) == Q_SUB) {
            dequant_run(u, 16, q_offset(dtype), q.s * (float)q.c[0], 0, false, out);
            dequant_run(u + 16, 16, q_offset(dtype), q.s * (float)q.c[1], 0, false, out + 16);
        } else {
            dequant_run(u, 32, q_offset(dtype), q.s, q.m, q_shape(dtype) == Q_MIN, out);
        }
    }
}

cdl_status CDL_NAME(cdl_dequant_row)(int32_t dtype, const void *row, float *out, int64_t k) {
    switch (dtype) {
#define CDL_ROW(name, shape, offset, tile) case CDL_##name: dequant_as(CDL_##name, row, out, k); return CDL_OK;
        CDL_QUANTS(CDL_ROW)
#undef CDL_ROW
    default: return CDL_EDTYPE;
    }
}
