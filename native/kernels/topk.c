/* topk.c: the k greatest of each row, descending; ties by the lower index; NaN counts as the greatest.
 *
 * A value becomes an unsigned key of the same order. Few of many: a heap of k whose root is the worst
 * kept, and a scan that stops only at values which beat it. Otherwise a radix sort, stable, byte by byte.
 */
#include "order.h"

typedef struct topk {
    int64_t n, k;
    int64_t value_step, index_step, in_step; /* bytes along the last axis */
    int32_t dtype;
    cdl_kind kind;
    int32_t status; /* atomic */
} topk;

/* -- heap: the worst at the root ---------------------------------------------------------------------- */
CDL_INLINE bool worse(cdl_pair a, cdl_pair b) { return a.key < b.key || (a.key == b.key && a.index > b.index); }

static void sift(cdl_pair *heap, int64_t k, int64_t at) {
    const cdl_pair moving = heap[at];
    for (int64_t child; (child = 2 * at + 1) < k; at = child) {
        if (child + 1 < k && worse(heap[child + 1], heap[child])) child++;
        if (!worse(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

CDL_INLINE void offer(cdl_pair *heap, int64_t k, uint64_t key, int64_t index) {
    if (key <= heap[0].key) return; /* a tie loses: it comes later */
    heap[0] = (cdl_pair){key, (uint64_t)index};
    sift(heap, k, 0);
}

/* The float whose key this is, to compare vectors with. */
static float float_of_key(uint64_t key) {
    uint32_t u = (uint32_t)key;
    float x;
    u = u == UINT32_MAX ? 0x7fc00000u : u >> 31 ? u & 0x7fffffffu : ~u;
    memcpy(&x, &u, 4);
    return x;
}

static void scan_floats(cdl_pair *heap, int64_t k, const float *x, int64_t at, int64_t n) {
    vf root = v_set1(float_of_key(heap[0].key));
    for (; at + CDL_LANES <= n; at += CDL_LANES) {
        if (!v_any(~(v_load(x + at) <= root))) continue;
        for (int64_t i = at; i < at + CDL_LANES; i++) offer(heap, k, cdl_key_of_float(x[i]), i);
        root = v_set1(float_of_key(heap[0].key));
    }
    for (; at < n; at++) offer(heap, k, cdl_key_of_float(x[at]), at);
}

/* The k best of the row in heap[0..k), best first. */
static void by_heap(cdl_pair *heap, const topk *t, const void *row) {
    for (int64_t i = 0; i < t->k; i++) heap[i] = (cdl_pair){cdl_key_at(t->kind, row, i), (uint64_t)i};
    for (int64_t i = t->k / 2 - 1; i >= 0; i--) sift(heap, t->k, i);
    if (t->kind == CDL_KIND_F) scan_floats(heap, t->k, row, t->k, t->n);
    else
        for (int64_t i = t->k; i < t->n; i++) offer(heap, t->k, cdl_key_at(t->kind, row, i), i);
    for (int64_t last = t->k - 1; last > 0; last--) { /* the worst goes last */
        const cdl_pair worst = heap[0];
        heap[0] = heap[last];
        sift(heap, last, 0);
        heap[last] = worst;
    }
}

/* All n of the row, best first; `pairs` holds 2 n. */
static cdl_pair *by_sort(cdl_pair *pairs, const topk *t, const void *row) {
    for (int64_t i = 0; i < t->n; i++) pairs[i] = (cdl_pair){cdl_key_at(t->kind, row, i), (uint64_t)i};
    return cdl_sort_descending(pairs, pairs + t->n, t->n, cdl_key_bytes(t->kind));
}

/* -- rows ------------------------------------------------------------------------------------------------ */
static cdl_status one_row(const topk *t, char *values, char *indices, const char *in) {
    const int64_t size = cdl_kind_size(t->kind);
    const bool heap = t->k <= 64 || t->k <= t->n / 16;
    void *row_buffer = cdl_scratch_of(0, t->n, size);
    cdl_pair *pairs = heap ? cdl_scratch_of(1, t->k, sizeof *pairs) : cdl_scratch_of(1, t->n, 2 * sizeof *pairs);
    char *best = cdl_scratch_of(2, t->k, size);
    if (!row_buffer || !pairs || !best) return CDL_ENOMEM;
    const char *row = CDL_NAME(cdl_row_load)(t->dtype, in, t->in_step, t->n, row_buffer);
    if (heap) by_heap(pairs, t, row);
    else pairs = by_sort(pairs, t, row);
    for (int64_t i = 0; i < t->k; i++) {
        memcpy(best + i * size, row + (int64_t)pairs[i].index * size, (size_t)size);
        *(int64_t *)(indices + i * t->index_step) = (int64_t)pairs[i].index;
    }
    CDL_NAME(cdl_row_store)(t->dtype, values, t->value_step, t->k, best);
    return CDL_OK;
}

static void topk_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    topk *t = ctx;
    for (int64_t i = 0; i < count; i++) {
        cdl_status status = one_row(t, data[0] + i * step[0], data[1] + i * step[1], data[2] + i * step[2]);
        if (status) cdl_fail(&t->status, status);
    }
}

CDL_KERNEL(topk) {
    (void)p;
    if (n != 3) return CDL_EARGS;
    const cdl_layout *lv = v[0].layout, *li = v[1].layout, *in = v[2].layout;
    topk t = {.dtype = in->dtype, .kind = cdl_kind_of(in->dtype)};
    if (t.kind == CDL_KIND_NONE || lv->dtype != in->dtype || li->dtype != CDL_I64) return CDL_EDTYPE;
    if (in->rank < 1 || lv->rank != in->rank || !cdl_same_shape(lv, li)) return CDL_ESHAPE;
    cdl_layout outer[3] = {*lv, *li, *in};
    for (int k = 0; k < 3; k++) outer[k].rank--;
    t.k = lv->shape[lv->rank - 1], t.n = in->shape[in->rank - 1];
    if (t.k > t.n || !cdl_same_shape(&outer[0], &outer[2])) return CDL_ESHAPE;
    if (!t.k) return CDL_OK;
    t.value_step = cdl_last_step(lv), t.index_step = cdl_last_step(li), t.in_step = cdl_last_step(in);
    const cdl_view three[3] = {{v[0].data, &outer[0]}, {v[1].data, &outer[1]}, {v[2].data, &outer[2]}};
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, three, 3);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / t.n + 1, topk_run, &t);
    return t.status;
}
