/* gemm_tile.c: the register-tiled micro-kernels, and the loop that covers a block of c with them.
 *
 * A micro-kernel holds R rows by V vectors of c in registers: per k, V loads of b and R broadcasts of
 * a feed R*V independent multiply-adds. The tile is chosen per ISA to fill the register file; fewer
 * rows take more columns, so that there are always enough chains to hide the latency.
 */
#include "gemm.h"
#include "../simd/simd.h"
#include "unroll.h"

/* rows and vectors of the full tile; vectors of a single row */
#if CDL_LANES == 16
enum { MR = 8, NV = 3, V1 = 6 };
#elif CDL_LANES == 8
enum { MR = 6, NV = 2, V1 = 8 };
#elif CDL_LANES == 4
enum { MR = 6, NV = 4, V1 = 8 };
#else
enum { MR = 4, NV = 2, V1 = 8 };
#endif
enum { VP = CDL_PANEL / CDL_LANES }; /* vectors in a panel */
enum { MAX_V = 8 };
#define PANELS(V) ((V) > VP ? (V) / VP : 1)
enum { AHEAD_ROWS = 4 * MR }; /* up to here the work on some panels is too short to wait for the next */

/* One tile at column vector `v0` of its panels. R, V and AHEAD are constants where this is inlined;
 * with AHEAD the panels that follow are fetched meanwhile (past the last, that does nothing). */
CDL_INLINE void micro(const cdl_tile *t, int64_t row, int64_t panel, int v0, int64_t k, cdl_tile_mode mode,
                      const int R, const int V, const bool AHEAD) {
    vf acc[MR][MAX_V];
    const float *a = t->a + row * t->a_row, *b = t->b + panel * t->b_panel + v0 * CDL_LANES;
    float *c = t->c + row * t->c_row + panel * CDL_PANEL + v0 * CDL_LANES;
    const int64_t a_row = t->a_row, b_k = t->b_k, b_panel = t->b_panel, c_row = t->c_row;
    if (mode == CDL_TILE_CONTINUE || t->sum) {
        const float *from = t->sum ? t->sum + row * t->sum_row + panel * CDL_PANEL + v0 * CDL_LANES : c;
        const int64_t from_row = t->sum ? t->sum_row : c_row;
        EACH acc[r][v] = v_load(from + r * from_row + v * CDL_LANES);
    } else {
        EACH acc[r][v] = v_zero();
    }
    const float *by3[3] = {a, a + (R > 3 ? 3 : 0) * a_row, a + (R > 6 ? 6 : 0) * a_row}; /* rows 0, 3, 6 */
    HIDE(by3[1]);
    HIDE(by3[2]);
    ROLLED
    for (int64_t i = 0; i < k; i++) {
        vf x[MAX_V];
        UNROLL
        for (int v = 0; v < V; v++) {
            x[v] = v_load(b + v / VP * b_panel + v % VP * CDL_LANES);
            if (AHEAD && v % VP == 0) __builtin_prefetch(b + (v / VP + PANELS(V)) * b_panel, 0, 2);
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            vf y = v_set1(by3[r / 3][r % 3 * a_row]);
            UNROLL
            for (int v = 0; v < V; v++) acc[r][v] = v_fma(y, x[v], acc[r][v]);
        }
        b += b_k;
        UNROLL
        for (int r = 0; r < 3; r++) by3[r]++;
    }
    const float *bias = t->bias ? t->bias + panel * CDL_PANEL + v0 * CDL_LANES : NULL;
    if (mode == CDL_TILE_ADD) EACH acc[r][v] = v_load(c + r * c_row + v * CDL_LANES) + acc[r][v];
    if (bias) EACH acc[r][v] += v_load(bias + v * CDL_LANES);
    EACH v_store(c + r * c_row + v * CDL_LANES, acc[r][v]);
}

#define ACTIVATE(name, f)                                                                          \
    static void name(float *c, int64_t c_row, int rows, int vectors) {                             \
        for (int r = 0; r < rows; r++)                                                             \
            for (int v = 0; v < vectors; v++) {                                                    \
                float *at = c + r * c_row + v * CDL_LANES;                                         \
                v_store(at, f(v_load(at)));                                                        \
            }                                                                                      \
    }
