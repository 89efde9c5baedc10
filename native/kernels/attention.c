/* attention.c: the operation `attention`, by tiles of rows and blocks of keys.
 *
 * A row is one query of one head. Rows that share a head of k and v (grouped heads) stand together, so
 * a tile of them reads each key once. Keys are cut into blocks of KB from key 0. Within a block a row
 * has its own maximum m, sum l and weighted sum o of v; blocks are merged in order. All this depends on
 * the row and the keys it sees alone: a prefill, a decode, a batch and any threads give the same bits.
 * Keys that a row does not see are never multiplied, so what stands there cannot matter.
 *
 * Scratch: slot 0 the tile (q, o, merged o, m, l), slot 1 packed k and v, slot 2 scores, slot 3 (of the
 * caller) results of blocks when blocks are shared out between threads.
 */
#include "gemm.h"
#include "../simd/simd.h"

enum { OUT, Q, K, V, LENGTHS };
enum {
    TR = 128,      /* rows of a tile */
    KB = CDL_KC,   /* keys of a block */
    STEP = 4,      /* panels of keys packed at a time */
    GROUP = CDL_LANES == 16 ? 8 : 6, /* rows that share a product with v where they see different keys */
    FEW_ROWS = 16, /* up to here v is read where it is */
    INLINE_MACS = 50000,
    MAX_D = 1 << 16
};

typedef struct job {
    const cdl_view *v;
    int64_t b, t, h, d, s, g, dp; /* dp: d rounded up to whole panels */
    int64_t st[4][4];             /* strides of out, q, k, v */
    int64_t rows, tiles, blocks;  /* rows of one head of k; tiles of them; blocks of keys */
    bool causal;
    int64_t position, window;
    float scale, cap;
    float *parts; /* shared-out blocks: [block][unit][rows][dp + 2] */
    int32_t status;
} job;

/* One tile: rows [row, row + rows) of head `g` of batch `b`. */
typedef struct tile {
    int64_t b, g, row, rows, lo, hi; /* lo, hi: union of the keys its rows see */
    float *q, *o, *sum, *m, *l;      /* [rows][d], [rows][dp] twice, [rows] twice; m, l of the sum after them */
} tile;

static int64_t length_of(const job *j, int64_t b) {
    const cdl_view *v = &j->v[LENGTHS];
    if (!v->data) return j->s;
    return ((const int32_t *)v->data)[b * (v->layout->shape[0] > 1 ? v->layout->strides[0] : 0)];
}

/* Keys [lo, hi) that a row sees; both grow with the row. */
static void keys_of(const job *j, int64_t b, int64_t row, int64_t *lo, int64_t *hi) {
    int64_t at = j->position + row / (j->h / j->g);
    *lo = 0;
    *hi = length_of(j, b);
    if (!j->causal) return;
    *hi = CDL_MIN(*hi, at + 1);
    if (j->window && at - j->window >= 0) *lo = CDL_MIN(at - j->window + 1, *hi);
}

static bool open_tile(const job *j, int64_t unit, tile *t) {
    int64_t first, end, per = j->h / j->g;
    t->row = unit % j->tiles * TR;
    t->rows = CDL_MIN(j->rows - t->row, (int64_t)TR);
    t->g = unit / j->tiles % j->g;
    t->b = unit / j->tiles / j->g;
    keys_of(j, t->b, t->row, &t->lo, &first);
    keys_of(j, t->b, t->row + t->rows - 1, &end, &t->hi);
    float *memory = cdl_scratch(0, (uint64_t)(TR * (j->d + 2 * j->dp + 4)) * sizeof(float));
    if (!memory) return false;
    t->o = memory;
    t->sum = t->o + TR * j->dp;
    t->m = t->sum + TR * j->dp;
    t->l = t->m + 2 * TR;
    t->q = t->l + 2 * TR;
    const cdl_layout *q = j->v[Q].layout;
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t i = (t->row + r) / per, head = t->g * per + (t->row + r) % per;
        cdl_matrix one = {j->v[Q].data, q->dtype, 1, j->d, 0, j->st[Q][3]};
        int64_t at = t->b * j->st[Q][0] + i * j->st[Q][1] + head * j->st[Q][2];
        one.data = (const char *)one.data + at * cdl_dtype_size(q->dtype);
        CDL_NAME(cdl_pack_rows)(&one, 0, 1, 0, j->d, t->q + r * j->d, j->d);
    }
    return true;
}

