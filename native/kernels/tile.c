/* tile.c: collapsing views, walking them, and the loop that all elementwise operations share. */
#include "tile.h"

static void swap_axes(cdl_nd *nd, int32_t a, int32_t b) {
    int64_t t = nd->shape[a];
    nd->shape[a] = nd->shape[b];
    nd->shape[b] = t;
    for (int32_t k = 0; k < nd->n; k++) {
        t = nd->step[k][a];
        nd->step[k][a] = nd->step[k][b];
        nd->step[k][b] = t;
    }
}

/* Axis a outside, a + 1 inside: does the output's (then the inputs') memory want them exchanged? */
static bool out_of_order(const cdl_nd *nd, int32_t a) {
    for (int32_t k = 0; k < nd->n; k++) {
        int64_t outer = nd->step[k][a], inner = nd->step[k][a + 1];
        outer = outer < 0 ? -outer : outer;
        inner = inner < 0 ? -inner : inner;
        if (outer != inner) return outer < inner;
    }
    return false;
}

static bool mergeable(const cdl_nd *nd, int32_t a) {
    for (int32_t k = 0; k < nd->n; k++)
        if (nd->step[k][a] != nd->step[k][a + 1] * nd->shape[a + 1]) return false;
    return true;
}

static void collapse(cdl_nd *nd) {
    for (int32_t i = 1; i < nd->rank; i++)
        for (int32_t j = i - 1; j >= 0 && out_of_order(nd, j); j--) swap_axes(nd, j, j + 1);
    int32_t top = 0;
    for (int32_t i = 1; i < nd->rank; i++) {
        if (top + 1 != i) { /* close the gap that merging left */
            nd->shape[top + 1] = nd->shape[i];
            for (int32_t k = 0; k < nd->n; k++) nd->step[k][top + 1] = nd->step[k][i];
        }
        if (!mergeable(nd, top)) {
            top++;
            continue;
        }
        nd->shape[top] *= nd->shape[top + 1];
        for (int32_t k = 0; k < nd->n; k++) nd->step[k][top] = nd->step[k][top + 1];
    }
    nd->rank = top + 1;
}

cdl_status CDL_NAME(cdl_nd_make)(cdl_nd *nd, const cdl_view *v, int32_t n) {
    const cdl_layout *first = v[0].layout;
    nd->n = n;
    nd->count = cdl_count(first);
    for (int32_t k = 0; k < n; k++) {
        if (cdl_dtype_block(v[k].layout->dtype) != 1 || v[k].layout->dtype == CDL_F32X16) return CDL_EDTYPE;
        if (k && !cdl_same_shape(first, v[k].layout)) return CDL_ESHAPE;
        if (nd->count && !v[k].data) return CDL_EARGS;
        nd->dtype[k] = v[k].layout->dtype;
        nd->data[k] = v[k].data;
    }
    int32_t rank = 0;
    for (int32_t i = 0; i < first->rank; i++) {
        if (first->shape[i] == 1) continue;
        nd->shape[rank] = first->shape[i];
        for (int32_t k = 0; k < n; k++)
            nd->step[k][rank] = v[k].layout->strides[i] * cdl_dtype_size(nd->dtype[k]);
        rank++;
    }
    if (!rank) {
        nd->shape[0] = 1;
        for (int32_t k = 0; k < n; k++) nd->step[k][0] = cdl_dtype_size(nd->dtype[k]);
        rank = 1;
    }
    nd->rank = rank;
    if (rank > 1 && nd->count) collapse(nd);
    return CDL_OK;
}

typedef struct walk {
    const cdl_nd *nd;
    cdl_run_fn fn;
    void *ctx;
} walk;

