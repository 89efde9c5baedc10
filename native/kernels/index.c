/* index.c: take, index_add, gather, scatter_add. Indices are i64 i32 u32; one outside its axis
 * (negative ones too: the caller wraps them) is CDL_ERANGE. Sums run in index order for every
 * element, so neither threads nor the shape of a batch change a bit. */
#include "tile.h"

CDL_KERNEL(copy); /* movement.c: one row of any kind and stride */

static bool is_index(int32_t dtype) { return dtype == CDL_I64 || dtype == CDL_I32 || dtype == CDL_U32; }

CDL_INLINE int64_t index_at(int32_t dtype, const char *p) {
    if (dtype == CDL_I64) return *(const int64_t *)p;
    return dtype == CDL_I32 ? (int64_t) * (const int32_t *)p : (int64_t) * (const uint32_t *)p;
}

/* Offset, in elements, of item `linear` (row-major) of the first `axes` axes. */
CDL_INLINE int64_t offset_at(const cdl_layout *l, int32_t axes, int64_t linear) {
    if (axes == 1) return linear * l->strides[0];
    int64_t offset = 0;
    for (int32_t i = axes - 1; i >= 0; i--) {
        offset += linear % l->shape[i] * l->strides[i];
        linear /= l->shape[i];
    }
    return offset;
}

/* All indices in row-major order, checked against [0, limit), in scratch slot 3. */
static cdl_status read_indices(const cdl_view *v, int64_t count, int64_t limit, const int64_t **out) {
    const cdl_layout *l = v->layout;
    const int64_t size = cdl_dtype_size(l->dtype);
    *out = NULL;
    if (!count) return CDL_OK;
    if (!v->data) return CDL_EARGS;
    int64_t *to = cdl_scratch_of(3, count, 8);
    if (!to) return CDL_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        to[i] = index_at(l->dtype, (const char *)v->data + offset_at(l, l->rank, i) * size);
        if (to[i] < 0 || to[i] >= limit) return CDL_ERANGE;
    }
    *out = to;
    return CDL_OK;
}

/* The layout without its first `axes` axes. */
static cdl_layout inner(const cdl_layout *l, int32_t axes) {
    cdl_layout o = {.dtype = l->dtype, .rank = l->rank - axes};
    for (int32_t i = axes; i < l->rank; i++) {
        o.shape[i - axes] = l->shape[i];
        o.strides[i - axes] = l->strides[i];
    }
    return o;
}

/* -- take ------------------------------------------------------------------------------------------ */
typedef struct take {
    const cdl_view *v;      /* out, table */
    const int64_t *index;   /* one a row of out, row-major over its first `axes` axes */
    cdl_layout out, row;    /* one row of each */
    int32_t axes;
    int32_t status;         /* atomic */
    int64_t bytes;          /* of a row that is copied as it lies, else 0 */
    int64_t size, table_step; /* bytes an out element; bytes between rows of the table */
} take;

static void take_rows(void *ctx, int64_t begin, int64_t end) {
    take *t = ctx;
    static const cdl_params none;
    for (int64_t i = begin; i < end; i++) {
        char *to = (char *)t->v[0].data + offset_at(t->v[0].layout, t->axes, i) * t->size;
        char *from = (char *)t->v[1].data + t->index[i] * t->table_step;
        if (t->bytes) {
            memcpy(to, from, (size_t)t->bytes);
            continue;
        }
        const cdl_view pair[2] = {{to, &t->out}, {from, &t->row}};
        cdl_status status = CDL_NAME(cdl_copy)(pair, 2, &none);
        if (status) cdl_fail(&t->status, status);
    }
}

CDL_KERNEL(take) {
    (void)p;
    if (n != 3) return CDL_EARGS;
    const cdl_layout *lo = v[0].layout, *lt = v[1].layout, *li = v[2].layout;
    const int64_t block = cdl_dtype_block(lt->dtype), size = cdl_dtype_size(lt->dtype);
    if (!is_index(li->dtype)) return CDL_EDTYPE;
    if (lt->rank < 1 || lo->rank != li->rank + lt->rank - 1) return CDL_ESHAPE;
    take t = {.v = v, .axes = li->rank, .out = inner(lo, li->rank), .row = inner(lt, 1)};
    if (lo->dtype != lt->dtype && (cdl_kind_of(lo->dtype) != CDL_KIND_F || cdl_kind_of(lt->dtype) == CDL_KIND_D ||
                                   cdl_kind_of(lt->dtype) == CDL_KIND_I))
        return CDL_EDTYPE;
    if (cdl_kind_of(lo->dtype) == CDL_KIND_NONE || lt->dtype == CDL_F32X16) return CDL_EDTYPE;
    for (int32_t i = 0; i < li->rank; i++)
        if (lo->shape[i] != li->shape[i]) return CDL_ESHAPE;
    if (!cdl_same_shape(&t.out, &t.row) || (block > 1 && lt->shape[0] > 1 && lt->strides[0] % block)) return CDL_ESHAPE;
    const int64_t rows = cdl_count(li), width = cdl_count(&t.out);
    cdl_status status = read_indices(&v[2], rows, lt->shape[0], &t.index);
    if (status || !rows || !width) return status;
    if (!v[0].data || !v[1].data) return CDL_EARGS;
    t.size = cdl_dtype_size(lo->dtype);
    t.table_step = lt->shape[0] == 1 ? 0 : lt->strides[0] / block * size;
    if (lo->dtype == lt->dtype && cdl_contiguous(&t.out) && cdl_contiguous(&t.row)) t.bytes = width * size;
    cdl_parallel_for(rows, CDL_GRAIN / width + 1, take_rows, &t);
    return t.status;
}