/* k or v of the tile's head as a matrix [key][d] that ends at the last key the tile sees. */
static cdl_matrix keys_matrix(const job *j, const tile *t, int which) {
    const cdl_layout *l = j->v[which].layout;
    int64_t at = t->b * j->st[which][0] + t->g * j->st[which][2];
    const char *data = (const char *)j->v[which].data + at * cdl_dtype_size(l->dtype);
    return (cdl_matrix){data, l->dtype, t->hi, j->d, j->st[which][1], j->st[which][3]};
}

/* Asks for a panel of keys ahead of its use; rows are read in pieces that hardware does not foresee. */
static void prefetch_panel(const cdl_matrix *m, int64_t key) {
    int64_t end = CDL_MIN(key + CDL_PANEL, m->rows), size = cdl_dtype_size(m->dtype);
    if (m->col_stride != 1) return;
    for (; key < end; key++) {
        const char *row = (const char *)m->data + key * m->row_stride * size;
        for (int64_t i = 0; i < m->cols * size; i += 64) __builtin_prefetch(row + i, 0, 2);
    }
}

/* scores[rows][KB] = q k^T for keys [from, to), from a whole panel. */
static void score(const job *j, const tile *t, int64_t from, int64_t to, float *packed, float *scores) {
    cdl_matrix k = keys_matrix(j, t, K), v = keys_matrix(j, t, V);
    int64_t panels = cdl_ceil_div(to - from, CDL_PANEL);
    for (int64_t i = 0; i < panels; i++) {
        int64_t key = from + i * CDL_PANEL;
        prefetch_panel(&k, key + 2 * CDL_PANEL);
        prefetch_panel(&v, key);
        CDL_NAME(cdl_pack_panel)(&k, key, 0, j->d, packed + i * CDL_PANEL * j->d);
    }
    cdl_tile tile = {.a_row = j->d, .b_k = CDL_PANEL, .b_panel = CDL_PANEL * j->d, .c = scores, .c_row = KB};
    for (int64_t k0 = 0; k0 < j->d; k0 += CDL_KC) {
        tile.a = t->q + k0;
        tile.b = packed + k0 * CDL_PANEL;
        CDL_NAME(cdl_tiles)(&tile, t->rows, panels, CDL_MIN(j->d - k0, (int64_t)CDL_KC),
                            k0 ? CDL_TILE_ADD : CDL_TILE_SET);
    }
}

/* Scores of one row to weights e^(x - m): places [lo, hi) of [0, width) are seen, the others get 0.
 * Lanes are places, and the block starts at a whole vector: the sum does not depend on width. */
static void weigh(const job *j, float *x, int64_t lo, int64_t hi, int64_t width, float *m, float *l) {
    const vf minus_inf = v_set1(-__builtin_inff());
    vf top = minus_inf, sum = v_zero();
    for (int64_t i = 0; i < width; i += CDL_LANES) {
        vi place = vi_iota() + vi_set1((int32_t)i);
        vf s = v_load(x + i) * v_set1(j->scale);
        if (j->cap > 0.0f) s = v_tanh(s / v_set1(j->cap)) * v_set1(j->cap);
        s = v_select((place >= vi_set1((int32_t)lo)) & (place < vi_set1((int32_t)hi)), s, minus_inf);
        top = v_max(top, s);
        v_store(x + i, s);
    }
    *m = v_hmax(top);
    for (int64_t i = 0; i < width; i += CDL_LANES) {
        vf e = v_exp(v_load(x + i) - v_set1(*m));
        sum = sum + e;
        v_store(x + i, e);
    }
    *l = v_sum(sum);
}

/* o[rows][dp] goes on by weights * v for places [lo, hi). */
static void add_values(const cdl_tile *tile, const job *j, int64_t row, int64_t rows, int64_t lo, int64_t hi) {
    if (lo >= hi) return;
    cdl_tile part = *tile;
    part.a += row * tile->a_row + lo;
    part.b += lo * tile->b_k;
    part.c += row * tile->c_row;
    CDL_NAME(cdl_tiles)(&part, rows, j->dp / CDL_PANEL, hi - lo, CDL_TILE_CONTINUE);
}

