/* movement.c: copy (with casts, transposes and dequantising), fill, iota, where. */
#include "quant.h"
#include "tile.h"

/* Calls `macro(type)` for the unsigned type as wide as an element. */
#define BY_SIZE(size, macro)                                                                       \
    switch (size) {                                                                                \
    case 1: macro(uint8_t) break;                                                                  \
    case 2: macro(uint16_t) break;                                                                 \
    case 4: macro(uint32_t) break;                                                                 \
    default: macro(uint64_t) break;                                                                \
    }

/* -- copy: one dtype -------------------------------------------------------------------------------- */
enum { PIECE = 1 << 17 };

static void move_run(void *ctx, char *const *data, const int64_t *step, int64_t n) {
    const int64_t size = *(const int64_t *)ctx;
    char *to = data[0];
    const char *from = data[1];
    if (step[0] == size && step[1] == size) {
        for (int64_t at = 0; at < n * size; at += PIECE) /* below where libc turns to slower stores */
            memcpy(to + at, from + at, (size_t)CDL_MIN(PIECE, n * size - at));
        return;
    }
#define MOVE(type)                                                                                 \
    if (step[0] == size)                                                                           \
        for (int64_t i = 0; i < n; i++) ((type *)to)[i] = *(const type *)(from + i * step[1]);     \
    else                                                                                           \
        for (int64_t i = 0; i < n; i++) *(type *)(to + i * step[0]) = *(const type *)(from + i * step[1]);
    BY_SIZE(size, MOVE)
}

/* A transpose: `in` is contiguous along one axis, `out` along another. Blocks of SIDE x SIDE pass
 * through L1. Axes: 0 contiguous in `in` (n0 long), 1 contiguous in `out` (n1 long); the rest outside. */
enum { SIDE = 32 };
typedef struct transpose {
    cdl_nd outer; /* the axes outside */
    int64_t size, n0, n1, out_step, in_step, strips;
} transpose;

#if CDL_LANES > 1
typedef uint32_t quad __attribute__((vector_size(16)));
CDL_INLINE void transpose_4x4(char *to, int64_t out_step, const char *from, int64_t in_step) {
    quad r[4], a, b, c, d;
    for (int i = 0; i < 4; i++) memcpy(&r[i], from + i * in_step, 16);
    a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5), d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5), r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5), r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) memcpy(to + i * out_step, &r[i], 16);
}
#endif

static void transpose_block(const transpose *t, char *to, const char *from, int64_t m0, int64_t m1) {
    int64_t done = 0;
#if CDL_LANES > 1
    if (t->size == 4) {
        done = m0 & ~(int64_t)3;
        for (int64_t a = 0; a < done; a += 4) {
            int64_t b = 0;
            for (; b + 4 <= m1; b += 4)
                transpose_4x4(to + a * t->out_step + b * 4, t->out_step, from + a * 4 + b * t->in_step, t->in_step);
            for (; b < m1; b++)
                for (int64_t k = a; k < a + 4; k++)
                    memcpy(to + k * t->out_step + b * 4, from + k * 4 + b * t->in_step, 4);
        }
    }
#endif
#define TURN(type)                                                                                 \
    for (int64_t a = done; a < m0; a++)                                                            \
        for (int64_t b = 0; b < m1; b++)                                                           \
            ((type *)(to + a * t->out_step))[b] = ((const type *)(from + b * t->in_step))[a];
    BY_SIZE(t->size, TURN)
}

/* A piece: strips of SIDE along axis 0, all of axis 1. */
static void transpose_piece(void *ctx, int64_t begin, int64_t end) {
    const transpose *t = ctx;
    for (int64_t strip = begin; strip < end; strip++) {
        int64_t rest = strip / t->strips, at0 = strip % t->strips * SIDE;
        char *to = t->outer.data[0] + at0 * t->out_step, *from = t->outer.data[1] + at0 * t->size;
        for (int32_t i = t->outer.rank - 1; i >= 0; i--) {
            to += rest % t->outer.shape[i] * t->outer.step[0][i];
            from += rest % t->outer.shape[i] * t->outer.step[1][i];
            rest /= t->outer.shape[i];
        }
        int64_t m0 = CDL_MIN(SIDE, t->n0 - at0);
        for (int64_t at1 = 0; at1 < t->n1; at1 += SIDE)
            transpose_block(t, to + at1 * t->size, from + at1 * t->in_step, m0, CDL_MIN(SIDE, t->n1 - at1));
    }
}

