/* matmul.c: the operation `matmul`: f32, f16 and bf16 through gemm.c; f64 and integers (which wrap) in
 * plain loops over k in order. */
#include "gemm.h"

enum { OUT, A, B, WIDTH = 64 };

static int64_t stride(const cdl_layout *l, int axis) { return l->shape[axis] > 1 ? l->strides[axis] : 0; }

static cdl_status check(const cdl_view *v, int32_t n) {
    if (n != 3) return CDL_EARGS;
    const cdl_layout *out = v[OUT].layout, *a = v[A].layout, *b = v[B].layout;
    int32_t rank = out->rank;
    if (rank < 2 || a->rank != rank || b->rank != rank) return CDL_ESHAPE;
    for (int32_t i = 0; i < rank - 2; i++)
        if (a->shape[i] != out->shape[i] || b->shape[i] != out->shape[i]) return CDL_ESHAPE;
    if (a->shape[rank - 2] != out->shape[rank - 2] || b->shape[rank - 1] != out->shape[rank - 1]) return CDL_ESHAPE;
    if (a->shape[rank - 1] != b->shape[rank - 2]) return CDL_ESHAPE;
    bool floats = cdl_is_float(out->dtype) && cdl_is_float(a->dtype) && cdl_is_float(b->dtype);
    bool plain = out->dtype == a->dtype && out->dtype == b->dtype &&
                 (out->dtype == CDL_F64 || out->dtype == CDL_I64 || out->dtype == CDL_I32 ||
                  out->dtype == CDL_U32 || out->dtype == CDL_U8);
    return floats || plain ? CDL_OK : CDL_EDTYPE;
}

static bool is_empty(const cdl_layout *l) {
    for (int32_t i = 0; i < l->rank; i++)
        if (l->shape[i] == 0) return true;
    return false;
}

/* The product as gemm.c takes it; b [k,n] is given as its transpose. */
static cdl_gemm as_gemm(const cdl_view *v) {
    const cdl_layout *out = v[OUT].layout, *a = v[A].layout, *b = v[B].layout;
    int32_t r = out->rank - 2, c = out->rank - 1;
    cdl_gemm g = {
        .m = out->shape[r], .n = out->shape[c], .k = a->shape[c],
        .a = {v[A].data, a->dtype, a->shape[r], a->shape[c], stride(a, r), a->shape[c] > 1 ? a->strides[c] : 1},
        .b = {v[B].data, b->dtype, b->shape[c], b->shape[r], b->shape[c] > 1 ? b->strides[c] : 1, stride(b, r)},
        .c = v[OUT].data, .c_dtype = out->dtype, .c_row = stride(out, r),
        .c_col = out->shape[c] > 1 ? out->strides[c] : 1, .batch_rank = r,
    };
    for (int32_t i = 0; i < r; i++) {
        g.batch[i] = out->shape[i];
        g.a_batch[i] = stride(a, i);
        g.b_batch[i] = stride(b, i);
        g.c_batch[i] = stride(out, i);
    }
    return g;
}

/* One row of one matrix, WIDTH columns at a time: sums[j] += a[i] * b[i][j], i in order. ACC is wide
 * enough that a wrapped sum cut to T is the sum wrapped in T. */
#define PLAIN_ROW(name, T, ACC)                                                                    \
    static void name(const cdl_gemm *g, const T *a, const T *b, T *c) {                            \
        for (int64_t j0 = 0; j0 < g->n; j0 += WIDTH) {                                             \
            ACC sums[WIDTH] = {0};                                                                 \
            int64_t width = CDL_MIN(g->n - j0, (int64_t)WIDTH);                                    \
            for (int64_t i = 0; i < g->k; i++) {                                                   \
                ACC x = (ACC)a[i * g->a.col_stride];                                               \
                const T *y = b + j0 * g->b.row_stride + i * g->b.col_stride;                       \
                if (g->b.row_stride == 1)                                                          \
                    for (int64_t j = 0; j < width; j++) sums[j] += x * (ACC)y[j];                  \
                else                                                                               \
                    for (int64_t j = 0; j < width; j++) sums[j] += x * (ACC)y[j * g->b.row_stride]; \
            }                                                                                      \
            for (int64_t j = 0; j < width; j++) c[(j0 + j) * g->c_col] = (T)sums[j];               \
        }                                                                                          \
    }
PLAIN_ROW(row_f64, double, double)
PLAIN_ROW(row_i64, int64_t, uint64_t)
PLAIN_ROW(row_i32, int32_t, uint32_t)
PLAIN_ROW(row_u32, uint32_t, uint32_t)
PLAIN_ROW(row_u8, uint8_t, uint32_t)

static void plain_rows(void *ctx, int64_t begin, int64_t end) {
    const cdl_gemm *g = ctx;
    for (int64_t index = begin; index < end; index++) {
        int64_t batch = index / g->m, row = index % g->m;
        int64_t a = row * g->a.row_stride, b = 0, c = row * g->c_row;
        for (int32_t i = g->batch_rank - 1; i >= 0; i--) {
            int64_t at = batch % g->batch[i];
            batch /= g->batch[i];
            a += at * g->a_batch[i];
            b += at * g->b_batch[i];
            c += at * g->c_batch[i];
        }
        switch (g->c_dtype) {
#define CASE(dtype, T, f) \
    case dtype: f(g, (const T *)g->a.data + a, (const T *)g->b.data + b, (T *)g->c + c); break;
        CASE(CDL_F64, double, row_f64)
        CASE(CDL_I64, int64_t, row_i64)
        CASE(CDL_I32, int32_t, row_i32)
        CASE(CDL_U32, uint32_t, row_u32)
        CASE(CDL_U8, uint8_t, row_u8)
#undef CASE
        }
    }
}

CDL_KERNEL(matmul) {
    (void)p;
    cdl_status s = check(v, n);
    if (s != CDL_OK || is_empty(v[OUT].layout)) return s;
    cdl_gemm g = as_gemm(v);
    if (!g.c || (g.k && (!g.a.data || !g.b.data))) return CDL_EARGS;
    if (cdl_is_float(g.c_dtype)) return CDL_NAME(cdl_gemm_run)(&g);
    int64_t rows = g.m;
    for (int32_t i = 0; i < g.batch_rank; i++) rows *= g.batch[i];
    cdl_parallel_for(rows, cdl_grain(g.n, g.k, 1), plain_rows, &g);
    return CDL_OK;
}
