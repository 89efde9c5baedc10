/* linear_grad.c: the gradients of `linear` in one call: two products of gemm.c, and sums of columns.
 *
 * None of the operands is copied: gemm.c takes transposed ones as they lie.
 */
#include "gemm.h"
#include "../simd/simd.h"

enum { GX, GW, GB, G, X, W, VIEWS };
enum { SUM_LANES = 16 }; /* columns of g that are summed together */

static int64_t stride(const cdl_layout *l, int axis) { return l->shape[axis] > 1 ? l->strides[axis] : 0; }
static int64_t inner_stride(const cdl_layout *l) { return l->shape[1] > 1 ? l->strides[1] : 1; }
static bool is_matrix(const cdl_layout *l, int64_t rows, int64_t cols) {
    return l->rank == 2 && l->shape[0] == rows && l->shape[1] == cols;
}

static cdl_status check(const cdl_view *v, int32_t n) {
    if (n != VIEWS) return CDL_EARGS;
    const cdl_layout *g = v[G].layout, *x = v[X].layout, *w = v[W].layout;
    for (int32_t i = 0; i < n; i++)
        if (v[i].layout->dtype != CDL_F32) return CDL_EDTYPE;
    if (g->rank != 2 || x->rank != 2 || w->rank != 2) return CDL_ESHAPE;
    const int64_t rows = g->shape[0], outs = g->shape[1], ins = x->shape[1];
    if (!is_matrix(x, rows, ins) || !is_matrix(w, outs, ins)) return CDL_ESHAPE;
    if (v[GX].data && !is_matrix(v[GX].layout, rows, ins)) return CDL_ESHAPE;
    if (v[GW].data && !is_matrix(v[GW].layout, outs, ins)) return CDL_ESHAPE;
    if (v[GB].data && (v[GB].layout->rank != 1 || v[GB].layout->shape[0] != outs)) return CDL_ESHAPE;
    if (rows && outs && !v[G].data) return CDL_EARGS;
    if (v[GX].data && outs && ins && rows && !v[W].data) return CDL_EARGS;
    return v[GW].data && outs && ins && rows && !v[X].data ? CDL_EARGS : CDL_OK;
}

static cdl_matrix matrix(const cdl_view *v, bool turned) {
    const cdl_layout *l = v->layout;
    const int r = turned ? 1 : 0, c = 1 - r;
    cdl_matrix m = {v->data, l->dtype, l->shape[r], l->shape[c], 0, 0};
    m.row_stride = turned ? inner_stride(l) : stride(l, 0);
    m.col_stride = turned ? (l->shape[0] > 1 ? l->strides[0] : 1) : inner_stride(l);
    return m;
}

/* out = a b, b given as its transpose. */
static cdl_status product(const cdl_view *out, cdl_matrix a, cdl_matrix b) {
    const cdl_layout *l = out->layout;
    if (l->shape[0] == 0 || l->shape[1] == 0) return CDL_OK;
    cdl_gemm g = {.m = l->shape[0], .n = l->shape[1], .k = a.cols, .a = a, .b = b, .c = out->data,
                  .c_dtype = CDL_F32, .c_row = stride(l, 0), .c_col = inner_stride(l)};
    return CDL_NAME(cdl_gemm_run)(&g);
}

typedef struct sums {
    const float *g;
    float *out;
    int64_t rows, cols, row_stride, col_stride, out_stride;
} sums;

/* Sums in f64 over the rows, in order. */
static void sum_columns(void *ctx, int64_t begin, int64_t end) {
    const sums *s = ctx;
    for (int64_t part = begin; part < end; part++) {
        double sum[SUM_LANES] = {0};
        const int64_t col = part * SUM_LANES, width = CDL_MIN(s->cols - col, (int64_t)SUM_LANES);
        for (int64_t r = 0; r < s->rows; r++) {
            const float *g = s->g + r * s->row_stride + col * s->col_stride;
            if (s->col_stride == 1 && width == SUM_LANES)
                for (int64_t i = 0; i < SUM_LANES; i++) sum[i] += (double)g[i];
            else
                for (int64_t i = 0; i < width; i++) sum[i] += (double)g[i * s->col_stride];
        }
        for (int64_t i = 0; i < width; i++) s->out[(col + i) * s->out_stride] = (float)sum[i];
    }
}

CDL_KERNEL(linear_grad) {
    (void)p;
    cdl_status status = check(v, n);
    if (status == CDL_OK && v[GX].data) status = product(&v[GX], matrix(&v[G], false), matrix(&v[W], true));
    if (status == CDL_OK && v[GW].data) status = product(&v[GW], matrix(&v[G], true), matrix(&v[X], true));
    if (status != CDL_OK || !v[GB].data) return status;
    const cdl_layout *g = v[G].layout;
    sums s = {v[G].data, v[GB].data, g->shape[0], g->shape[1], stride(g, 0), inner_stride(g), stride(v[GB].layout, 0)};
    if (s.cols)
        cdl_parallel_for(cdl_ceil_div(s.cols, SUM_LANES), cdl_grain(SUM_LANES, s.rows, 1), sum_columns, &s);
    return CDL_OK;
}