ACTIVATE(act_relu, v_relu)
ACTIVATE(act_gelu, v_gelu)
ACTIVATE(act_gelu_tanh, v_gelu_tanh)
ACTIVATE(act_silu, v_silu)

static void activate(const cdl_tile *t, int64_t row, int64_t panel, int rows, int panels) {
    float *c = t->c + row * t->c_row + panel * CDL_PANEL;
    switch (t->act) {
    case CDL_ACT_RELU: act_relu(c, t->c_row, rows, panels * VP); break;
    case CDL_ACT_GELU: act_gelu(c, t->c_row, rows, panels * VP); break;
    case CDL_ACT_GELU_TANH: act_gelu_tanh(c, t->c_row, rows, panels * VP); break;
    case CDL_ACT_SILU: act_silu(c, t->c_row, rows, panels * VP); break;
    default: break;
    }
}

/* A kernel covers R rows by P panels; where V is less than a panel it goes over it in steps. */
typedef void (*tile_fn)(const cdl_tile *t, int64_t row, int64_t panel, int64_t k, cdl_tile_mode mode);
#define TILE(name, R, V, AHEAD)                                                                    \
    static void name(const cdl_tile *t, int64_t row, int64_t panel, int64_t k, cdl_tile_mode mode) { \
        for (int v0 = 0; v0 < PANELS(V) * VP; v0 += (V)) micro(t, row, panel, v0, k, mode, R, V, AHEAD); \
        if (t->act) activate(t, row, panel, R, PANELS(V));                                         \
    }
#define AT_MOST_ONE(V) ((V) < VP ? (V) : VP) /* the same, within a single panel */
TILE(tile_full, MR, NV, false)
TILE(tile_full_ahead, MR, NV, true)
TILE(tile_full_one, MR, AT_MOST_ONE(NV), false)
#if CDL_LANES == 16
TILE(tile_full_two, MR, 2, false)
#else
#define tile_full_two tile_full_one
#endif
TILE(tile_4, 4, NV, false)
TILE(tile_4_one, 4, AT_MOST_ONE(NV), false)
TILE(tile_3, 3, NV, false)
TILE(tile_3_one, 3, AT_MOST_ONE(NV), false)
TILE(tile_2, 2, 4, false)
TILE(tile_2_one, 2, AT_MOST_ONE(4), false)
TILE(tile_1, 1, V1, false)
TILE(tile_1_one, 1, AT_MOST_ONE(V1), false)

typedef struct kernel {
    int rows, panels, middle; /* panels of `wide` and of `two` */
    tile_fn wide, two, one;
} kernel;
static const kernel kernels[] = {
    {MR, PANELS(NV), CDL_MIN(PANELS(NV), 2), tile_full, tile_full_two, tile_full_one},
    {4, PANELS(NV), 1, tile_4, tile_4_one, tile_4_one},
    {3, PANELS(NV), 1, tile_3, tile_3_one, tile_3_one},
    {2, PANELS(4), 1, tile_2, tile_2_one, tile_2_one},
    {1, PANELS(V1), 1, tile_1, tile_1_one, tile_1_one},
};

/* The widest kernel for what is left, but two of two panels rather than three and one. */
static tile_fn pick(const kernel *f, int64_t left, int64_t *step) {
    bool wide = left >= f->panels && (f->middle == 1 || left != f->panels + 1), two = left >= f->middle;
    *step = wide ? f->panels : two ? f->middle : 1;
    return wide ? f->wide : two ? f->two : f->one;
}

/* Panels outside, rows inside: a few panels stay in the nearest cache while a streams past them. */
void CDL_NAME(cdl_tiles)(const cdl_tile *t, int64_t rows, int64_t panels, int64_t k, cdl_tile_mode mode) {
    int64_t row = 0;
    for (int i = 0; row < rows; i++) {
        const kernel *f = &kernels[i];
        int64_t end = row + (rows - row) / f->rows * f->rows;
        for (int64_t p = 0, step; p < panels && row < end; p += step) {
            tile_fn fn = pick(f, panels - p, &step);
            if (fn == tile_full && rows <= AHEAD_ROWS) fn = tile_full_ahead;
            for (int64_t r = row; r < end; r += f->rows) fn(t, r, p, k, mode);
        }
        row = end;
    }
}