/* The places of the block [from, to) that a row of the tile sees. */
static void places(const job *j, const tile *t, int64_t r, int64_t from, int64_t to, int64_t *lo, int64_t *hi) {
    keys_of(j, t->b, t->row + r, lo, hi);
    *lo = CDL_MAX(CDL_MIN(*lo, to), from) - from;
    *hi = CDL_MAX(CDL_MIN(*hi, to), from) - from;
    *lo = CDL_MIN(*lo, *hi);
}

/* o = weights * v. Where rows see different places (a causal edge), what is common to a group of rows
 * is one product, and what comes before and after it is done row by row, in the order of the keys. */
static void values(const job *j, const tile *t, int64_t from, int64_t to, float *packed, const float *weights,
                   float *o) {
    cdl_matrix v = keys_matrix(j, t, V);
    cdl_tile tile = {.a = weights, .a_row = KB, .c = o, .c_row = j->dp, .b_k = CDL_PANEL};
    if (t->rows <= FEW_ROWS && v.dtype == CDL_F32 && v.col_stride == 1 && j->d == j->dp) {
        tile.b = (const float *)v.data + from * v.row_stride;
        tile.b_k = v.row_stride;
        tile.b_panel = CDL_PANEL;
    } else {
        cdl_matrix turned = {v.data, v.dtype, v.cols, v.rows, v.col_stride, v.row_stride};
        tile.b = packed;
        tile.b_panel = (to - from) * CDL_PANEL;
        for (int64_t i = 0; i < j->dp / CDL_PANEL; i++)
            CDL_NAME(cdl_pack_panel)(&turned, i * CDL_PANEL, from, to - from, packed + i * tile.b_panel);
    }
    memset(o, 0, (size_t)(t->rows * j->dp) * sizeof(float));
    int64_t first, lo, hi, last, low, high;
    places(j, t, 0, from, to, &first, &hi);
    places(j, t, t->rows - 1, from, to, &lo, &last);
    int64_t step = first == lo && hi == last ? TR : GROUP;
    for (int64_t r = 0; r < t->rows; r += step) {
        int64_t rows = CDL_MIN(t->rows - r, step);
        places(j, t, r, from, to, &first, &hi);
        places(j, t, r + rows - 1, from, to, &lo, &last);
        for (int64_t i = 0; i < rows && lo > first; i++) {
            places(j, t, r + i, from, to, &low, &high);
            add_values(&tile, j, r + i, 1, low, CDL_MIN(lo, high));
        }
        add_values(&tile, j, r, rows, lo, hi);
        for (int64_t i = 0; i < rows && last > hi; i++) {
            places(j, t, r + i, from, to, &low, &high);
            add_values(&tile, j, r + i, 1, CDL_MAX(CDL_MAX(lo, hi), low), high);
        }
    }
}

/* One block of keys for one tile. Rows that see none of it get l = 0. */
static cdl_status run_block(const job *j, const tile *t, int64_t block, float *o, float *m, float *l) {
    int64_t from = CDL_MAX(block * KB, t->lo / CDL_PANEL * CDL_PANEL), to = CDL_MIN((block + 1) * KB, t->hi);
    int64_t width = cdl_ceil_div(to - from, CDL_PANEL) * CDL_PANEL;
    float *packed = cdl_scratch(1, (uint64_t)(KB * j->dp) * sizeof(float));
    float *scores = cdl_scratch(2, (uint64_t)(TR * KB) * sizeof(float));
    if (!packed || !scores) return CDL_ENOMEM;
    score(j, t, from, to, packed, scores);
    for (int64_t r = 0; r < t->rows; r++) {
        int64_t lo, hi;
        places(j, t, r, from, to, &lo, &hi);
        m[r] = l[r] = 0.0f;
        if (lo < hi) weigh(j, scores + r * KB, lo, hi, width, &m[r], &l[r]);
    }
    values(j, t, from, to, packed, scores, o);
    return CDL_OK;
}

