/* tile.h: how elementwise kernels walk memory. A set of equal-shaped views is collapsed to as few
 * axes as their strides allow (cdl_nd); the inner axis is cut into tiles; a tile of any dtype and
 * stride is read as one of three kinds, floats (f32 f16 bf16), doubles (f64) or int64 (i64 i32 u32
 * u8 bool), worked on, and written back. A contiguous tile of the kind's own dtype is used in place.
 */
#ifndef CDL_TILE_H
#define CDL_TILE_H
#include "kernel.h"
#include "../simd/simd.h"

enum { CDL_TILE = 512, CDL_GRAIN = 32768 };

typedef enum cdl_kind { CDL_KIND_F = 0, CDL_KIND_D = 1, CDL_KIND_I = 2, CDL_KIND_NONE = 3 } cdl_kind;

CDL_INLINE cdl_kind cdl_kind_of(int32_t dtype) {
    switch (dtype) {
    case CDL_F32: case CDL_F16: case CDL_BF16: return CDL_KIND_F;
    case CDL_F64: return CDL_KIND_D;
    case CDL_I64: case CDL_I32: case CDL_U32: case CDL_U8: case CDL_BOOL: return CDL_KIND_I;
    default: return CDL_KIND_NONE;
    }
}

/* -- layouts ---------------------------------------------------------------------------------- */
CDL_INLINE int64_t cdl_count(const cdl_layout *l) {
    int64_t count = 1;
    for (int32_t i = 0; i < l->rank; i++) count *= l->shape[i];
    return count;
}
CDL_INLINE bool cdl_same_shape(const cdl_layout *a, const cdl_layout *b) {
    if (a->rank != b->rank) return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i]) return false;
    return true;
}
CDL_INLINE bool cdl_contiguous(const cdl_layout *l) {
    int64_t expect = 1;
    for (int32_t i = l->rank - 1; i >= 0; i--) {
        if (l->shape[i] != 1 && l->strides[i] != expect) return false;
        expect *= l->shape[i];
    }
    return true;
}

/* The layout of one slice across an axis. */
CDL_INLINE cdl_layout cdl_without_axis(const cdl_layout *l, int64_t axis) {
    cdl_layout o = {.dtype = l->dtype, .rank = l->rank - 1};
    for (int32_t i = 0, k = 0; i < l->rank; i++) {
        if (i == axis) continue;
        o.shape[k] = l->shape[i];
        o.strides[k++] = l->strides[i];
    }
    return o;
}

/* -- walks -------------------------------------------------------------------------------------- */
/* Up to four operands of one shape. Steps are in bytes. rank >= 1; axes are ordered so that the
 * steps of operand 0 shrink inwards. */
typedef struct cdl_nd {
    int32_t rank, n;
    int64_t count;
    int64_t shape[8];
    int64_t step[4][8];
    int32_t dtype[4];
    char *data[4];
} cdl_nd;

/* CDL_ESHAPE if shapes differ, CDL_EARGS for a null where there are elements, CDL_EDTYPE for blocks. */
cdl_status CDL_NAME(cdl_nd_make)(cdl_nd *nd, const cdl_view *v, int32_t n);

/* Calls fn for runs of `count` elements along the inner axis, in parallel if there are many. */
typedef void (*cdl_run_fn)(void *ctx, char *const *data, const int64_t *step, int64_t count);
void CDL_NAME(cdl_nd_run)(const cdl_nd *nd, int64_t grain, cdl_run_fn fn, void *ctx);

/* -- tiles: n <= CDL_TILE elements, `step` bytes apart --------------------------------------------- */
/* The tile as its kind; answers p itself where that is what lies there, else `buffer` (64-aligned,
 * CDL_TILE elements of the kind). */
const void *CDL_NAME(cdl_tile_load)(int32_t dtype, const char *p, int64_t step, int64_t n, void *buffer);
/* A tile of dtype's kind to memory. Integers keep their low bits; bool is x != 0. */
void CDL_NAME(cdl_tile_store)(int32_t dtype, char *p, int64_t step, int64_t n, const void *tile);
/* A tile of kind `from` to dtype's kind, rounded once for dtype: saturating to integers, NaN to 0.
 * Answers `tile` itself or `buffer`. */
const void *CDL_NAME(cdl_tile_cast)(cdl_kind from, const void *tile, int32_t dtype, int64_t n, void *buffer);

/* Where the result of a tile may be written at once: p, or the buffer that is stored afterwards. */
CDL_INLINE void *cdl_tile_out(int32_t dtype, char *p, int64_t step, void *buffer) {
    bool own = dtype == CDL_F32 ? step == 4 : (dtype == CDL_F64 || dtype == CDL_I64) && step == 8;
    return own ? p : buffer;
}

/* The same for rows of any length, in one kind (F, D): `buffer` holds n of the kind. A row stored from
 * its own memory costs nothing. */
const void *CDL_NAME(cdl_row_load)(int32_t dtype, const char *p, int64_t step, int64_t n, void *buffer);
void CDL_NAME(cdl_row_store)(int32_t dtype, char *p, int64_t step, int64_t n, const void *row);
/* Scratch for n items; NULL also where their bytes do not fit a number. */
CDL_INLINE void *cdl_scratch_of(int32_t slot, int64_t n, int64_t size) {
    int64_t bytes;
    return cdl_mul_ok(n, size, &bytes) ? cdl_scratch(slot, (uint64_t)bytes) : NULL;
}
CDL_INLINE int64_t cdl_kind_size(cdl_kind kind) { return kind == CDL_KIND_F ? 4 : 8; }

/* -- elementwise --------------------------------------------------------------------------------- */
/* n elements: out = f(a, b), all of one kind (b unused by unary functions). */
typedef void (*cdl_tile_fn)(void *out, const void *a, const void *b, int64_t n, int32_t *status);

/* out and its one or two inputs of one dtype and shape; fn by kind, NULL where not taken. */
cdl_status CDL_NAME(cdl_elementwise)(const cdl_view *v, int32_t n, int32_t inputs, const cdl_tile_fn fn[3]);

#endif
