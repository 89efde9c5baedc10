/* sort.c: each row of the last axis in order, with the places its elements came from. Stable both ways:
 * equal elements stay as they came. NaN counts as the greatest: last ascending, first descending. */
#include "order.h"

typedef struct sort {
    int64_t n, value_step, index_step, in_step; /* length; bytes along the last axis */
    uint64_t flip;                              /* taken by exclusive or: turns the order of keys */
    int32_t dtype;
    cdl_kind kind;
    int32_t status; /* atomic */
} sort;

static cdl_status one_row(const sort *s, char *values, char *indices, const char *in) {
    const int64_t n = s->n, size = cdl_kind_size(s->kind);
    void *row_buffer = cdl_scratch_of(0, n, size);
    cdl_pair *pairs = cdl_scratch_of(1, n, 2 * sizeof *pairs);
    char *sorted = cdl_scratch_of(2, n, size);
    if (!row_buffer || !pairs || !sorted) return CDL_ENOMEM;
    const char *row = CDL_NAME(cdl_row_load)(s->dtype, in, s->in_step, n, row_buffer);
    for (int64_t i = 0; i < n; i++) pairs[i] = (cdl_pair){cdl_key_at(s->kind, row, i) ^ s->flip, (uint64_t)i};
    pairs = cdl_sort_descending(pairs, pairs + n, n, cdl_key_bytes(s->kind));
    for (int64_t i = 0; i < n; i++) *(int64_t *)(indices + i * s->index_step) = (int64_t)pairs[i].index;
    if (size == 4)
        for (int64_t i = 0; i < n; i++) memcpy(sorted + i * 4, row + pairs[i].index * 4, 4);
    else
        for (int64_t i = 0; i < n; i++) memcpy(sorted + i * 8, row + pairs[i].index * 8, 8);
    CDL_NAME(cdl_row_store)(s->dtype, values, s->value_step, n, sorted);
    return CDL_OK;
}

static void sort_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    sort *s = ctx;
    for (int64_t i = 0; i < count; i++) {
        cdl_status status = one_row(s, data[0] + i * step[0], data[1] + i * step[1], data[2] + i * step[2]);
        if (status) cdl_fail(&s->status, status);
    }
}

CDL_KERNEL(sort) {
    if (n != 3) return CDL_EARGS;
    const cdl_layout *lv = v[0].layout, *li = v[1].layout, *in = v[2].layout;
    sort s = {.dtype = in->dtype, .kind = cdl_kind_of(in->dtype)};
    if (s.kind == CDL_KIND_NONE || lv->dtype != in->dtype || li->dtype != CDL_I64) return CDL_EDTYPE;
    if (p->i[0] != 0 && p->i[0] != 1) return CDL_EPARAM;
    if (in->rank < 1 || !cdl_same_shape(lv, in) || !cdl_same_shape(li, in)) return CDL_ESHAPE;
    const int32_t last = in->rank - 1;
    s.n = in->shape[last];
    if (!s.n) return CDL_OK;
    s.flip = p->i[0] ? 0 : s.kind == CDL_KIND_F ? UINT32_MAX : UINT64_MAX;
    s.value_step = cdl_last_step(lv), s.index_step = cdl_last_step(li), s.in_step = cdl_last_step(in);
    const cdl_layout outer[3] = {cdl_without_axis(lv, last), cdl_without_axis(li, last), cdl_without_axis(in, last)};
    const cdl_view three[3] = {{v[0].data, &outer[0]}, {v[1].data, &outer[1]}, {v[2].data, &outer[2]}};
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, three, 3);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / 8 / s.n + 1, sort_run, &s);
    return s.status;
}
