/* gemm.c: cuts a product into tasks of MC rows by PC panels, and brings each operand of a task into
 * the shape that the tiles read: in place where it has it, through scratch where it has not.
 *
 * Scratch of the thread: slot 0 rows of a, slot 1 panels of b, slot 2 the block of c.
 */
#include "gemm.h"
#include "turn.h"

enum {
    MC = 256,             /* rows of a task: a[MC][CDL_KC] stays in the second-level cache */
    PC = 12,              /* panels of a task */
    WIDE_PC = 64,         /* panels of a task of few rows, whose b is read once, in long runs */
    LEAST_PC = 3,         /* not cut further for the sake of more tasks */
    CHUNK = 16, MOST_ALONG = 8, /* of k, for so many rows at most, that go along b as memory has it */
    FEW_ROWS = 16,        /* up to here, and up to SMALL_B elements, a row-major b is read where it */
    SMALL_B = 8192,       /* is: packing would not pay */
    PAD = 16              /* between packed rows: strides of a power of two share few cache lines */
};

typedef struct run {
    const cdl_gemm *g;
    int64_t panels, row_blocks, panel_blocks, task_panels;
    bool a_direct, b_direct;
    bool along, across; /* few rows go through b as memory has it: rows of b along n, or along k */
    int64_t b_k, b_panel;
    int32_t status;
} run;

/* One task: rows [row, row + rows), panels [panel, panel + panels) of one index of the batch. */
typedef struct task {
    const char *a, *b;
    char *c;
    int64_t row, rows, panel, panels;
    bool c_direct;
    float bias[WIDE_PC * CDL_PANEL];
} task;

static int64_t size_of(int32_t dtype) { return dtype == CDL_F32 || dtype == CDL_F32X16 ? 4 : 2; }

static void find_task(const run *j, int64_t index, task *t) {
    const cdl_gemm *g = j->g;
    int64_t blocks = j->row_blocks * j->panel_blocks, batch = index / blocks, block = index % blocks;
    int64_t a = 0, b = 0, c = 0;
    for (int32_t i = g->batch_rank - 1; i >= 0; i--) {
        int64_t at = batch % g->batch[i];
        batch /= g->batch[i];
        a += at * g->a_batch[i];
        b += at * g->b_batch[i];
        c += at * g->c_batch[i];
    }
    t->a = (const char *)g->a.data + a * size_of(g->a.dtype);
    t->b = (const char *)g->b.data + b * size_of(g->b.dtype);
    t->c = (char *)g->c + c * size_of(g->c_dtype);
    t->row = block / j->panel_blocks * MC;
    t->rows = CDL_MIN(g->m - t->row, (int64_t)MC);
    t->panel = block % j->panel_blocks * j->task_panels;
    t->panels = CDL_MIN(j->panels - t->panel, j->task_panels);
    t->c_direct = g->c_dtype == CDL_F32 && g->c_col == 1 && (t->panel + t->panels) * CDL_PANEL <= g->n;
    for (int64_t i = 0; g->bias && i < t->panels * CDL_PANEL; i++) {
        int64_t col = t->panel * CDL_PANEL + i;
        t->bias[i] = col < g->n ? cdl_load_float(g->bias, g->bias_dtype, col * g->bias_stride) : 0.0f;
    }
}

/* The block of c from scratch to its place and dtype. */
static void store_c(const run *j, const task *t, const float *from) {
    const cdl_gemm *g = j->g;
    int64_t col0 = t->panel * CDL_PANEL, cols = CDL_MIN(g->n - col0, t->panels * CDL_PANEL);
    for (int64_t r = 0; r < t->rows; r++, from += t->panels * CDL_PANEL) {
        int64_t at = (t->row + r) * g->c_row + col0 * g->c_col;
        if (g->c_dtype == CDL_F32 && g->c_col == 1) {
            memcpy((float *)t->c + at, from, (size_t)cols * sizeof(float));
        } else if (g->c_dtype == CDL_F32) {
            for (int64_t i = 0; i < cols; i++) ((float *)t->c)[at + i * g->c_col] = from[i];
        } else {
            uint16_t *to = (uint16_t *)t->c + at;
            for (int64_t i = 0; i < cols; i++)
                to[i * g->c_col] = g->c_dtype == CDL_F16 ? cdl_f32_to_f16(from[i]) : cdl_f32_to_bf16(from[i]);
        }
    }
}