static void walk_piece(void *ctx, int64_t begin, int64_t end) {
    const walk *w = ctx;
    const cdl_nd *nd = w->nd;
    const int32_t last = nd->rank - 1;
    int64_t index[8], step[4], rest = begin;
    char *data[4];
    for (int32_t k = 0; k < nd->n; k++) {
        data[k] = nd->data[k];
        step[k] = nd->step[k][last];
    }
    for (int32_t i = last; i >= 0; i--) {
        index[i] = rest % nd->shape[i];
        rest /= nd->shape[i];
        for (int32_t k = 0; k < nd->n; k++) data[k] += index[i] * nd->step[k][i];
    }
    while (begin < end) {
        int64_t run = CDL_MIN(nd->shape[last] - index[last], end - begin);
        w->fn(w->ctx, data, step, run);
        begin += run;
        if (begin >= end) return;
        for (int32_t k = 0; k < nd->n; k++) data[k] -= index[last] * step[k];
        index[last] = 0;
        for (int32_t i = last - 1; i >= 0; i--) {
            for (int32_t k = 0; k < nd->n; k++) data[k] += nd->step[k][i];
            if (++index[i] < nd->shape[i]) break;
            index[i] = 0;
            for (int32_t k = 0; k < nd->n; k++) data[k] -= nd->shape[i] * nd->step[k][i];
        }
    }
}

void CDL_NAME(cdl_nd_run)(const cdl_nd *nd, int64_t grain, cdl_run_fn fn, void *ctx) {
    walk w = {nd, fn, ctx};
    if (nd->count <= 0) return;
    if (nd->count <= grain) walk_piece(&w, 0, nd->count);
    else cdl_parallel_for(nd->count, grain, walk_piece, &w);
}

typedef struct job {
    cdl_tile_fn fn;
    int32_t dtype;
    int32_t inputs;
    int32_t status; /* the last failure of any tile; atomic */
} job;

static void elementwise_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    job *j = ctx;
    _Alignas(64) double buffer[3][CDL_TILE];
    const void *in[2] = {NULL, NULL};
    int32_t status = CDL_OK;
    for (int64_t at = 0; at < count; at += CDL_TILE) {
        int64_t n = CDL_MIN(CDL_TILE, count - at);
        for (int32_t k = 0; k < j->inputs; k++)
            if (!at || step[k + 1]) /* a broadcast fills its buffer once */
                in[k] = CDL_NAME(cdl_tile_load)(j->dtype, data[k + 1] + at * step[k + 1], step[k + 1], n, buffer[k]);
        char *to = data[0] + at * step[0];
        void *out = cdl_tile_out(j->dtype, to, step[0], buffer[2]);
        j->fn(out, in[0], in[1], n, &status);
        if (out != to) CDL_NAME(cdl_tile_store)(j->dtype, to, step[0], n, out);
    }
    if (status) cdl_fail(&j->status, status);
}

/* The shortest way: all f32, contiguous, few. */
static bool small_contiguous(const cdl_view *v, int32_t n, int64_t *count) {
    *count = cdl_count(v[0].layout);
    if (*count > CDL_GRAIN) return false;
    for (int32_t k = 0; k < n; k++) {
        const cdl_layout *l = v[k].layout;
        if (l->dtype != CDL_F32 || !v[k].data || !cdl_contiguous(l)) return false;
        if (k && !cdl_same_shape(v[0].layout, l)) return false;
    }
    return true;
}

cdl_status CDL_NAME(cdl_elementwise)(const cdl_view *v, int32_t n, int32_t inputs, const cdl_tile_fn fn[3]) {
    if (n != inputs + 1) return CDL_EARGS;
    int64_t count;
    int32_t status = CDL_OK;
    if (small_contiguous(v, n, &count)) {
        fn[CDL_KIND_F](v[0].data, v[1].data, v[n - 1].data, count, &status);
        return CDL_OK;
    }
    cdl_nd nd;
    status = CDL_NAME(cdl_nd_make)(&nd, v, n);
    if (status) return status;
    cdl_kind kind = cdl_kind_of(nd.dtype[0]);
    if (kind == CDL_KIND_NONE || !fn[kind]) return CDL_EDTYPE;
    for (int32_t k = 1; k < n; k++)
        if (nd.dtype[k] != nd.dtype[0]) return CDL_EDTYPE;
    job j = {fn[kind], nd.dtype[0], inputs, CDL_OK};
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN, elementwise_run, &j);
    return j.status;
}