/* sum, m, l (of the rows so far) take in one more block. */
static void merge(const job *j, int64_t rows, float *sum, float *sum_m, float *sum_l, const float *o, const float *m,
                  const float *l) {
    for (int64_t r = 0; r < rows; r++, sum += j->dp, o += j->dp) {
        if (l[r] == 0.0f) continue;
        if (sum_l[r] == 0.0f) {
            memcpy(sum, o, (size_t)j->dp * sizeof(float));
            sum_m[r] = m[r];
            sum_l[r] = l[r];
            continue;
        }
        float top = m[r] > sum_m[r] ? m[r] : sum_m[r];
        vf old = v_exp(v_set1(sum_m[r] - top)), new = v_exp(v_set1(m[r] - top));
        for (int64_t i = 0; i < j->dp; i += CDL_LANES)
            v_store(sum + i, v_fma(v_load(sum + i), old, v_load(o + i) * new));
        sum_l[r] = v_fma(v_set1(sum_l[r]), old, v_set1(l[r]) * new)[0];
        sum_m[r] = top;
    }
}

static void store_row(void *data, int32_t dtype, int64_t at, int64_t stride, const float *x, int64_t d) {
    if (dtype == CDL_F32)
        for (int64_t i = 0; i < d; i++) ((float *)data)[at + i * stride] = x[i];
    else
        for (int64_t i = 0; i < d; i++)
            ((uint16_t *)data)[at + i * stride] = dtype == CDL_F16 ? cdl_f32_to_f16(x[i]) : cdl_f32_to_bf16(x[i]);
}

/* out = sum / l; zeros for a row that saw no key. */
static void finish(const job *j, const tile *t, float *sum, const float *l) {
    int64_t per = j->h / j->g;
    for (int64_t r = 0; r < t->rows; r++, sum += j->dp) {
        int64_t i = (t->row + r) / per, head = t->g * per + (t->row + r) % per;
        for (int64_t c = 0; c < j->dp; c += CDL_LANES)
            v_store(sum + c, l[r] == 0.0f ? v_zero() : v_load(sum + c) / v_set1(l[r]));
        store_row(j->v[OUT].data, j->v[OUT].layout->dtype,
                  t->b * j->st[OUT][0] + i * j->st[OUT][1] + head * j->st[OUT][2], j->st[OUT][3], sum, j->d);
    }
}

static void fail(job *j, cdl_status s) { __atomic_store_n(&j->status, (int32_t)s, __ATOMIC_RELAXED); }

/* Whole tiles, block after block. */
static void run_tiles(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t unit = begin; unit < end; unit++) {
        tile t;
        if (!open_tile(j, unit, &t)) return fail(j, CDL_ENOMEM);
        float *m = t.m + TR, *l = t.l + TR;
        memset(t.l, 0, TR * sizeof(float));
        memset(t.sum, 0, (size_t)(t.rows * j->dp) * sizeof(float));
        for (int64_t block = t.lo / KB; block * KB < t.hi; block++) {
            cdl_status s = run_block(j, &t, block, t.o, m, l);
            if (s != CDL_OK) return fail(j, s);
            merge(j, t.rows, t.sum, t.m, t.l, t.o, m, l);
        }
        finish(j, &t, t.sum, t.l);
    }
}

static float *part_of(const job *j, int64_t index) { return j->parts + index * j->rows * (j->dp + 2); }

/* Single blocks of tiles, results to `parts`: few tiles over many keys, as in decoding. Heads inside
 * blocks, since keys of all heads lie side by side. */
static void run_parts(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    for (int64_t index = begin; index < end; index++) {
        tile t;
        float *o = part_of(j, index), *m = o + j->rows * j->dp, *l = m + j->rows;
        int64_t block = index / (j->b * j->g);
        if (!open_tile(j, index % (j->b * j->g), &t)) return fail(j, CDL_ENOMEM);
        memset(l, 0, (size_t)j->rows * sizeof(float));
        if (block * KB >= t.hi || (block + 1) * KB <= t.lo) continue;
        cdl_status s = run_block(j, &t, block, o, m, l);
        if (s != CDL_OK) return fail(j, s);
    }
}

static void merge_parts(job *j) {
    for (int64_t unit = 0; unit < j->b * j->g && j->status == CDL_OK; unit++) {
        tile t;
        if (!open_tile(j, unit, &t)) return fail(j, CDL_ENOMEM);
        memset(t.l, 0, TR * sizeof(float));
        memset(t.sum, 0, (size_t)(t.rows * j->dp) * sizeof(float));
        for (int64_t block = 0; block < j->blocks; block++) {
            const float *o = part_of(j, block * j->b * j->g + unit), *m = o + j->rows * j->dp;
            merge(j, t.rows, t.sum, t.m, t.l, o, m, m + j->rows);
        }
        finish(j, &t, t.sum, t.l);
    }
}