/* Panels per step of packing: few enough to stay close, enough for the widest kernels and for runs of
 * some cache lines. */
static int64_t pack_step(int64_t rows) { return rows < 4 ? 8 : 6; }

/* sum[V vectors] (+)= a[ROWS] b[ROWS][V vectors], in the order of k. */
enum { ROWS = 8, PAIR = 2 };
CDL_INLINE void add_rows(const float *a, const float *b, int64_t b_k, bool first, float *sum, const int V) {
    vf acc[PAIR];
    for (int v = 0; v < V; v++) acc[v] = first ? v_zero() : v_load(sum + v * CDL_LANES);
#pragma clang loop unroll(full)
    for (int r = 0; r < ROWS; r++)
#pragma clang loop unroll(full)
        for (int v = 0; v < V; v++) acc[v] = v_fma(v_set1(a[r]), v_load(b + r * b_k + v * CDL_LANES), acc[v]);
    for (int v = 0; v < V; v++) v_store(sum + v * CDL_LANES, acc[v]);
}

/* sum[panels * CDL_PANEL] = a b, for a single row: a few rows of b at a time, each in one long run,
 * by pairs of vectors as memory is fetched by pairs of cache lines. */
static void along_row(const float *a, const float *b, int64_t b_k, int64_t k, int64_t cols, float *sum) {
    int64_t i = 0;
    for (; i + ROWS <= k; i += ROWS) {
        const float *from = b + i * b_k;
        int64_t c = 0;
        for (; c + PAIR * CDL_LANES <= cols; c += PAIR * CDL_LANES) add_rows(a + i, from + c, b_k, !i, sum + c, PAIR);
        if (c < cols) add_rows(a + i, from + c, b_k, !i, sum + c, 1);
    }
    for (; i < k; i++)
        for (int64_t c = 0; c < cols; c += CDL_LANES)
            v_store(sum + c, v_fma(v_set1(a[i]), v_load(b + i * b_k + c), i ? v_load(sum + c) : v_zero()));
}

/* The same where b has its rows along k, `b_row` apart: squares of it are turned in registers. */
static void across_row(const float *a, const float *b, int64_t b_row, int64_t k, int64_t cols, float *sum) {
    enum { AHEAD = 128 }; /* so many short runs are more than the hardware foresees */
    const int64_t whole = k - k % CDL_LANES;
    for (int64_t c = 0; c < cols; c += CDL_LANES) {
        const float *from = b + c * b_row;
        vf acc = v_zero(), x[CDL_LANES];
        for (int64_t i = 0; i < whole; i += CDL_LANES) {
#pragma clang loop unroll(full)
            for (int r = 0; r < CDL_LANES; r++) {
                x[r] = v_load(from + r * b_row + i);
                __builtin_prefetch(from + r * b_row + CDL_MIN(i + AHEAD, k - 1), 0, 2);
            }
            cdl_turn(x);
#pragma clang loop unroll(full)
            for (int r = 0; r < CDL_LANES; r++) acc = v_fma(v_set1(a[i + r]), x[r], acc);
        }
        for (int64_t i = whole; i < k; i++) {
            float column[CDL_LANES];
            for (int r = 0; r < CDL_LANES; r++) column[r] = from[r * b_row + i];
            acc = v_fma(v_set1(a[i]), v_load(column), acc);
        }
        v_store(sum + c, acc);
    }
}

