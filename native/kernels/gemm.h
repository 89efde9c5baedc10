/* gemm.h: the one f32 product behind linear, matmul and attention.
 *
 * The order of summation, everywhere: k is cut into blocks of CDL_KC from index 0; a block is summed
 * in k order by v_fma from zero, and blocks are added in order to the total. Lanes run over n, so an
 * output's bits depend on its row of a, its column of b and k alone: never on m, n, tiles or threads.
 *
 * b is read as panels of 16 columns, `b_k` elements apart along k and `b_panel` from panel to panel:
 * packed panels are [k][16] (b_k = 16), a row-major [k,n] matrix serves as it is (b_k = n, b_panel = 16).
 */
#ifndef CDL_GEMM_H
#define CDL_GEMM_H
#include "kernel.h"

enum { CDL_PANEL = 16, CDL_KC = 256 };

/* A read-only matrix of f32, f16 or bf16; strides count elements. */
typedef struct cdl_matrix {
    const void *data;
    int32_t dtype;
    int64_t rows, cols, row_stride, col_stride;
} cdl_matrix;

CDL_INLINE int64_t cdl_ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }
/* How many pieces of a * b * c products each are worth waking a thread for. */
CDL_INLINE int64_t cdl_grain(int64_t a, int64_t b, int64_t c) {
    const int64_t enough = 50000;
    int64_t products = CDL_MIN(a, enough) * CDL_MIN(b, enough) * CDL_MIN(c, enough);
    return products > 0 ? CDL_MAX(enough / products, (int64_t)1) : enough;
}
CDL_INLINE bool cdl_is_float(int32_t dtype) {
    return dtype == CDL_F32 || dtype == CDL_F16 || dtype == CDL_BF16;
}
/* Element `index` of a f32, f16 or bf16 array. */
CDL_INLINE float cdl_load_float(const void *data, int32_t dtype, int64_t index) {
    if (dtype == CDL_F32) return ((const float *)data)[index];
    uint16_t h = ((const uint16_t *)data)[index];
    return dtype == CDL_F16 ? cdl_f16_to_f32(h) : cdl_bf16_to_f32(h);
}

/* pack.c: rows [row, row + 16) of m, columns [col, col + count), as out[count][16]; rows past the end
 * are zeros. A [k,n] matrix is packed by giving it transposed. */
void CDL_NAME(cdl_pack_panel)(const cdl_matrix *m, int64_t row, int64_t col, int64_t count, float *out);

/* The same for several panels, one after the other. */
void CDL_NAME(cdl_pack_panels)(const cdl_matrix *m, int64_t row, int64_t panels, int64_t col, int64_t count,
                               float *out);

/* pack.c: rows [row, row + rows), columns [col, col + count), as f32 out[rows][out_row]. */
void CDL_NAME(cdl_pack_rows)(const cdl_matrix *m, int64_t row, int64_t rows, int64_t col, int64_t count,
                             float *out, int64_t out_row);

/* gemm_tile.c: c[rows][16 * panels] from a[rows][k] (k contiguous) and b. */
typedef enum cdl_tile_mode {
    CDL_TILE_SET = 0,      /* c = a b */
    CDL_TILE_ADD = 1,      /* c = c + (a b): the next block of k */
    CDL_TILE_CONTINUE = 2, /* the sum goes on from c: the same bits as one longer k */
} cdl_tile_mode;

typedef struct cdl_tile {
    const float *a, *b;
    float *c;
    int64_t a_row, b_k, b_panel, c_row;
    const float *sum;  /* [rows][sum_row]: the sum goes on from here, whatever is done with it; or NULL */
    int64_t sum_row;
    const float *bias; /* [16 * panels], added to the finished sum; or NULL */
    int32_t act;       /* cdl_activation of the result */
} cdl_tile;

void CDL_NAME(cdl_tiles)(const cdl_tile *t, int64_t rows, int64_t panels, int64_t k, cdl_tile_mode mode);

/* gemm.c: for each index of the batch axes, c[m,n] = act(a[m,k] b[n,k]^T + bias), on all threads. */
typedef struct cdl_gemm {
    int64_t m, n, k;
    cdl_matrix a; /* [m,k] */
    cdl_matrix b; /* [n,k]; dtype CDL_F32X16 says packed, strides unused */
    void *c;      /* [m,n] f32, f16 or bf16 */
    int32_t c_dtype;
    int64_t c_row, c_col;
    const void *bias; /* [n] f32, f16 or bf16, or NULL */
    int32_t bias_dtype;
    int64_t bias_stride;
    int32_t act;
    int32_t batch_rank;
    int64_t batch[8], a_batch[8], b_batch[8], c_batch[8]; /* sizes and strides of the batch axes */
} cdl_gemm;

cdl_status CDL_NAME(cdl_gemm_run)(const cdl_gemm *g);
#endif