static cdl_status check(const cdl_view *v, int32_t n, const cdl_params *p) {
    if (n < 4 || n > 5) return CDL_EARGS;
    for (int i = OUT; i <= V; i++) {
        if (!cdl_is_float(v[i].layout->dtype)) return CDL_EDTYPE;
        if (v[i].layout->rank != 4) return CDL_ESHAPE;
    }
    const int64_t *out = v[OUT].layout->shape, *q = v[Q].layout->shape, *k = v[K].layout->shape;
    for (int i = 0; i < 4; i++)
        if (q[i] != out[i] || k[i] != v[V].layout->shape[i]) return CDL_ESHAPE;
    if (k[0] != q[0] || k[3] != q[3] || q[3] > MAX_D) return CDL_ESHAPE;
    if (q[2] && (k[2] == 0 || q[2] % k[2])) return CDL_ESHAPE;
    if (p->i[0] < 0 || p->i[0] > 1 || p->i[1] < 0 || p->i[1] > INT64_MAX / 2 || p->i[2] < 0) return CDL_EPARAM;
    if (p->i[2] && !p->i[0]) return CDL_EPARAM; /* a window is counted back from the query's own position */
    if (!(p->f[1] >= 0.0)) return CDL_EPARAM;
    if (n < 5 || !v[LENGTHS].data) return CDL_OK;
    if (v[LENGTHS].layout->dtype != CDL_I32) return CDL_EDTYPE;
    return v[LENGTHS].layout->rank == 1 && v[LENGTHS].layout->shape[0] == q[0] ? CDL_OK : CDL_ESHAPE;
}

static job make_job(const cdl_view *v, const cdl_params *p) {
    const int64_t *q = v[Q].layout->shape, *k = v[K].layout->shape;
    job j = {.v = v, .b = q[0], .t = q[1], .h = q[2], .d = q[3], .s = k[1], .g = k[2]};
    j.dp = cdl_ceil_div(j.d, CDL_PANEL) * CDL_PANEL;
    for (int i = OUT; i <= V; i++)
        for (int a = 0; a < 4; a++)
            j.st[i][a] = v[i].layout->shape[a] > 1 ? v[i].layout->strides[a] : a == 3;
    j.rows = j.t * (j.h / j.g);
    j.tiles = cdl_ceil_div(j.rows, TR);
    j.blocks = cdl_ceil_div(j.s, KB);
    j.causal = p->i[0] != 0;
    j.position = p->i[1];
    j.window = p->i[2];
    j.scale = (float)p->f[0];
    j.cap = (float)p->f[1];
    return j;
}

CDL_KERNEL(attention) {
    cdl_view all[5] = {{0}};
    cdl_status s = check(v, n, p);
    if (s != CDL_OK) return s;
    memcpy(all, v, (size_t)n * sizeof *v);
    const int64_t *q = v[Q].layout->shape;
    if (q[0] == 0 || q[1] == 0 || q[2] == 0 || q[3] == 0) return CDL_OK;
    job j = make_job(all, p);
    if (!v[OUT].data || !v[Q].data || (j.s && (!v[K].data || !v[V].data))) return CDL_EARGS;
    for (int64_t b = 0; b < j.b; b++)
        if (length_of(&j, b) < 0 || length_of(&j, b) > j.s) return CDL_ERANGE;
    int64_t units = j.b * j.g * j.tiles, threads = cdl_threads();
    if (j.rows <= FEW_ROWS && units < 4 * threads && j.blocks > 1) {
        int64_t bytes = units * j.rows * (j.dp + 2) * (int64_t)sizeof(float);
        if (!cdl_mul_ok(bytes, j.blocks, &bytes)) return CDL_ESHAPE;
        if (!(j.parts = cdl_scratch(3, (uint64_t)bytes))) return CDL_ENOMEM;
        cdl_parallel_for(units * j.blocks, 1, run_parts, &j);
        merge_parts(&j);
        return j.status;
    }
    int64_t macs = CDL_MIN(j.rows, (int64_t)TR) * CDL_MAX(j.s, (int64_t)1) * j.d * 2;
    cdl_parallel_for(units, CDL_MAX((int64_t)1, INLINE_MACS / macs), run_tiles, &j);
    return j.status;
}