/* One block of k for few rows, in chunks: sums wait in `sum` between them, and lose no bit by it. */
static void along(const cdl_tile *tile, int64_t rows, int64_t panels, int64_t kc, float *sum, cdl_tile_mode mode) {
    cdl_tile part = *tile;
    int64_t k = 0;
    if (rows == 1) {
        along_row(tile->a, tile->b, tile->b_k, kc, panels * CDL_PANEL, sum);
        k = kc;
    }
    for (; k < kc - CHUNK; k += CHUNK) {
        cdl_tile next = *tile;
        next.a += k;
        next.b += k * tile->b_k;
        next.c = sum;
        next.c_row = panels * CDL_PANEL;
        next.bias = NULL;
        next.act = CDL_ACT_NONE;
        CDL_NAME(cdl_tiles)(&next, rows, panels, CHUNK, k ? CDL_TILE_CONTINUE : CDL_TILE_SET);
    }
    if (k) {
        part.sum = sum;
        part.sum_row = panels * CDL_PANEL;
    }
    part.a += k;
    part.b += k * tile->b_k;
    CDL_NAME(cdl_tiles)(&part, rows, panels, kc - k, mode);
}

/* All of the task's panels for one block of k. */
static void multiply(const run *j, const task *t, cdl_tile *tile, int64_t k0, int64_t kc, float *pack,
                     cdl_tile_mode mode) {
    if (j->b_direct) {
        tile->b = (const float *)t->b + t->panel * j->b_panel + k0 * j->b_k;
        if (j->along) along(tile, t->rows, t->panels, kc, pack, mode);
        else CDL_NAME(cdl_tiles)(tile, t->rows, t->panels, kc, mode);
        return;
    }
    cdl_matrix b = j->g->b;
    b.data = t->b;
    cdl_tile part = *tile;
    part.b = pack;
    if (j->across) {
        const float *from = (const float *)t->b + t->panel * CDL_PANEL * b.row_stride + k0;
        across_row(tile->a, from, b.row_stride, kc, t->panels * CDL_PANEL, pack);
        part.sum = pack;
        part.sum_row = t->panels * CDL_PANEL;
        CDL_NAME(cdl_tiles)(&part, 1, t->panels, 0, mode);
        return;
    }
    for (int64_t p = 0, step; p < t->panels; p += step) {
        step = CDL_MIN(t->panels - p, pack_step(t->rows));
        CDL_NAME(cdl_pack_panels)(&b, (t->panel + p) * CDL_PANEL, step, k0, kc, pack);
        part.c = tile->c + p * CDL_PANEL;
        if (tile->bias) part.bias = tile->bias + p * CDL_PANEL;
        CDL_NAME(cdl_tiles)(&part, t->rows, step, kc, mode);
    }
}

static cdl_status run_task(const run *j, const task *t) {
    const cdl_gemm *g = j->g;
    int64_t c_row = t->panels * CDL_PANEL, kc_max = CDL_MIN(g->k, (int64_t)CDL_KC);
    float *a = NULL, *b = NULL, *c = (float *)t->c + t->row * g->c_row + t->panel * CDL_PANEL;
    if (!j->a_direct && !(a = cdl_scratch(0, (uint64_t)(t->rows * (kc_max + PAD)) * sizeof(float)))) return CDL_ENOMEM;
    const uint64_t b_size = j->along || j->across ? (uint64_t)(t->rows * c_row) : 8 * CDL_PANEL * CDL_KC;
    if ((j->along || !j->b_direct) && !(b = cdl_scratch(1, b_size * sizeof(float)))) return CDL_ENOMEM;
    if (!t->c_direct && !(c = cdl_scratch(2, (uint64_t)(t->rows * c_row) * sizeof(float)))) return CDL_ENOMEM;
    cdl_matrix from = g->a;
    from.data = t->a;
    for (int64_t k0 = 0; k0 == 0 || k0 < g->k; k0 += CDL_KC) {
        int64_t kc = CDL_MIN(g->k - k0, (int64_t)CDL_KC);
        bool last = k0 + kc == g->k;
        cdl_tile tile = {.a = a, .c = c, .a_row = kc + PAD, .b_k = j->b_k, .c_row = t->c_direct ? g->c_row : c_row};
        tile.b_panel = j->b_direct ? j->b_panel : kc * CDL_PANEL;
        tile.bias = g->bias && last ? t->bias : NULL;
        tile.act = last ? g->act : CDL_ACT_NONE;
        if (j->a_direct) {
            tile.a = (const float *)t->a + t->row * g->a.row_stride + k0;
            tile.a_row = g->a.row_stride;
        } else {
            CDL_NAME(cdl_pack_rows)(&from, t->row, t->rows, k0, kc, a, kc + PAD);
        }
        multiply(j, t, &tile, k0, kc, b, k0 ? CDL_TILE_ADD : CDL_TILE_SET);
    }
    if (!t->c_direct) store_c(j, t, c);
    return CDL_OK;
}