/* True (and done) if the walk is a transpose worth blocking. */
static bool try_transpose(const cdl_nd *nd, int64_t size) {
    int32_t last = nd->rank - 1, axis = last - 1;
    if (nd->rank < 2 || nd->step[0][last] != size || nd->step[1][last] == size) return false;
    while (axis >= 0 && nd->step[1][axis] != size) axis--;
    if (axis < 0 || nd->shape[axis] < 4 || nd->shape[last] < 4) return false;
    transpose t = {*nd, size, nd->shape[axis], nd->shape[last], nd->step[0][axis], nd->step[1][last], 0};
    t.outer.rank = 0;
    for (int32_t i = 0; i < last; i++) {
        if (i == axis) continue;
        t.outer.shape[t.outer.rank] = nd->shape[i];
        for (int32_t k = 0; k < 2; k++) t.outer.step[k][t.outer.rank] = nd->step[k][i];
        t.outer.rank++;
    }
    t.strips = (t.n0 + SIDE - 1) / SIDE;
    int64_t range = nd->count / (t.n0 * t.n1) * t.strips, each = SIDE * t.n1;
    cdl_parallel_for(range, each >= CDL_GRAIN ? 1 : CDL_GRAIN / each + 1, transpose_piece, &t);
    return true;
}

/* -- copy: casts ----------------------------------------------------------------------------------- */
static void cast_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    const cdl_nd *nd = ctx;
    const cdl_kind from = cdl_kind_of(nd->dtype[1]), to = cdl_kind_of(nd->dtype[0]);
    _Alignas(64) double loaded[CDL_TILE], converted[CDL_TILE];
    for (int64_t at = 0; at < count; at += CDL_TILE) {
        int64_t n = CDL_MIN(CDL_TILE, count - at);
        char *out = data[0] + at * step[0];
        void *direct = cdl_tile_out(nd->dtype[0], out, step[0], converted);
        const void *tile = CDL_NAME(cdl_tile_load)(nd->dtype[1], data[1] + at * step[1], step[1], n,
                                                   from == to ? direct : loaded);
        tile = CDL_NAME(cdl_tile_cast)(from, tile, nd->dtype[0], n, direct);
        if (tile != out) CDL_NAME(cdl_tile_store)(nd->dtype[0], out, step[0], n, tile);
    }
}

/* -- copy: rows of blocks ---------------------------------------------------------------------------- */
typedef struct unpack {
    const cdl_view *out, *in;
    int64_t block, size, k, out_size;
    int32_t status; /* atomic */
} unpack;

static void unpack_rows(void *ctx, int64_t begin, int64_t end) {
    unpack *u = ctx;
    const cdl_layout *lo = u->out->layout, *li = u->in->layout;
    const int32_t last = li->rank - 1;
    _Alignas(64) float tile[CDL_TILE]; /* a whole number of blocks of every kind */
    for (int64_t row = begin; row < end; row++) {
        int64_t rest = row, to = 0, from = 0, out_step = lo->strides[last] * u->out_size;
        for (int32_t i = last - 1; i >= 0; i--) {
            to += rest % lo->shape[i] * lo->strides[i];
            from += rest % lo->shape[i] * li->strides[i];
            rest /= lo->shape[i];
        }
        char *out = (char *)u->out->data + to * u->out_size;
        const char *in = (const char *)u->in->data + from / u->block * u->size;
        for (int64_t at = 0; at < u->k; at += CDL_TILE) {
            int64_t n = CDL_MIN(CDL_TILE, u->k - at);
            cdl_status s = CDL_NAME(cdl_dequant_row)(li->dtype, in + at / u->block * u->size, tile, n);
            if (s) cdl_fail(&u->status, s);
            if (!s) CDL_NAME(cdl_tile_store)(lo->dtype, out + at * out_step, out_step, n, tile);
        }
    }
}

static cdl_status copy_blocks(const cdl_view *out, const cdl_view *in) {
    const cdl_layout *lo = out->layout, *li = in->layout;
    if (li->dtype == CDL_F32X16 || cdl_kind_of(lo->dtype) != CDL_KIND_F) return CDL_EDTYPE;
    if (li->rank < 1 || !cdl_same_shape(lo, li)) return CDL_ESHAPE;
    unpack u = {out, in, cdl_dtype_block(li->dtype), cdl_dtype_size(li->dtype), 0, cdl_dtype_size(lo->dtype), CDL_OK};
    const int32_t last = li->rank - 1;
    u.k = li->shape[last];
    if (u.k % u.block || (u.k > 1 && li->strides[last] != 1)) return CDL_ESHAPE;
    for (int32_t i = 0; i < last; i++)
        if (li->shape[i] > 1 && li->strides[i] % u.block) return CDL_ESHAPE;
    int64_t count = cdl_count(lo);
    if (!count) return CDL_OK;
    if (!out->data || !in->data) return CDL_EARGS;
    cdl_parallel_for(count / u.k, u.k >= CDL_GRAIN ? 1 : CDL_GRAIN / u.k, unpack_rows, &u);
    return u.status;
}

CDL_KERNEL(copy) {
    (void)p;
    if (n != 2) return CDL_EARGS;
    if (v[1].layout->dtype >= CDL_Q8_0) return copy_blocks(&v[0], &v[1]);
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, v, 2);
    if (status || !nd.count) return status;
    if (nd.dtype[0] != nd.dtype[1]) {
        CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN, cast_run, &nd);
        return CDL_OK;
    }
    int64_t size = cdl_dtype_size(nd.dtype[0]);
    if (!try_transpose(&nd, size)) CDL_NAME(cdl_nd_run)(&nd, 4 * CDL_GRAIN, move_run, &size);
    return CDL_OK;
}

