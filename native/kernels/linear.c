/* linear.c: the operation `linear`: checks, then the product that suits the weight's dtype. */
#include "gemm.h"
#include "quant.h"

enum { OUT, X, W, BIAS };

static int64_t stride(const cdl_layout *l, int axis) { return l->shape[axis] > 1 ? l->strides[axis] : 0; }
/* Of the last axis: 1 where it has but one element, so that "contiguous" is one comparison. */
static int64_t inner_stride(const cdl_layout *l) { return l->shape[1] > 1 ? l->strides[1] : 1; }

static cdl_status check(const cdl_view *v, int32_t n, const cdl_params *p, bool *bias) {
    if (n < 3 || n > 4) return CDL_EARGS;
    const cdl_layout *out = v[OUT].layout, *x = v[X].layout, *w = v[W].layout;
    *bias = n == 4 && v[BIAS].data;
    if (!cdl_is_float(out->dtype) || !cdl_is_float(x->dtype)) return CDL_EDTYPE;
    if (*bias && !cdl_is_float(v[BIAS].layout->dtype)) return CDL_EDTYPE;
    if (out->rank != 2 || x->rank != 2 || w->rank != 2) return CDL_ESHAPE;
    if (x->shape[0] != out->shape[0] || w->shape[0] != out->shape[1] || w->shape[1] != x->shape[1]) return CDL_ESHAPE;
    if (*bias && (v[BIAS].layout->rank != 1 || v[BIAS].layout->shape[0] != out->shape[1])) return CDL_ESHAPE;
    if (p->i[0] < CDL_ACT_NONE || p->i[0] > CDL_ACT_SILU) return CDL_EPARAM;
    if (out->shape[0] == 0 || out->shape[1] == 0) return CDL_OK;
    if (!v[OUT].data || (x->shape[1] && (!v[X].data || !v[W].data))) return CDL_EARGS;
    return CDL_OK;
}

/* Rows of blocks: whole blocks, contiguous, each row at a block's start. */
static cdl_status linear_block(const cdl_view *v, int32_t n, const cdl_params *p) {
    const cdl_layout *w = v[W].layout;
    int64_t block = cdl_dtype_block(w->dtype);
    if (block <= 1) return CDL_EDTYPE;
    if (w->shape[1] % block || stride(w, 0) % block || inner_stride(w) != 1) return CDL_ESHAPE;
    return CDL_NAME(cdl_linear_block)(v, n, p);
}

CDL_KERNEL(linear) {
    bool bias;
    cdl_status s = check(v, n, p, &bias);
    if (s != CDL_OK) return s;
    const cdl_layout *out = v[OUT].layout, *x = v[X].layout, *w = v[W].layout;
    if (out->shape[0] == 0 || out->shape[1] == 0) return CDL_OK;
    if (!cdl_is_float(w->dtype) && w->dtype != CDL_F32X16) return linear_block(v, n, p);
    cdl_gemm g = {
        .m = out->shape[0], .n = out->shape[1], .k = x->shape[1],
        .a = {v[X].data, x->dtype, x->shape[0], x->shape[1], stride(x, 0), inner_stride(x)},
        .b = {v[W].data, w->dtype, w->shape[0], w->shape[1], stride(w, 0), inner_stride(w)},
        .c = v[OUT].data, .c_dtype = out->dtype, .c_row = stride(out, 0), .c_col = inner_stride(out),
        .act = (int32_t)p->i[0],
    };
    if (bias) {
        g.bias = v[BIAS].data;
        g.bias_dtype = v[BIAS].layout->dtype;
        g.bias_stride = stride(v[BIAS].layout, 0);
    }
    return CDL_NAME(cdl_gemm_run)(&g);
}
