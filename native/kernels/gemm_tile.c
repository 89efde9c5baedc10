/* gemm_tile.c: the register-tiled micro-kernels, and the loop that covers a block of c with them.
 *
 * A micro-kernel holds R rows by V vectors of c in registers: per k, V loads of b and R broadcasts of
 * a feed R*V independent multiply-adds. The tile is chosen per ISA to fill the register file; fewer
 * rows take more columns, so that there are always enough chains to hide the latency.
 */
#include "gemm.h"
#include "../simd/simd.h"

#if CDL_LANES == 16
enum { MR = 8, NV = 3 };
#elif CDL_LANES == 8
enum { MR = 6, NV = 2 };
#elif CDL_LANES == 4
enum { MR = 6, NV = 4 };
#else
enum { MR = 4, NV = 2 };
#endif
enum { VP = CDL_PANEL / CDL_LANES }; /* vectors in a panel */
enum { MAX_V = 8 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_K _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define UNROLL_K _Pragma("GCC unroll 2")
#endif

/* One tile at column vector `v0` of its panels. R and V are constants where this is inlined. */
CDL_INLINE void micro(const cdl_tile *t, int64_t row, int64_t panel, int v0, int64_t k, cdl_tile_mode mode,
                      const int R, const int V) {
    vf acc[MR][MAX_V];
    const float *a = t->a + row * t->a_row, *b = t->b + panel * t->b_panel + v0 * CDL_LANES;
    float *c = t->c + row * t->c_row + panel * CDL_PANEL + v0 * CDL_LANES;
    const int64_t a_row = t->a_row, b_k = t->b_k, b_panel = t->b_panel, c_row = t->c_row;
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < V; v++)
            acc[r][v] = mode == CDL_TILE_CONTINUE ? v_load(c + r * c_row + v * CDL_LANES) : v_zero();
    UNROLL_K
    for (int64_t i = 0; i < k; i++) {
        vf x[MAX_V];
        UNROLL
        for (int v = 0; v < V; v++) x[v] = v_load(b + v / VP * b_panel + v % VP * CDL_LANES);
        UNROLL
        for (int r = 0; r < R; r++) {
            vf y = v_set1(a[r * a_row + i]);
            UNROLL
            for (int v = 0; v < V; v++) acc[r][v] = v_fma(y, x[v], acc[r][v]);
        }
        b += b_k;
    }
    const float *bias = t->bias ? t->bias + panel * CDL_PANEL + v0 * CDL_LANES : NULL;
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
        for (int v = 0; v < V; v++) {
            float *to = c + r * c_row + v * CDL_LANES;
            if (mode == CDL_TILE_ADD) acc[r][v] = v_load(to) + acc[r][v];
            if (bias) acc[r][v] += v_load(bias + v * CDL_LANES);
            v_store(to, acc[r][v]);
        }
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
#define PANELS(V) ((V) > VP ? (V) / VP : 1)
#define TILE(name, R, V)                                                                           \
    static void name(const cdl_tile *t, int64_t row, int64_t panel, int64_t k, cdl_tile_mode mode) { \
        for (int v0 = 0; v0 < PANELS(V) * VP; v0 += (V)) micro(t, row, panel, v0, k, mode, R, V);  \
        if (t->act) activate(t, row, panel, R, PANELS(V));                                         \
    }
#define AT_MOST_ONE(V) ((V) < VP ? (V) : VP) /* the same, within a single panel */
TILE(tile_full, MR, NV)
TILE(tile_full_one, MR, AT_MOST_ONE(NV))
TILE(tile_4, 4, NV)
TILE(tile_4_one, 4, AT_MOST_ONE(NV))
TILE(tile_2, 2, 4)
TILE(tile_2_one, 2, AT_MOST_ONE(4))
TILE(tile_1, 1, 8)
TILE(tile_1_one, 1, AT_MOST_ONE(8))

typedef struct kernel {
    int rows, panels;
    tile_fn wide, one;
} kernel;
static const kernel kernels[] = {
    {MR, PANELS(NV), tile_full, tile_full_one},
    {4, PANELS(NV), tile_4, tile_4_one},
    {2, PANELS(4), tile_2, tile_2_one},
    {1, PANELS(8), tile_1, tile_1_one},
};

/* Panels outside, rows inside: a few panels stay in the nearest cache while a streams past them. */
void CDL_NAME(cdl_tiles)(const cdl_tile *t, int64_t rows, int64_t panels, int64_t k, cdl_tile_mode mode) {
    int64_t row = 0;
    for (int i = 0; row < rows; i++) {
        const kernel *f = &kernels[i];
        int64_t end = row + (rows - row) / f->rows * f->rows;
        for (int64_t p = 0, step; p < panels && row < end; p += step) {
            bool wide = panels - p >= f->panels;
            step = wide ? f->panels : 1;
            for (int64_t r = row; r < end; r += f->rows) (wide ? f->wide : f->one)(t, r, p, k, mode);
        }
        row = end;
    }
}
