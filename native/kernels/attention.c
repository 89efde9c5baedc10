/* attention.c: the operation `attention`, by tiles of rows and blocks of keys.
 *
 * A row is one query of one head. Rows that share a head of k and v (grouped heads) stand together, so
 * a tile of them reads each key once. Keys are cut into blocks of KB from key 0. Within a block a row
 * has its own maximum m, sum l and weighted sum o of v; blocks are merged in order. All this depends on
 * the row and the keys it sees alone: a prefill, a decode, a batch and any threads give the same bits.
 * Keys that a row does not see are never multiplied, so what stands there cannot matter.
 *
 * Prefill takes a tile of rows over all its blocks (run_tiles); decode, few rows over many keys, takes
 * a block of keys for all heads (run_parts) and merges afterwards: memory is then read in plain order.
 *
 * Scratch: slot 0 q and sums of the tile, slot 1 packed k or v, slot 2 scores, slot 3 (of the caller) the
 * parts that are to be merged.
 */
#include "gemm.h"
#include "../simd/simd.h"

enum { OUT, Q, K, V, LENGTHS };
enum {
    TR = 128,      /* rows of a tile */
    KB = CDL_KC,   /* keys of a block */
    STEP = 3,      /* panels of keys packed at a time */
    GROUP = CDL_LANES == 16 ? 8 : 6, /* rows that share a product with v where they see different keys */
    FEW_ROWS = 16, /* up to here v is read where it is */
    MAX_D = 1 << 16 /* width, and number of heads: scratch sizes cannot overflow */
};

typedef struct job {
    const cdl_view *v;
    int64_t b, t, h, d, s, g, dp; /* dp: d rounded up to whole panels */
    int64_t st[4][4];             /* strides of out, q, k, v */
    int64_t per, rows, tiles;     /* heads and rows of one head of k; tiles of rows */
    int64_t blocks;               /* of keys */
    bool causal;
    int64_t position, window;
    float scale, cap;
    float *parts; /* [block][b][g], each o[rows][dp], m[rows], l[rows] */
    int32_t status;
} job;

/* One tile: rows [row, row + rows) of head `g` of batch `b`. */
typedef struct tile {
    int64_t b, g, row, rows, lo, hi; /* lo, hi: union of the keys its rows see */
    const float *q;                  /* [rows][d] */
} tile;

/* Rows of results: o is not yet divided by l; l = 0 says that no key was seen. */
typedef struct sums {
    float *o, *m, *l; /* [rows][dp], [rows], [rows] */
} sums;

static int64_t length_of(const job *j, int64_t b) {
    const cdl_view *v = &j->v[LENGTHS];
    if (!v->data) return j->s;
    return ((const int32_t *)v->data)[b * (v->layout->shape[0] > 1 ? v->layout->strides[0] : 0)];
}

/* Keys [lo, hi) that a row sees; both grow with the row. */
static void keys_of(const job *j, int64_t b, int64_t row, int64_t *lo, int64_t *hi) {
    int64_t at = j->position + row / j->per;
    *lo = 0;
    *hi = length_of(j, b);
    if (!j->causal) return;
    *hi = CDL_MIN(*hi, at + 1);
    if (j->window && at - j->window >= 0) *lo = CDL_MIN(at - j->window + 1, *hi);
}

/* Where a row of the tile stands in out or q, in elements. */
static int64_t place_of(const job *j, const tile *t, int64_t r, int which) {
    int64_t i = (t->row + r) / j->per, head = t->g * j->per + (t->row + r) % j->per;
    return t->b * j->st[which][0] + i * j->st[which][1] + head * j->st[which][2];
}

/* The tile of rows from `row` on; its queries to q, unless that is NULL. */
static tile open_tile(const job *j, int64_t b, int64_t g, int64_t row, float *q) {
    int64_t unused;
    tile t = {.b = b, .g = g, .row = row, .rows = CDL_MIN(j->rows - row, (int64_t)TR), .q = q};
    keys_of(j, b, row, &t.lo, &unused);
    keys_of(j, b, row + t.rows - 1, &unused, &t.hi);
    const cdl_view *v = &j->v[Q];
    for (int64_t r = 0; q && r < t.rows; r++) {
        int64_t at = place_of(j, &t, r, Q) * cdl_dtype_size(v->layout->dtype);
        cdl_matrix one = {(const char *)v->data + at, v->layout->dtype, 1, j->d, 0, j->st[Q][3]};
        CDL_NAME(cdl_pack_rows)(&one, 0, 1, 0, j->d, q + r * j->d, j->d);
    }
    return t;
}

