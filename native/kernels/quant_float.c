/* quant_float.c: the product with blocks where activations are not quantised: W is dequantised panel
 * by panel and goes through the f32 kernels (gemm.h), so the bits are those of a dense f32 weight. */
#include "quant_float.h"
#include "quant.h"

enum { X_SLOT = 0, PANEL_SLOT = 1 };

typedef struct float_job {
    const q_io *io;
    const float *x;    /* [m][k] */
    int32_t status; /* written by any worker, atomically */
} float_job;

static void pack_x(void *ctx, int64_t begin, int64_t end) {
    float_job *job = ctx;
    const q_io *io = job->io;
    CDL_NAME(cdl_pack_rows)(&io->x, begin, end - begin, 0, io->k, (float *)job->x + begin * io->k, io->k);
}

/* Rows [row, row + 16) of W, columns [k, k + count), as panel[count][16]; zeros past the last row. k is
 * a multiple of 256. */
static void panel_of(const q_io *io, int64_t row, int64_t k, int64_t count, float *flat, float *panel) {
    const uint8_t *p = io->w + row * io->row_bytes + k / q_block(io->dtype) * q_size(io->dtype);
    int64_t rows = CDL_MIN(io->n - row, (int64_t)CDL_PANEL);
    for (int64_t r = 0; r < rows; r++)
        CDL_NAME(cdl_dequant_row)(io->dtype, p + r * io->row_bytes, flat + r * CDL_KC, count);
    const cdl_matrix m = {flat, CDL_F32, rows, count, CDL_KC, 1};
    CDL_NAME(cdl_pack_panel)(&m, 0, 0, count, panel);
}

/* Groups of 16 outputs [begin, end) for all tokens. */
static void run(void *ctx, int64_t begin, int64_t end) {
    float_job *job = ctx;
    const q_io *io = job->io;
    int64_t tile = CDL_PANEL * CDL_KC, bytes;
    float *flat = NULL;
    if (cdl_mul_ok(io->m, CDL_PANEL * (int64_t)sizeof(float), &bytes))
        flat = cdl_scratch(PANEL_SLOT, (uint64_t)(2 * tile * (int64_t)sizeof(float)) + (uint64_t)bytes);
    if (!flat) {
        cdl_fail(&job->status, CDL_ENOMEM);
        return;
    }
    float *panel = flat + tile, *y = panel + tile;
    for (int64_t g = begin; g < end; g++) {
        memset(y, 0, (size_t)bytes);
        for (int64_t k = 0; k < io->k; k += CDL_KC) {
            int64_t count = CDL_MIN(io->k - k, (int64_t)CDL_KC);
            panel_of(io, g * CDL_PANEL, k, count, flat, panel);
            const cdl_tile t = {.a = job->x + k, .b = panel, .c = y, .a_row = io->k, .b_k = CDL_PANEL, .c_row = CDL_PANEL};
            CDL_NAME(cdl_tiles)(&t, io->m, 1, count, k ? CDL_TILE_ADD : CDL_TILE_SET);
        }
        for (int64_t t = 0; t < io->m; t++)
            q_io_output(io, t, g * CDL_PANEL, CDL_MIN(io->n - g * CDL_PANEL, (int64_t)CDL_PANEL), y + t * CDL_PANEL);
    }
}

cdl_status CDL_NAME(cdl_linear_block_float)(const q_io *io) {
    int64_t count, bytes;
    if (!cdl_mul_ok(io->m, io->k, &count) || !cdl_mul_ok(count, sizeof(float), &bytes)) return CDL_ESHAPE;
    float *x = cdl_scratch(X_SLOT, (uint64_t)bytes + 64);
    if (!x) return CDL_ENOMEM;
    float_job job = {.io = io, .x = x, .status = CDL_OK};
    cdl_parallel_for(io->m, CDL_MAX((int64_t)65536 / (io->k + 1), 1), pack_x, &job);
    cdl_parallel_for((io->n + CDL_PANEL - 1) / CDL_PANEL, CDL_MAX((int64_t)4096 / (io->k + 1), 1), run, &job);
    return job.status;
}
