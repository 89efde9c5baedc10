/* nearest.c: the operation `nearest`: exact top-k by dot product.
 *
 * A score is summed by lanes over d: one vector of partial sums takes d in order (its end padded with
 * zeros), then its lanes are added as v_sum does. A tile holds several vectors by several queries, each
 * with a sum of its own, so that loads are shared and a score has the same bits in any tile. Vectors are
 * cut into chunks; a chunk keeps the best k of each query in a heap, and heaps are merged under one total
 * order (score, then row): the answer does not depend on chunks or threads.
 *
 * Scratch: of the caller, slot 0 padded queries, slot 1 heaps; of each thread, slot 2 gathered vectors.
 */
#include "gemm.h"
#include "../simd/simd.h"
#include "unroll.h"

enum { SCORES, ROWS, QUERIES, VECTORS, MASK };
enum {
    BLOCK = 16,                    /* vectors whose scores are looked at together */
    TV = CDL_LANES == 8 ? 2 : 4,   /* vectors and queries of a tile of many queries */
    TQ = CDL_LANES == 1 ? 1 : 4,
    LONE = CDL_LANES == 1 ? 4 : 8, /* vectors of a tile of one query */
    AHEAD = 2 * BLOCK,             /* vectors from where a block is first read to what is prefetched */
    GROUP_BYTES = 256 << 10,       /* of queries that pass a chunk together */
    MIN_CHUNK = 1024               /* vectors */
};

typedef struct entry {
    float score;
    int64_t row;
} entry;

typedef struct heap {
    entry *at; /* the worst first */
    int64_t count;
} heap;

typedef struct job {
    const float *queries, *vectors; /* queries: [m][dp], zeros at the end */
    int64_t m, n, k, d, dp;
    int64_t vector_row, vector_col;
    const uint8_t *mask;
    int64_t mask_stride;
    int64_t chunk, chunks, group; /* vectors of a chunk, queries of a group */
    heap *heaps;                  /* [chunks][m] */
    int32_t status;
} job;

/* -- heaps ------------------------------------------------------------------------------------ */

static bool better(entry a, entry b) { return a.score > b.score || (a.score == b.score && a.row < b.row); }

static void sift_down(entry *at, int64_t count, int64_t i, entry e) {
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && better(at[child], at[child + 1])) child++;
        if (better(at[child], e)) break;
        at[i] = at[child];
    }
    at[i] = e;
}