/* -- index_add ----------------------------------------------------------------------------------------- */
typedef struct index_add {
    const int64_t *index;
    int64_t rows, acc_step, src_step; /* bytes between rows */
    int32_t acc_dtype, src_dtype;
} index_add;

static void add_tile(cdl_kind kind, void *acc, const void *src, int64_t n) {
    if (kind == CDL_KIND_F)
        for (int64_t i = 0; i < n; i++) ((float *)acc)[i] += ((const float *)src)[i];
    else if (kind == CDL_KIND_D)
        for (int64_t i = 0; i < n; i++) ((double *)acc)[i] += ((const double *)src)[i];
    else /* wraps */
        for (int64_t i = 0; i < n; i++) ((uint64_t *)acc)[i] += ((const uint64_t *)src)[i];
}

/* A run of columns: every row of src in turn. */
static void index_add_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    const index_add *a = ctx;
    const cdl_kind kind = cdl_kind_of(a->acc_dtype);
    _Alignas(64) double to[CDL_TILE], from[CDL_TILE];
    for (int64_t at = 0; at < count; at += CDL_TILE) {
        const int64_t n = CDL_MIN(CDL_TILE, count - at);
        for (int64_t i = 0; i < a->rows; i++) {
            char *acc = data[0] + a->index[i] * a->acc_step + at * step[0];
            const char *src = data[1] + i * a->src_step + at * step[1];
            void *tile = (void *)(uintptr_t)CDL_NAME(cdl_tile_load)(a->acc_dtype, acc, step[0], n, to);
            add_tile(kind, tile, CDL_NAME(cdl_tile_load)(a->src_dtype, src, step[1], n, from), n);
            if (tile != acc) CDL_NAME(cdl_tile_store)(a->acc_dtype, acc, step[0], n, tile);
        }
    }
}

CDL_KERNEL(index_add) {
    (void)p;
    if (n != 3) return CDL_EARGS;
    const cdl_layout *la = v[0].layout, *ls = v[1].layout, *li = v[2].layout;
    if (!is_index(li->dtype) || la->dtype == CDL_BOOL) return CDL_EDTYPE;
    const cdl_kind kind = cdl_kind_of(la->dtype);
    if (kind == CDL_KIND_NONE || kind != cdl_kind_of(ls->dtype)) return CDL_EDTYPE;
    if (kind == CDL_KIND_I && la->dtype != ls->dtype) return CDL_EDTYPE;
    if (la->rank < 1 || ls->rank != la->rank || li->rank != 1 || li->shape[0] != ls->shape[0]) return CDL_ESHAPE;
    cdl_layout acc = inner(la, 1), src = inner(ls, 1);
    index_add a = {.rows = li->shape[0], .acc_dtype = la->dtype, .src_dtype = ls->dtype};
    a.acc_step = la->shape[0] == 1 ? 0 : la->strides[0] * cdl_dtype_size(la->dtype);
    a.src_step = ls->strides[0] * cdl_dtype_size(ls->dtype);
    cdl_nd nd;
    cdl_status status = read_indices(&v[2], a.rows, la->shape[0], &a.index);
    if (status || !a.rows) return status;
    const cdl_view pair[2] = {{v[0].data, &acc}, {v[1].data, &src}};
    status = CDL_NAME(cdl_nd_make)(&nd, pair, 2);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_MAX(64, CDL_GRAIN / a.rows), index_add_run, &a);
    return CDL_OK;
}

/* -- gather, scatter_add ------------------------------------------------------------------------------- */
typedef struct along {
    int64_t limit, step;           /* of the indexed operand along the axis: length, bytes */
    int64_t n, src_step, idx_step; /* scatter_add: length and bytes of src and indices along the axis */
    int64_t size;
    int32_t dtype, idx_dtype;
    int32_t status; /* atomic */
} along;

static void gather_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    along *g = ctx;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = index_at(g->idx_dtype, data[1] + i * step[1]);
        if (at < 0 || at >= g->limit) {
            cdl_fail(&g->status, CDL_ERANGE);
            continue;
        }
        const char *from = data[2] + i * step[2] + at * g->step;
        char *to = data[0] + i * step[0];
        if (g->size == 4) memcpy(to, from, 4);
        else memcpy(to, from, (size_t)g->size);
    }
}