static void run_tasks(void *ctx, int64_t begin, int64_t end) {
    run *j = ctx;
    task t;
    for (int64_t i = begin; i < end; i++) {
        find_task(j, i, &t);
        cdl_status s = run_task(j, &t);
        if (s != CDL_OK) {
            cdl_fail(&j->status, s);
            return;
        }
    }
}

/* Panels of a task: as many as serve its caches, but fewer where threads would else go without. */
static int64_t panels_of_tasks(const run *j, int64_t batches) {
    const int64_t most = j->along || j->across ? WIDE_PC : j->a_direct ? PC : 2 * PC, threads = cdl_threads();
    const int64_t least = j->along ? threads : 2 * threads; /* long runs are worth more than even loads */
    int64_t blocks = cdl_ceil_div(j->panels, most), others = j->row_blocks * batches;
    if (threads > 1 && others < least) {
        blocks = CDL_MAX(blocks, cdl_ceil_div(least, others));
        blocks = cdl_ceil_div(blocks, threads) * threads; /* as many for each */
    }
    return CDL_MAX(cdl_ceil_div(j->panels, blocks), (int64_t)LEAST_PC);
}

cdl_status CDL_NAME(cdl_gemm_run)(const cdl_gemm *g) {
    run j = {.g = g, .panels = cdl_ceil_div(g->n, CDL_PANEL), .row_blocks = cdl_ceil_div(g->m, MC), .b_k = CDL_PANEL};
    j.a_direct = g->a.dtype == CDL_F32 && g->a.col_stride == 1;
    int64_t batches = 1;
    for (int32_t i = 0; i < g->batch_rank; i++) batches *= g->batch[i];
    if (batches * j.row_blocks * j.panels == 0) return CDL_OK;
    if (g->b.dtype == CDL_F32X16) {
        j.b_direct = true;
        j.b_panel = g->k * CDL_PANEL;
    } else if (g->b.dtype == CDL_F32 && g->b.row_stride == 1 && g->n % CDL_PANEL == 0 &&
               (g->m <= FEW_ROWS || (g->b.col_stride > 0 && g->b.col_stride < SMALL_B / CDL_MAX(g->k, (int64_t)1)))) {
        j.b_direct = true;
        j.b_k = g->b.col_stride;
        j.b_panel = CDL_PANEL;
    }
    j.along = j.b_direct && g->b.dtype != CDL_F32X16 && g->m <= MOST_ALONG && g->k > CHUNK;
    j.across = !j.b_direct && g->m == 1 && g->b.dtype == CDL_F32 && g->b.col_stride == 1 && g->n % CDL_PANEL == 0;
    j.task_panels = panels_of_tasks(&j, batches);
    j.panel_blocks = cdl_ceil_div(j.panels, j.task_panels);
    const int64_t tasks = batches * j.row_blocks * j.panel_blocks;
    int64_t rows = CDL_MIN(g->m, (int64_t)MC), cols = CDL_MIN(g->n, j.task_panels * CDL_PANEL);
    cdl_parallel_for(tasks, cdl_grain(rows, cols, CDL_MAX(g->k, (int64_t)1)), run_tasks, &j);
    return j.status;
}
