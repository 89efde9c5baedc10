/* conv_tile.c: the register tile of convolution: R out channels by V vectors of pixels.
 *
 * Unlike the tile of gemm.h neither operand is a matrix: both are read in place through tables, one
 * offset a tap, so that weights of any order and planes that several taps share need no packing.
 */
#include "conv.h"
#include "unroll.h"

#if CDL_LANES == 1
enum { MAX_V = 2, MAX_R = 4 };
#else
enum { MAX_V = 8, MAX_R = 8 };
#endif
CDL_INLINE void micro(const cdl_conv_tile *t, int64_t row, int64_t pixel, const int R, const int V) {
    vf acc[MAX_R][MAX_V];
    EACH acc[r][v] = v_zero();
    const float *w0 = t->w + row * t->w_row, *w3 = w0 + (R > 3 ? 3 : 0) * t->w_row, *w6 = w0 + (R > 6 ? 6 : 0) * t->w_row;
    const float *in = t->in + pixel;
    const int64_t w_row = t->w_row, *w_at = t->w_at, *in_at = t->in_at, k = t->k;
    HIDE(w3);
    HIDE(w6);
    ROLLED
    for (int64_t i = 0; i < k; i++) {
        const float *w[3] = {w0 + w_at[i], w3 + w_at[i], w6 + w_at[i]}, *from = in + in_at[i];
        vf x[MAX_V];
        UNROLL
        for (int v = 0; v < V; v++) x[v] = v_load(from + v * CDL_LANES);
        UNROLL
        for (int r = 0; r < R; r++) {
            const vf y = v_set1(w[r / 3][r % 3 * w_row]);
            UNROLL
            for (int v = 0; v < V; v++) acc[r][v] = v_fma(y, x[v], acc[r][v]);
        }
    }
    float *out = t->out + row * t->out_row + pixel;
    const int64_t out_row = t->out_row;
    if (t->add) EACH acc[r][v] += v_load(out + r * out_row + v * CDL_LANES);
    else if (t->bias) EACH acc[r][v] += v_set1(t->bias[(row + r) * t->bias_step]);
    EACH v_store(out + r * out_row + v * CDL_LANES, acc[r][v]);
}

typedef void (*tile_fn)(const cdl_conv_tile *t, int64_t row, int64_t pixel);
#define TILE(R, V)                                                                                 \
    static void tile_##R##_##V(const cdl_conv_tile *t, int64_t row, int64_t pixel) { micro(t, row, pixel, R, V); }

/* For so many rows: vectors of the widest tile and of narrower ones. */
typedef struct kernel {
    int rows, vectors[3];
    tile_fn fn[3];
} kernel;
#define KERNEL(R, A, B, C) {R, {A, B, C}, {tile_##R##_##A, tile_##R##_##B, tile_##R##_##C}}

/* Tiles fill the register file; fewer rows take more pixels, so that chains hide the latency. */
#if CDL_LANES == 16
TILE(8, 3) TILE(8, 2) TILE(8, 1) TILE(6, 4) TILE(6, 2) TILE(6, 1) TILE(4, 6) TILE(4, 3) TILE(4, 1)
TILE(3, 8) TILE(3, 4) TILE(3, 1) TILE(2, 8) TILE(2, 4) TILE(2, 1) TILE(1, 8) TILE(1, 4) TILE(1, 1)
static const kernel kernels[] = {KERNEL(8, 3, 2, 1), KERNEL(6, 4, 2, 1), KERNEL(4, 6, 3, 1),
                                 KERNEL(3, 8, 4, 1), KERNEL(2, 8, 4, 1), KERNEL(1, 8, 4, 1)};
#elif CDL_LANES == 8
TILE(6, 2) TILE(6, 1) TILE(4, 3) TILE(4, 2) TILE(4, 1) TILE(3, 4) TILE(3, 2) TILE(3, 1)
TILE(2, 6) TILE(2, 3) TILE(2, 1) TILE(1, 8) TILE(1, 4) TILE(1, 1)
static const kernel kernels[] = {KERNEL(6, 2, 1, 1), KERNEL(4, 3, 2, 1), KERNEL(3, 4, 2, 1), KERNEL(2, 6, 3, 1),
                                 KERNEL(1, 8, 4, 1)};
#elif CDL_LANES == 4
TILE(6, 4) TILE(6, 2) TILE(6, 1) TILE(4, 6) TILE(4, 3) TILE(4, 1) TILE(3, 8) TILE(3, 4) TILE(3, 1)
TILE(2, 8) TILE(2, 4) TILE(2, 1) TILE(1, 8) TILE(1, 4) TILE(1, 1)
static const kernel kernels[] = {KERNEL(6, 4, 2, 1), KERNEL(4, 6, 3, 1), KERNEL(3, 8, 4, 1), KERNEL(2, 8, 4, 1),
                                 KERNEL(1, 8, 4, 1)};
#else
TILE(4, 2) TILE(4, 1) TILE(2, 2) TILE(2, 1) TILE(1, 2) TILE(1, 1)
static const kernel kernels[] = {KERNEL(4, 2, 1, 1), KERNEL(2, 2, 1, 1), KERNEL(1, 2, 1, 1)};
#endif

/* The widest tile for what is left, but two of two vectors rather than three and one. */
static int pick(const kernel *f, int64_t left) {
    if (f->vectors[0] == 3 && f->vectors[1] == 2 && left == 4) return 1;
    return left >= f->vectors[0] ? 0 : left >= f->vectors[1] ? 1 : 2;
}

/* Pixels outside, rows inside: the pixels of a few vectors stay near while weights stream past them. */
void CDL_NAME(cdl_conv_tiles)(const cdl_conv_tile *t, int64_t pixels) {
    const int64_t vectors = cdl_ceil_div(pixels, CDL_LANES);
    int64_t row = 0;
    for (const kernel *f = kernels; row < t->rows; f++) {
        const int64_t end = row + (t->rows - row) / f->rows * f->rows;
        for (int64_t v = 0; v < vectors && row < end;) {
            const int which = pick(f, vectors - v);
            for (int64_t r = row; r < end; r += f->rows) f->fn[which](t, r, v * CDL_LANES);
            v += f->vectors[which];
        }
        row = end;
    }
}