/* Same rank, axis within it, and equal sizes on every other axis. */
static cdl_status check_along(const cdl_layout *a, const cdl_layout *b, const cdl_layout *idx, int64_t axis) {
    if (!is_index(idx->dtype) || a->dtype != b->dtype || cdl_kind_of(a->dtype) == CDL_KIND_NONE) return CDL_EDTYPE;
    if (axis < 0 || axis >= idx->rank) return CDL_EPARAM;
    if (a->rank != idx->rank || !cdl_same_shape(b, idx)) return CDL_ESHAPE;
    for (int32_t i = 0; i < a->rank; i++)
        if (i != axis && a->shape[i] != idx->shape[i]) return CDL_ESHAPE;
    return CDL_OK;
}

CDL_KERNEL(gather) {
    if (n != 3) return CDL_EARGS;
    const int64_t axis = p->i[0];
    cdl_status status = check_along(v[1].layout, v[0].layout, v[2].layout, axis);
    if (status) return status;
    cdl_layout in = *v[1].layout; /* stands still along the axis; the index moves it */
    along g = {.limit = in.shape[axis], .size = cdl_dtype_size(in.dtype), .idx_dtype = v[2].layout->dtype};
    g.step = g.limit == 1 ? 0 : in.strides[axis] * g.size;
    in.shape[axis] = v[0].layout->shape[axis];
    in.strides[axis] = 0;
    const cdl_view three[3] = {v[0], v[2], {v[1].data, &in}};
    cdl_nd nd;
    if (!g.limit && cdl_count(v[0].layout)) return CDL_ERANGE;
    status = CDL_NAME(cdl_nd_make)(&nd, three, 3);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN, gather_run, &g);
    return g.status;
}

#define ADD_NUMBER(type)                                                                           \
    {                                                                                              \
        type x, y;                                                                                 \
        memcpy(&x, acc, sizeof x);                                                                 \
        memcpy(&y, src, sizeof y);                                                                 \
        x = (type)(x + y);                                                                         \
        memcpy(acc, &x, sizeof x);                                                                 \
    }
#define ADD_HALF(kind)                                                                             \
    {                                                                                              \
        uint16_t x, y;                                                                             \
        memcpy(&x, acc, 2);                                                                        \
        memcpy(&y, src, 2);                                                                        \
        x = cdl_f32_to_##kind(cdl_##kind##_to_f32(x) + cdl_##kind##_to_f32(y));                    \
        memcpy(acc, &x, 2);                                                                        \
    }
static void add_one(int32_t dtype, char *acc, const char *src) {
    switch (dtype) {
    case CDL_F32: ADD_NUMBER(float) break;
    case CDL_F64: ADD_NUMBER(double) break;
    case CDL_F16: ADD_HALF(f16) break;
    case CDL_BF16: ADD_HALF(bf16) break;
    case CDL_I64: ADD_NUMBER(uint64_t) break;
    case CDL_I32: case CDL_U32: ADD_NUMBER(uint32_t) break;
    default: ADD_NUMBER(uint8_t) break;
    }
}

static void scatter_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    along *s = ctx;
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t at = index_at(s->idx_dtype, data[2] + i * step[2] + j * s->idx_step);
            if (at < 0 || at >= s->limit) cdl_fail(&s->status, CDL_ERANGE);
            else add_one(s->dtype, data[0] + i * step[0] + at * s->step, data[1] + i * step[1] + j * s->src_step);
        }
    }
}

CDL_KERNEL(scatter_add) {
    if (n != 3) return CDL_EARGS;
    const int64_t axis = p->i[0];
    cdl_status status = check_along(v[0].layout, v[1].layout, v[2].layout, axis);
    if (status || v[0].layout->dtype == CDL_BOOL) return status ? status : CDL_EDTYPE;
    const cdl_layout *la = v[0].layout, *ls = v[1].layout, *li = v[2].layout;
    const int64_t size = cdl_dtype_size(la->dtype);
    along s = {.limit = la->shape[axis], .n = ls->shape[axis], .size = size, .dtype = la->dtype, .idx_dtype = li->dtype};
    s.step = s.limit == 1 ? 0 : la->strides[axis] * size;
    s.src_step = ls->strides[axis] * size;
    s.idx_step = li->strides[axis] * cdl_dtype_size(li->dtype);
    if (!s.n) return CDL_OK;
    if (!s.limit && cdl_count(li)) return CDL_ERANGE;
    cdl_layout acc = cdl_without_axis(la, axis), src = cdl_without_axis(ls, axis), idx = cdl_without_axis(li, axis);
    const cdl_view three[3] = {{v[0].data, &acc}, {v[1].data, &src}, {v[2].data, &idx}};
    cdl_nd nd;
    status = CDL_NAME(cdl_nd_make)(&nd, three, 3);
    if (status) return status;
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / s.n + 1, scatter_run, &s);
    return s.status;
}