/* k or v of the tile's head as a matrix [key][d] that ends at the last key the tile sees. */
static cdl_matrix keys_matrix(const job *j, const tile *t, int which) {
    const cdl_layout *l = j->v[which].layout;
    int64_t at = t->b * j->st[which][0] + t->g * j->st[which][2];
    const char *data = (const char *)j->v[which].data + at * cdl_dtype_size(l->dtype);
    return (cdl_matrix){data, l->dtype, t->hi, j->d, j->st[which][1], j->st[which][3]};
}

/* scores[rows][KB], at `column`, = q times `panels` packed panels. */
static void multiply_keys(const job *j, const tile *t, const float *packed, int64_t panels, float *scores,
                          int64_t column) {
    cdl_tile tile = {.a_row = j->d, .b_k = CDL_PANEL, .b_panel = CDL_PANEL * j->d, .c_row = KB};
    tile.c = scores + column;
    for (int64_t k0 = 0; k0 < j->d; k0 += CDL_KC) {
        tile.a = t->q + k0;
        tile.b = packed + k0 * CDL_PANEL;
        CDL_NAME(cdl_tiles)(&tile, t->rows, panels, CDL_MIN(j->d - k0, (int64_t)CDL_KC),
                            k0 ? CDL_TILE_ADD : CDL_TILE_SET);
    }
}

/* scores = q k^T for keys [from, to), from a whole panel; a few panels are packed and used at a time. */
static void score(const job *j, const tile *t, int64_t from, int64_t to, float *packed, float *scores) {
    cdl_matrix k = keys_matrix(j, t, K);
    for (int64_t key = from; key < to; key += STEP * CDL_PANEL) {
        int64_t panels = CDL_MIN(cdl_ceil_div(to - key, CDL_PANEL), (int64_t)STEP);
        for (int64_t i = 0; i < panels; i++)
            CDL_NAME(cdl_pack_panel)(&k, key + i * CDL_PANEL, 0, j->d, packed + i * CDL_PANEL * j->d);
        multiply_keys(j, t, packed, panels, scores, key - from);
    }
}

/* e^x for x <= 0, 2 ULP; 0 below the normal floats. v_max keeps a NaN in its second place. */
CDL_INLINE vf weight(vf x) {
    vf n = v_round(v_max(v_set1(-126.0f), x * 0x1.715476p+0f));
    vf r = v_fma(n, v_set1(-0x1.63p-1f), x); /* ln2 in two parts */
    r = v_fma(n, v_set1(0x1.bd0106p-13f), r);
    vf q = v_fma(v_set1(0x1.6a2352p-10f), r, v_set1(0x1.123a6cp-7f));
    q = v_fma(q, r, v_set1(0x1.5558f4p-5f));
    q = v_fma(q, r, v_set1(0x1.555490p-3f));
    q = v_fma(q, r, v_set1(0x1.fffffcp-2f));
    vf e = (v_fma(q, r * r, r) + 1.0f) * vi_as_v((v_to_vi(n) + 127) << 23);
    return v_select(x < -87.0f, v_zero(), e);
}

/* Scores of one row to weights e^(x - m): places [lo, hi) of [0, width) are seen, the others get 0.
 * Lanes are places, and the block starts at a whole panel: the sum does not depend on width. */