/* -- fill, iota, where --------------------------------------------------------------------------------- */
typedef struct pattern {
    int64_t size;
    uint64_t bits; /* one element, in its first bytes */
} pattern;

static void fill_run(void *ctx, char *const *data, const int64_t *step, int64_t n) {
    const pattern *one = ctx;
    char *to = data[0];
    if (!one->bits && step[0] == one->size) {
        memset(to, 0, (size_t)(n * one->size));
        return;
    }
#define FILL(type)                                                                                 \
    {                                                                                              \
        type x;                                                                                    \
        memcpy(&x, &one->bits, sizeof x);                                                          \
        if (step[0] == (int64_t)sizeof x)                                                          \
            for (int64_t i = 0; i < n; i++) ((type *)to)[i] = x;                                   \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) *(type *)(to + i * step[0]) = x;                       \
    }
    BY_SIZE(one->size, FILL)
}

CDL_KERNEL(fill) {
    if (n != 1) return CDL_EARGS;
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, v, 1);
    if (status) return status;
    pattern one = {cdl_dtype_size(nd.dtype[0]), 0};
    double number = p->f[0], converted;
    const void *tile = &p->i[0];
    if (cdl_kind_of(nd.dtype[0]) != CDL_KIND_I)
        tile = CDL_NAME(cdl_tile_cast)(CDL_KIND_D, &number, nd.dtype[0], 1, &converted);
    CDL_NAME(cdl_tile_store)(nd.dtype[0], (char *)&one.bits, one.size, 1, tile);
    CDL_NAME(cdl_nd_run)(&nd, 4 * CDL_GRAIN, fill_run, &one);
    return CDL_OK;
}

typedef struct ramp {
    const cdl_params *p;
    char *data;
    int64_t step;
    int32_t dtype;
} ramp;

static void iota_piece(void *ctx, int64_t begin, int64_t end) {
    const ramp *r = ctx;
    const bool ints = cdl_kind_of(r->dtype) == CDL_KIND_I;
    _Alignas(64) double tile[CDL_TILE], converted[CDL_TILE];
    for (int64_t at = begin; at < end; at += CDL_TILE) {
        int64_t n = CDL_MIN(CDL_TILE, end - at), *whole = (int64_t *)converted;
        const void *done = whole;
        if (ints) {
            for (int64_t i = 0; i < n; i++)
                whole[i] = (int64_t)((uint64_t)r->p->i[0] + (uint64_t)(at + i) * (uint64_t)r->p->i[1]);
        } else {
            for (int64_t i = 0; i < n; i++) tile[i] = r->p->f[0] + (double)(at + i) * r->p->f[1];
            done = CDL_NAME(cdl_tile_cast)(CDL_KIND_D, tile, r->dtype, n, converted);
        }
        CDL_NAME(cdl_tile_store)(r->dtype, r->data + at * r->step, r->step, n, done);
    }
}

CDL_KERNEL(iota) {
    if (n != 1) return CDL_EARGS;
    const cdl_layout *l = v[0].layout;
    if (cdl_kind_of(l->dtype) == CDL_KIND_NONE) return CDL_EDTYPE;
    if (l->rank != 1) return CDL_ESHAPE;
    if (l->shape[0] && !v[0].data) return CDL_EARGS;
    ramp r = {p, v[0].data, l->strides[0] * cdl_dtype_size(l->dtype), l->dtype};
    cdl_parallel_for(l->shape[0], CDL_GRAIN, iota_piece, &r);
    return CDL_OK;
}

static void where_run(void *ctx, char *const *data, const int64_t *step, int64_t n) {
    const int64_t size = *(const int64_t *)ctx;
    char *out = data[0];
    const char *c = data[1], *a = data[2], *b = data[3];
    const bool plain = step[0] == size && step[1] == 1 && step[2] == size && step[3] == size;
#define WHERE(type)                                                                                \
    if (plain)                                                                                     \
        for (int64_t i = 0; i < n; i++) { /* both are loaded, so that it becomes a blend */         \
            const type x = ((const type *)a)[i], y = ((const type *)b)[i];                         \
            ((type *)out)[i] = c[i] ? x : y;                                                       \
        }                                                                                          \
    else                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                            \
            *(type *)(out + i * step[0]) = *(const type *)(c[i * step[1]] ? a + i * step[2] : b + i * step[3]);
    BY_SIZE(size, WHERE)
}

CDL_KERNEL(where) {
    (void)p;
    if (n != 4) return CDL_EARGS;
    cdl_nd nd;
    cdl_status status = CDL_NAME(cdl_nd_make)(&nd, v, 4);
    if (status) return status;
    if (nd.dtype[1] != CDL_BOOL && nd.dtype[1] != CDL_U8) return CDL_EDTYPE;
    if (nd.dtype[2] != nd.dtype[0] || nd.dtype[3] != nd.dtype[0]) return CDL_EDTYPE;
    int64_t size = cdl_dtype_size(nd.dtype[0]);
    CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN, where_run, &size);
    return CDL_OK;
}
