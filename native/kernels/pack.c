/* pack.c: copies of matrices in the shapes that the product kernels read, and the operation `pack`. */
#include "gemm.h"
#include "../simd/simd.h"

#if CDL_LANES > 1
typedef float v4 __attribute__((vector_size(16)));

CDL_INLINE v4 load4(const float *p) {
    v4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* The transpose of four rows of four. */
CDL_INLINE void transpose4(const float *in, int64_t in_row, float *out, int64_t out_row) {
    v4 a = load4(in), b = load4(in + in_row), c = load4(in + 2 * in_row), d = load4(in + 3 * in_row);
    v4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    v4 out4[4] = {
        __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5), __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7),
        __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5), __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) memcpy(out + i * out_row, &out4[i], sizeof(v4));
}
#else
CDL_INLINE void transpose4(const float *in, int64_t in_row, float *out, int64_t out_row) {
    for (int r = 0; r < 4; r++)
        for (int c = 0; c < 4; c++) out[c * out_row + r] = in[r * in_row + c];
}
#endif

/* in[rows][cols] to out[cols][rows], both with contiguous rows: four rows at a time, so that memory is
 * read in few streams. */
CDL_INLINE void transpose(const float *in, int64_t in_row, int64_t rows, int64_t cols, float *out, int64_t out_row) {
    int64_t r = 0, c4 = cols / 4 * 4;
    for (; r + 4 <= rows; r += 4) {
        for (int64_t c = 0; c < c4; c += 4) transpose4(in + r * in_row + c, in_row, out + c * out_row + r, out_row);
        for (int64_t c = c4; c < cols; c++)
            for (int64_t i = r; i < r + 4; i++) out[c * out_row + i] = in[i * in_row + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) out[c * out_row + r] = in[r * in_row + c];
}

/* `count` items of any float dtype, `stride` apart, to f32. */
static void load_run(const void *data, int32_t dtype, int64_t at, int64_t stride, int64_t count, float *out) {
    int64_t i = 0;
    if (stride == 1 && dtype == CDL_F32) {
        memcpy(out, (const float *)data + at, (size_t)count * sizeof(float));
        return;
    }
    const uint16_t *half = (const uint16_t *)data + at;
    if (stride == 1 && dtype == CDL_F16)
        for (; i + CDL_LANES <= count; i += CDL_LANES) v_store(out + i, v_load_f16(half + i));
    if (stride == 1 && dtype == CDL_BF16)
        for (; i + CDL_LANES <= count; i += CDL_LANES) v_store(out + i, v_load_bf16(half + i));
    for (; i < count; i++) out[i] = cdl_load_float(data, dtype, at + i * stride);
}

/* A matrix whose columns are contiguous: sixteen columns at a time are converted if need be, and turned. */
static void rows_from_columns(const cdl_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t count,
                              float *out, int64_t out_row) {
    enum { COLS = 16, ROWS = 64 };
    float part[COLS * ROWS];
    for (int64_t c = 0; c < count; c += COLS)
        for (int64_t r = 0; r < rows; r += ROWS) {
            int64_t height = CDL_MIN(rows - r, (int64_t)ROWS), width = CDL_MIN(count - c, (int64_t)COLS);
            int64_t at = row + r + (col + c) * m->col_stride;
            float *to = out + r * out_row + c;
            if (m->dtype == CDL_F32) {
                transpose((const float *)m->data + at, m->col_stride, width, height, to, out_row);
                continue;
            }
            for (int64_t i = 0; i < width; i++)
                load_run(m->data, m->dtype, at + i * m->col_stride, 1, height, part + i * ROWS);
            transpose(part, ROWS, width, height, to, out_row);
        }
}

void CDL_NAME(cdl_pack_rows)(const cdl_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t count,
                             float *out, int64_t out_row) {
    if (m->row_stride == 1 && m->col_stride != 1 && rows > 1) {
        rows_from_columns(m, row, rows, col, count, out, out_row);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        load_run(m->data, m->dtype, (row + r) * m->row_stride + col * m->col_stride, m->col_stride, count,
                 out + r * out_row);
}

/* Columns of `rows` <= 16 items, contiguous down the rows where row_stride is 1. */
static void panel_from_columns(const cdl_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t count,
                               float *out) {
    int64_t at = row * m->row_stride + col * m->col_stride;
    for (int64_t c = 0; c < count; c++, out += CDL_PANEL, at += m->col_stride) {
        load_run(m->data, m->dtype, at, m->row_stride, rows, out);
        for (int64_t r = rows; r < CDL_PANEL; r++) out[r] = 0.0f;
    }
}

/* Whole panels of f32 columns that are contiguous: column by column over all panels, as memory has it. */
static void panels_from_columns(const cdl_matrix *m, int64_t row, int64_t panels, int64_t col, int64_t count,
                                float *out) {
    const float *in = (const float *)m->data + row + col * m->col_stride;
    for (int64_t c = 0; c < count; c++, in += m->col_stride)
        for (int64_t p = 0; p < panels; p++)
            memcpy(out + (p * count + c) * CDL_PANEL, in + p * CDL_PANEL, CDL_PANEL * sizeof(float));
}

void CDL_NAME(cdl_pack_panel)(const cdl_matrix *m, int64_t row, int64_t col, int64_t count, float *out) {
    enum { STEP = 64 };
    int64_t rows = CDL_MIN(m->rows - row, (int64_t)CDL_PANEL);
    if (m->col_stride != 1) {
        panel_from_columns(m, row, rows, col, count, out);
        return;
    }
    if (rows == CDL_PANEL && m->dtype == CDL_F32) {
        const float *in = (const float *)m->data + row * m->row_stride + col;
        transpose(in, m->row_stride, CDL_PANEL, count, out, CDL_PANEL);
        return;
    }
    float part[CDL_PANEL * STEP]; /* sixteen rows, converted and padded */
    memset(part, 0, sizeof part);
    for (int64_t c = 0; c < count; c += STEP) {
        int64_t width = CDL_MIN(count - c, (int64_t)STEP);
        CDL_NAME(cdl_pack_rows)(m, row, rows, col + c, width, part, STEP);
        transpose(part, STEP, CDL_PANEL, width, out + c * CDL_PANEL, CDL_PANEL);
    }
}

void CDL_NAME(cdl_pack_panels)(const cdl_matrix *m, int64_t row, int64_t panels, int64_t col, int64_t count,
                               float *out) {
    int64_t whole = 0;
    if (m->dtype == CDL_F32 && m->row_stride == 1) {
        whole = CDL_MIN(panels, (m->rows - row) / CDL_PANEL);
        panels_from_columns(m, row, whole, col, count, out);
    }
    for (int64_t p = whole; p < panels; p++)
        CDL_NAME(cdl_pack_panel)(m, row + p * CDL_PANEL, col, count, out + p * count * CDL_PANEL);
}

typedef struct pack_job {
    cdl_matrix in;
    float *out;
} pack_job;

static void pack_panels(void *ctx, int64_t begin, int64_t end) {
    const pack_job *j = ctx;
    for (int64_t p = begin; p < end; p++)
        CDL_NAME(cdl_pack_panel)(&j->in, p * CDL_PANEL, 0, j->in.cols, j->out + p * CDL_PANEL * j->in.cols);
}

CDL_KERNEL(pack) {
    (void)p;
    if (n != 2) return CDL_EARGS;
    const cdl_layout *out = v[0].layout, *in = v[1].layout;
    if (out->dtype != CDL_F32X16 || !cdl_is_float(in->dtype)) return CDL_EDTYPE;
    if (out->rank != 2 || in->rank != 2) return CDL_ESHAPE;
    if (out->shape[0] != in->shape[0] || out->shape[1] != in->shape[1]) return CDL_ESHAPE;
    int64_t rows = in->shape[0], cols = in->shape[1];
    if (rows == 0 || cols == 0) return CDL_OK;
    if (!v[0].data || !v[1].data) return CDL_EARGS;
    pack_job j = {.in = {v[1].data, in->dtype, rows, cols, rows > 1 ? in->strides[0] : 0,
                         cols > 1 ? in->strides[1] : 1},
                  .out = v[0].data};
    cdl_parallel_for(cdl_ceil_div(rows, CDL_PANEL), cdl_grain(CDL_PANEL, cols, 1), pack_panels, &j);
    return CDL_OK;
}