static void push(heap *h, int64_t k, entry e) {
    if (h->count == k) {
        if (better(e, h->at[0])) sift_down(h->at, k, 0, e);
        return;
    }
    int64_t i = h->count++;
    for (; i > 0 && better(h->at[(i - 1) / 2], e); i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = e;
}

/* -- scores ----------------------------------------------------------------------------------- */


/* HALVES(a, b, s): of every s lanes of a, then of b, the first half plus the second; v_sums turns
 * CDL_LANES vectors into the vector of their v_sum. */
#define LOW(i, s) (i) / ((s) / 2) * (s) + (i) % ((s) / 2)
#define HIGH(i, s) LOW(i, s) + (s) / 2
#define LANES4(f, i, s) f(i, s), f(i + 1, s), f(i + 2, s), f(i + 3, s)
#define LANES8(f, i, s) LANES4(f, i, s), LANES4(f, i + 4, s)
#define LANES16(f, i, s) LANES8(f, i, s), LANES8(f, i + 8, s)
#if CDL_LANES > 1
#define HALVES(a, b, s)                                                                            \
    (__builtin_shufflevector(a, b, CDL_JOIN3(LANES, CDL_LANES)(LOW, 0, s)) +                       \
     __builtin_shufflevector(a, b, CDL_JOIN3(LANES, CDL_LANES)(HIGH, 0, s)))
#define CDL_JOIN3(a, b) CDL_JOIN4(a, b)
#define CDL_JOIN4(a, b) a##b
#define LEVEL(s)                                                                                   \
    UNROLL                                                                                         \
    for (int i = 0; i < (s) / 2; i++) x[i] = HALVES(x[2 * i], x[2 * i + 1], s)
#endif
CDL_INLINE vf v_sums(const vf *acc) {
    vf x[CDL_LANES];
    memcpy(x, acc, sizeof x);
#if CDL_LANES == 16
    LEVEL(16);
#endif
#if CDL_LANES >= 8
    LEVEL(8);
#endif
#if CDL_LANES >= 4
    LEVEL(4);
    LEVEL(2);
#endif
    return x[0];
}

/* out[q * BLOCK + v] = queries[q] . vectors[v]; NV * NQ is a whole number of vectors of lanes. */
CDL_INLINE void tile(const job *j, const float *vectors, int64_t row, const float *queries, float *out, const int NV,
                     const int NQ, const bool prefetch) {
    vf acc[16];
    int64_t i = 0, whole = j->d / CDL_LANES * CDL_LANES;
    uintptr_t ahead = (uintptr_t)vectors + (uintptr_t)(AHEAD * row) * sizeof(float);
    UNROLL
    for (int a = 0; a < NV * NQ; a++) acc[a] = v_zero();
    for (; i < whole; i += CDL_LANES) {
        vf x[16];
        UNROLL
        for (int v = 0; v < NV; v++) x[v] = v_load(vectors + v * row + i);
        if (prefetch) /* several streams confuse the hardware: ask for the same bytes in plain order */
            UNROLL
            for (int v = 0; v < NV * CDL_LANES / 16; v++, ahead += 64) __builtin_prefetch((const void *)ahead, 0, 2);
        UNROLL
        for (int q = 0; q < NQ; q++) {
            vf y = v_load(queries + q * j->dp + i);
            UNROLL
            for (int v = 0; v < NV; v++) acc[q * NV + v] = v_fma(y, x[v], acc[q * NV + v]);
        }
    }
    if (i < j->d)
        UNROLL
        for (int v = 0; v < NV; v++) {
            vf x = v_load_n(vectors + v * row + i, j->d - i);
            UNROLL
            for (int q = 0; q < NQ; q++)
                acc[q * NV + v] = v_fma(v_load(queries + q * j->dp + i), x, acc[q * NV + v]);
        }
    float sums[16];
    if (NV * NQ % CDL_LANES == 0)
        UNROLL
        for (int a = 0; a < NV * NQ; a += CDL_LANES) v_store(sums + a, v_sums(acc + a));
    else
        UNROLL
        for (int a = 0; a < NV * NQ; a++) sums[a] = v_sum(acc[a]);
    UNROLL
    for (int q = 0; q < NQ; q++) memcpy(out + q * BLOCK, sums + q * NV, (size_t)NV * sizeof(float));
}

/* Scores of one block of vectors: of a tile's worth of queries (the block's first, others), or of one. */
static void score_first(const job *j, const float *vectors, int64_t row, const float *queries, float *out) {
    for (int v = 0; v < BLOCK; v += TV) tile(j, vectors + v * row, row, queries, out + v, TV, TQ, true);
}
static void score_more(const job *j, const float *vectors, int64_t row, const float *queries, float *out) {
    for (int v = 0; v < BLOCK; v += TV) tile(j, vectors + v * row, row, queries, out + v, TV, TQ, false);
}
static void score_lone(const job *j, const float *vectors, int64_t row, const float *query, float *out) {
    for (int v = 0; v < BLOCK; v += LONE) tile(j, vectors + v * row, row, query, out + v, LONE, 1, true);
}

/* -- search ----------------------------------------------------------------------------------- */

static bool allowed(const job *j, int64_t row) { return !j->mask || j->mask[row * j->mask_stride]; }

/* Rows come in order, so an equal score is never better than one in a full heap. NaN compares false. */
static void offer(const job *j, heap *h, const float *scores, int64_t row, int64_t count) {
    if (h->count == j->k) {
        vi any = {0};
        for (int i = 0; i < BLOCK; i += CDL_LANES) any |= v_load(scores + i) > v_set1(h->at[0].score);
        if (!v_any(any)) return;
    }
    for (int64_t i = 0; i < count; i++) {
        bool wanted = h->count < j->k ? scores[i] == scores[i] : scores[i] > h->at[0].score;
        if (wanted && allowed(j, row + i)) push(h, j->k, (entry){scores[i], row + i});
    }
}

static bool any_allowed(const job *j, int64_t row, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (allowed(j, row + i)) return true;
    return false;
}

/* The block of vectors at `row`: in place, or gathered (strided, or the end: its last row repeated). */
static const float *block_at(const job *j, int64_t row, float *gathered, int64_t *row_stride) {
    const float *at = j->vectors + row * j->vector_row;
    *row_stride = j->vector_row;
    if (j->vector_col == 1 && row + BLOCK <= j->n) return at;
    *row_stride = j->d;
    for (int64_t r = 0; r < BLOCK; r++) {
        const float *from = at + CDL_MIN(r, j->n - row - 1) * j->vector_row;
        for (int64_t c = 0; c < j->d; c++) gathered[r * j->d + c] = from[c * j->vector_col];
    }
    return gathered;
}

/* Queries [first, end) against one chunk. */
static void search(const job *j, int64_t first, int64_t end, int64_t chunk, float *gathered) {
    float scores[TQ * BLOCK];
    heap *heaps = j->heaps + chunk * j->m;
    int64_t stop = CDL_MIN((chunk + 1) * j->chunk, j->n), stride;
    for (int64_t row = chunk * j->chunk; row < stop; row += BLOCK) {
        int64_t count = CDL_MIN(stop - row, (int64_t)BLOCK), q = first;
        if (!any_allowed(j, row, count)) continue;
        const float *vectors = block_at(j, row, gathered, &stride);
        for (; q + TQ <= end; q += TQ) {
            (q == first ? score_first : score_more)(j, vectors, stride, j->queries + q * j->dp, scores);
            for (int i = 0; i < TQ; i++) offer(j, &heaps[q + i], scores + i * BLOCK, row, count);
        }
        for (; q < end; q++) {
            score_lone(j, vectors, stride, j->queries + q * j->dp, scores);
            offer(j, &heaps[q], scores, row, count);
        }
    }
}

static void search_units(void *ctx, int64_t begin, int64_t end) {
    job *j = ctx;
    float *gathered = cdl_scratch(2, (uint64_t)(BLOCK * j->d + 1) * sizeof(float));
    if (!gathered) {
        cdl_fail(&j->status, CDL_ENOMEM);
        return;
    }
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t first = unit / j->chunks * j->group;
        search(j, first, CDL_MIN(first + j->group, j->m), unit % j->chunks, gathered);
    }
}