static void weigh(const job *j, float *x, int64_t lo, int64_t hi, int64_t width, float *m, float *l) {
    const vf minus_inf = v_set1(-__builtin_inff()), scale = v_set1(j->scale), cap = v_set1(j->cap);
    vf top = minus_inf, sum = v_zero();
    for (int64_t i = 0; i < width; i += CDL_LANES) {
        vf s = v_load(x + i) * scale;
        if (j->cap > 0.0f) s = v_tanh(s / cap) * cap;
        if (i < lo || i + CDL_LANES > hi) {
            vi place = vi_iota() + vi_set1((int32_t)i);
            s = v_select((place >= vi_set1((int32_t)lo)) & (place < vi_set1((int32_t)hi)), s, minus_inf);
        }
        top = v_max(top, s);
        v_store(x + i, s);
    }
    *m = v_hmax(top);
    for (int64_t i = 0; i < width; i += CDL_LANES) {
        vf e = weight(v_load(x + i) - v_set1(*m));
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

/* Scores to weights and sums, for keys [from, to). */
static void weigh_and_sum(const job *j, const tile *t, int64_t from, int64_t to, float *scores,
                          float *packed, sums one) {
    int64_t width = cdl_ceil_div(to - from, CDL_PANEL) * CDL_PANEL, lo, hi;
    for (int64_t r = 0; r < t->rows; r++) {
        places(j, t, r, from, to, &lo, &hi);
        one.m[r] = one.l[r] = 0.0f;
        if (lo < hi) weigh(j, scores + r * KB, lo, hi, width, &one.m[r], &one.l[r]);
    }
    values(j, t, from, to, packed, scores, one.o);
}

/* Keys of a block that a tile sees, from a whole panel; none if from >= to. */
static void block_range(const tile *t, int64_t block, int64_t *from, int64_t *to) {
    *from = CDL_MAX(block * KB, t->lo / CDL_PANEL * CDL_PANEL);
    *to = CDL_MIN((block + 1) * KB, t->hi);
}

/* `sum`, the rows so far, takes in one more block. */
static void merge(const job *j, int64_t rows, sums sum, sums one) {
    for (int64_t r = 0; r < rows; r++, sum.o += j->dp, one.o += j->dp) {
        if (one.l[r] == 0.0f) continue;
        if (sum.l[r] == 0.0f) {
            memcpy(sum.o, one.o, (size_t)j->dp * sizeof(float));
            sum.m[r] = one.m[r];
            sum.l[r] = one.l[r];
            continue;
        }
        float top = one.m[r] > sum.m[r] ? one.m[r] : sum.m[r];
        vf old = weight(v_set1(sum.m[r] - top)), new = weight(v_set1(one.m[r] - top));
        for (int64_t i = 0; i < j->dp; i += CDL_LANES)
            v_store(sum.o + i, v_fma(v_load(sum.o + i), old, v_load(one.o + i) * new));
        sum.l[r] = v_fma(v_set1(sum.l[r]), old, v_set1(one.l[r]) * new)[0];
        sum.m[r] = top;
    }
}

/* d results of a row to out; x has them in f32. */
static void store_row(const cdl_view *out, int64_t at, int64_t stride, const float *x, int64_t d) {
    if (out->layout->dtype == CDL_F32 && stride == 1) {
        memcpy((float *)out->data + at, x, (size_t)d * sizeof(float));
    } else if (out->layout->dtype == CDL_F32) {
        for (int64_t i = 0; i < d; i++) ((float *)out->data)[at + i * stride] = x[i];
    } else {
        bool f16 = out->layout->dtype == CDL_F16;
        for (int64_t i = 0; i < d; i++)
            ((uint16_t *)out->data)[at + i * stride] = f16 ? cdl_f32_to_f16(x[i]) : cdl_f32_to_bf16(x[i]);
    }
}

/* out = o / l; zeros for a row that saw no key. o is used up. */
static void finish(const job *j, const tile *t, sums sum) {
    for (int64_t r = 0; r < t->rows; r++) {
        float *x = sum.o + r * j->dp;
        vf l = v_set1(sum.l[r] == 0.0f ? 1.0f : sum.l[r]);
        for (int64_t i = 0; i < j->dp; i += CDL_LANES) v_store(x + i, v_load(x + i) / l);
        store_row(&j->v[OUT], place_of(j, t, r, OUT), j->st[OUT][3], x, j->d);
    }
}


static uint64_t floats(int64_t count) { return (uint64_t)count * sizeof(float); }

/* Whole tiles, block after block. */
static void run_tiles(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    float *q = cdl_scratch(0, floats(TR * (j->d + 2 * j->dp + 4)));
    float *packed = cdl_scratch(1, floats(KB * j->dp)), *scores = cdl_scratch(2, floats(TR * KB));
    if (!q || !packed || !scores) {
        cdl_fail(&j->status, CDL_ENOMEM);
        return;
    }
    float *m = q + TR * j->d, *o = m + 4 * TR;
    sums sum = {o, m, m + TR}, one = {o + TR * j->dp, m + 2 * TR, m + 3 * TR};
    for (int64_t unit = begin, from, to; unit < end; unit++) {
        int64_t head = unit / j->tiles;
        tile t = open_tile(j, head / j->g, head % j->g, unit % j->tiles * TR, q);
        memset(sum.l, 0, TR * sizeof(float));
        memset(sum.o, 0, (size_t)floats(t.rows * j->dp));
        for (int64_t block = t.lo / KB; block * KB < t.hi; block++) {
            block_range(&t, block, &from, &to);
            score(j, &t, from, to, packed, scores);
            weigh_and_sum(j, &t, from, to, scores, packed, one);
            merge(j, t.rows, sum, one);
        }
        finish(j, &t, sum);
    }
}

static sums part_of(const job *j, int64_t block, int64_t b, int64_t g) {
    float *o = j->parts + ((block * j->b + b) * j->g + g) * j->rows * (j->dp + 2), *m = o + j->rows * j->dp;
    return (sums){o, m, m + j->rows};
}

/* Asks for `count` elements from place `at` of the keys [key, ...) of all heads, in memory order. Hardware
 * does not foresee rows read in pieces; a request beyond the end does nothing. */
CDL_INLINE void prefetch(const job *j, const tile *t, int which, int64_t key, int64_t at, int64_t count) {
    const cdl_layout *l = j->v[which].layout;
    int64_t size = cdl_dtype_size(l->dtype), first = t->b * j->st[which][0] + key * j->st[which][1] + at;
    uintptr_t from = (uintptr_t)j->v[which].data + (uintptr_t)(first * size);
    for (int64_t i = 0; i < count * size; i += 64) __builtin_prefetch((const void *)(from + (uintptr_t)i), 0, 2);
}

/* The same as `score` for one step and few rows: what comes from memory is asked for ahead, a little with
 * every square that is packed: the keys of the next step, and the values of this one. */
static void score_ahead(const job *j, const tile *t, int64_t key, int64_t to, float *packed, float *scores) {
    enum { SQUARE = 16 };
    cdl_matrix k = keys_matrix(j, t, K);
    int64_t panels = cdl_ceil_div(to - key, CDL_PANEL);
    for (int64_t i = 0; i < panels; i++)
        for (int64_t c = 0, width; c < j->d; c += SQUARE) {
            int64_t at = ((t->g * panels + i) * j->d + c) * CDL_PANEL;
            width = CDL_MIN(j->d - c, (int64_t)SQUARE);
            prefetch(j, t, K, key + STEP * CDL_PANEL, at, width * CDL_PANEL);
            prefetch(j, t, V, key, at, width * CDL_PANEL);
            CDL_NAME(cdl_pack_panel)(&k, key + i * CDL_PANEL, c, width, packed + (i * j->d + c) * CDL_PANEL);
        }
    multiply_keys(j, t, packed, panels, scores, 0);
}

/* Single blocks of keys for all heads of a batch row, results to `parts`. */
static void run_parts(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    float *q = cdl_scratch(0, floats(j->g * j->rows * j->d)), *scores = cdl_scratch(2, floats(j->g * j->rows * KB));
    float *packed = cdl_scratch(1, floats(KB * j->dp));
    if (!q || !packed || !scores) {
        cdl_fail(&j->status, CDL_ENOMEM);
        return;
    }
    for (int64_t index = begin, from, to; index < end; index++) {
        int64_t block = index / j->b, b = index % j->b;
        tile t = open_tile(j, b, 0, 0, NULL);
        block_range(&t, block, &from, &to);
        for (int64_t g = 0; g < j->g; g++) {
            memset(part_of(j, block, b, g).l, 0, (size_t)floats(j->rows));
            if (from < to) open_tile(j, b, g, 0, q + g * j->rows * j->d);
        }
        for (int64_t key = from; key < to; key += STEP * CDL_PANEL)
            for (t.g = 0; t.g < j->g; t.g++) {
                t.q = q + t.g * j->rows * j->d;
                score_ahead(j, &t, key, CDL_MIN(to, key + STEP * CDL_PANEL), packed,
                            scores + t.g * j->rows * KB + key - from);
            }
        for (t.g = 0; t.g < j->g && from < to; t.g++)
            weigh_and_sum(j, &t, from, to, scores + t.g * j->rows * KB, packed, part_of(j, block, b, t.g));
    }
}

static void merge_parts(job *j) {
    for (int64_t index = 0; index < j->b * j->g; index++) {
        tile t = open_tile(j, index / j->g, index % j->g, 0, NULL);
        sums sum = part_of(j, 0, t.b, t.g);
        for (int64_t r = 0; r < j->rows; r++)
            if (sum.l[r] == 0.0f) memset(sum.o + r * j->dp, 0, (size_t)floats(j->dp));
        for (int64_t block = 1; block < j->blocks; block++) merge(j, t.rows, sum, part_of(j, block, t.b, t.g));
        finish(j, &t, sum);
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
    if (k[0] != q[0] || k[3] != q[3] || q[2] > MAX_D || q[3] > MAX_D) return CDL_ESHAPE;
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
    j.per = j.h / j.g;
    j.rows = j.t * j.per;
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
    int64_t units = j.b * j.g * j.tiles;
    if (j.rows <= FEW_ROWS && j.blocks > 1 && units < 4 * (int64_t)cdl_threads()) {
        int64_t bytes = j.rows * (j.dp + 2) * (int64_t)sizeof(float);
        if (!cdl_mul_ok(bytes, units, &bytes) || !cdl_mul_ok(bytes, j.blocks, &bytes)) return CDL_ESHAPE;
        if (!(j.parts = cdl_scratch(3, (uint64_t)bytes))) return CDL_ENOMEM;
        cdl_parallel_for(j.blocks * j.b, 1, run_parts, &j);
        if (j.status == CDL_OK) merge_parts(&j);
        return j.status;
    }
    cdl_parallel_for(units, cdl_grain(CDL_MIN(j.rows, (int64_t)TR), j.s, 2 * j.d), run_tiles, &j);
    return j.status;
}
