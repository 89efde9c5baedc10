/* quant_io.h: the views of a product with blocks: rows of W, activations as f32, results to `out`. */
#ifndef CDL_QUANT_IO_H
#define CDL_QUANT_IO_H
#include "gemm.h"
#include "quant_formats.h"
#include "../simd/simd.h"

typedef struct q_io {
    int64_t m, n, k;
    int32_t dtype; /* of W */
    const uint8_t *w;
    int64_t row_bytes; /* from row to row of W */
    cdl_matrix x;      /* [m,k] */
    cdl_view out;      /* [m,n] f32, f16 or bf16 */
    int64_t out_row, out_col;
    cdl_view bias; /* [n] or no data */
    int64_t bias_stride;
    int32_t act;
} q_io;

CDL_INLINE int64_t q_io_stride(const cdl_layout *l, int32_t axis) { return l->shape[axis] == 1 ? 0 : l->strides[axis]; }

/* 32 activations of token t from column k on: in place where they are f32, else through `buffer`. */
CDL_INLINE const float *q_io_input(const q_io *io, int64_t t, int64_t k, float buffer[32]) {
    int64_t at = t * io->x.row_stride + k * io->x.col_stride;
    if (io->x.dtype == CDL_F32 && io->x.col_stride == 1) return (const float *)io->x.data + at;
    for (int32_t i = 0; i < 32; i++) buffer[i] = cdl_load_float(io->x.data, io->x.dtype, at + i * io->x.col_stride);
    return buffer;
}

CDL_INLINE vf q_io_act(vf x, int32_t act) {
    switch (act) {
    case CDL_ACT_RELU: return v_relu(x);
    case CDL_ACT_GELU: return v_gelu(x);
    case CDL_ACT_GELU_TANH: return v_gelu_tanh(x);
    case CDL_ACT_SILU: return v_silu(x);
    default: return x;
    }
}

/* Columns [col, col + count) of row t, count at most 16. */
static void q_io_store(const q_io *io, int64_t t, int64_t col, int64_t count, const float *y) {
    int64_t at = t * io->out_row + col * io->out_col;
    int32_t dtype = io->out.layout->dtype;
    if (dtype == CDL_F32 && io->out_col == 1) {
        memcpy((float *)io->out.data + at, y, (size_t)count * sizeof(float));
        return;
    }
    for (int64_t i = 0; i < count; i++, at += io->out_col) {
        if (dtype == CDL_F32) ((float *)io->out.data)[at] = y[i];
        if (dtype == CDL_F16) ((uint16_t *)io->out.data)[at] = cdl_f32_to_f16(y[i]);
        if (dtype == CDL_BF16) ((uint16_t *)io->out.data)[at] = cdl_f32_to_bf16(y[i]);
    }
}

/* The finished sums y[count], count at most 16: bias, activation, store. */
static void q_io_output(const q_io *io, int64_t t, int64_t col, int64_t count, const float *y) {
    if (!io->bias.data && !io->act) {
        q_io_store(io, t, col, count, y);
        return;
    }
    float z[16] = {0};
    memcpy(z, y, (size_t)count * sizeof(float));
    for (int64_t i = 0; io->bias.data && i < count; i++)
        z[i] += cdl_load_float(io->bias.data, io->bias.layout->dtype, (col + i) * io->bias_stride);
    for (int32_t i = 0; i < 16; i += CDL_LANES) v_store(z + i, q_io_act(v_load(z + i), io->act));
    q_io_store(io, t, col, count, z);
}
#endif