/* The heaps of a query into the first of them, then out, best first; -inf and -1 where there is none. */
static void answer(const job *j, const cdl_view *v, int64_t q, int64_t out_k) {
    heap *h = &j->heaps[q];
    for (int64_t c = 1; c < j->chunks; c++)
        for (int64_t i = 0; i < h[c * j->m].count; i++) push(h, j->k, h[c * j->m].at[i]);
    const cdl_layout *s = v[SCORES].layout, *r = v[ROWS].layout;
    for (int64_t i = out_k - 1; i >= 0; i--) {
        entry e = {-__builtin_inff(), -1};
        if (i < h->count) {
            e = h->at[0];
            sift_down(h->at, i, 0, h->at[i]); /* the worst leaves; i are left */
        }
        ((float *)v[SCORES].data)[q * s->strides[0] + i * s->strides[1]] = e.score;
        ((int64_t *)v[ROWS].data)[q * r->strides[0] + i * r->strides[1]] = e.row;
    }
}

static cdl_status check(const cdl_view *v, int32_t n) {
    if (n < 4 || n > 5) return CDL_EARGS;
    const cdl_layout *s = v[SCORES].layout, *r = v[ROWS].layout, *q = v[QUERIES].layout, *x = v[VECTORS].layout;
    if (s->dtype != CDL_F32 || r->dtype != CDL_I64 || q->dtype != CDL_F32 || x->dtype != CDL_F32) return CDL_EDTYPE;
    if (s->rank != 2 || r->rank != 2 || q->rank != 2 || x->rank != 2) return CDL_ESHAPE;
    if (s->shape[0] != r->shape[0] || s->shape[1] != r->shape[1] || s->shape[0] != q->shape[0]) return CDL_ESHAPE;
    if (q->shape[1] != x->shape[1] || q->shape[1] > INT32_MAX) return CDL_ESHAPE;
    bool mask = n == 5 && v[MASK].data;
    if (mask && v[MASK].layout->dtype != CDL_U8 && v[MASK].layout->dtype != CDL_BOOL) return CDL_EDTYPE;
    if (mask && (v[MASK].layout->rank != 1 || v[MASK].layout->shape[0] != x->shape[0])) return CDL_ESHAPE;
    if (s->shape[0] == 0 || s->shape[1] == 0) return CDL_OK;
    if (!v[SCORES].data || !v[ROWS].data) return CDL_EARGS;
    if (q->shape[1] && (!v[QUERIES].data || (x->shape[0] && !v[VECTORS].data))) return CDL_EARGS;
    return CDL_OK;
}

/* Sizes of the cuts: enough units for the threads, no chunk too small to be worth its heaps. */
static void cut(job *j) {
    int64_t fit = GROUP_BYTES / (int64_t)sizeof(float) / CDL_MAX(j->dp, (int64_t)1) / TQ * TQ;
    j->group = CDL_MIN(CDL_MAX(fit, (int64_t)TQ), j->m);
    int64_t units = 4 * (int64_t)cdl_threads(), groups = cdl_ceil_div(j->m, j->group);
    int64_t chunks = CDL_MIN(cdl_ceil_div(units, groups), cdl_ceil_div(j->n, MIN_CHUNK));
    j->chunk = cdl_ceil_div(cdl_ceil_div(j->n, CDL_MAX(chunks, (int64_t)1)), BLOCK) * BLOCK;
    j->chunks = j->n ? cdl_ceil_div(j->n, j->chunk) : 1;
}

/* Queries padded to whole vectors of lanes, and empty heaps. */
static cdl_status prepare(job *j, const cdl_view *v) {
    const cdl_layout *q = v[QUERIES].layout;
    int64_t floats, entries, bytes, heaps;
    if (!cdl_mul_ok(j->chunks, j->m, &heaps)) return CDL_ESHAPE;
    if (!cdl_mul_ok(j->m, j->dp, &floats) || !cdl_mul_ok(floats, sizeof(float), &floats)) return CDL_ESHAPE;
    if (!cdl_mul_ok(heaps, j->k, &entries) || !cdl_add_ok(entries, heaps, &bytes)) return CDL_ESHAPE;
    if (!cdl_mul_ok(bytes, sizeof(entry), &bytes)) return CDL_ESHAPE;
    float *queries = cdl_scratch(0, (uint64_t)floats + 1);
    j->heaps = cdl_scratch(1, (uint64_t)bytes);
    if (!queries || !j->heaps) return CDL_ENOMEM;
    memset(queries, 0, (size_t)floats);
    cdl_matrix from = {v[QUERIES].data, CDL_F32, j->m, j->d, q->strides[0], j->d > 1 ? q->strides[1] : 1};
    CDL_NAME(cdl_pack_rows)(&from, 0, j->m, 0, j->d, queries, j->dp);
    j->queries = queries;
    entry *at = (entry *)(j->heaps + heaps);
    for (int64_t i = 0; i < heaps; i++, at += j->k) j->heaps[i] = (heap){at, 0};
    return CDL_OK;
}

CDL_KERNEL(nearest) {
    (void)p;
    cdl_status s = check(v, n);
    if (s != CDL_OK || v[SCORES].layout->shape[0] == 0 || v[SCORES].layout->shape[1] == 0) return s;
    const cdl_layout *x = v[VECTORS].layout;
    job j = {.vectors = v[VECTORS].data, .m = v[QUERIES].layout->shape[0], .n = x->shape[0], .d = x->shape[1]};
    j.k = CDL_MIN(v[SCORES].layout->shape[1], CDL_MAX(j.n, (int64_t)1));
    j.dp = cdl_ceil_div(j.d, CDL_LANES) * CDL_LANES;
    j.vector_row = j.n > 1 && j.d ? x->strides[0] : 0;
    j.vector_col = j.d > 1 ? x->strides[1] : 1;
    if (n == 5 && v[MASK].data) {
        j.mask = v[MASK].data;
        j.mask_stride = v[MASK].layout->strides[0];
    }
    cut(&j);
    if ((s = prepare(&j, v)) != CDL_OK) return s;
    int64_t units = j.chunks * cdl_ceil_div(j.m, j.group);
    cdl_parallel_for(units, cdl_grain(j.group, CDL_MIN(j.chunk, j.n), j.d), search_units, &j);
    if (j.status != CDL_OK) return j.status;
    for (int64_t q = 0; q < j.m; q++) answer(&j, v, q, v[SCORES].layout->shape[1]);
    return CDL_OK;
}
