/* block.h: images whose channels lie in blocks of 16, [batch, blocks, h, w, 16], as compiled plans keep
 * them: a vector holds channels, so neither pixels nor edges need packing. Row-major and whole; the last
 * block is padded with zeros. A window's taps reach each output by an offset, or `outside`.
 */
#ifndef CDL_BLOCK_H
#define CDL_BLOCK_H
#include "gemm.h"
#include "../simd/simd.h"
#include "../simd/math.h"
#include "unroll.h"

enum { CDL_B = 16, CDL_VB = CDL_B / CDL_LANES, CDL_TAPS = 64 }; /* a block, its vectors; the most taps */

typedef struct cdl_block_image {
    int64_t batch, blocks, h, w;
} cdl_block_image;

/* i0 i1 stride, i2 i3 padding (begin), i4 i5 dilation of y and x. */
typedef struct cdl_block_window {
    cdl_block_image in, out;
    int64_t taps[2], stride[2], padding[2], dilation[2];
} cdl_block_window;

/* Whether a view is f32 of this rank, and row-major or without elements. */
CDL_INLINE bool cdl_block_plain(const cdl_view *v, int32_t rank) {
    const cdl_layout *l = v->layout;
    if (l->dtype != CDL_F32 || l->rank != rank) return false;
    int64_t step = 1;
    bool empty = false, small = true;
    for (int32_t i = 0; i < rank; i++) empty |= l->shape[i] == 0, small &= l->shape[i] <= 1 << 15;
    if (empty) return small; /* so that no product of its sizes overflows */
    for (int32_t i = rank; i-- > 0;)
        if ((l->shape[i] != 1 && l->strides[i] != step) || !cdl_mul_ok(step, l->shape[i], &step)) return false;
    return true;
}

CDL_INLINE cdl_status cdl_block_image_of(const cdl_view *v, cdl_block_image *image) {
    if (v->layout->rank != 5) return CDL_ESHAPE;
    if (!cdl_block_plain(v, 5)) return v->layout->dtype == CDL_F32 ? CDL_ESHAPE : CDL_EDTYPE;
    const int64_t *s = v->layout->shape;
    *image = (cdl_block_image){s[0], s[1], s[2], s[3]};
    return s[4] == CDL_B ? CDL_OK : CDL_ESHAPE;
}

CDL_INLINE cdl_status cdl_block_window_of(cdl_block_window *g, const cdl_params *p) {
    const int64_t most = 1 << 20;
    for (int32_t i = 0; i < 2; i++) {
        g->stride[i] = p->i[i], g->padding[i] = p->i[2 + i], g->dilation[i] = p->i[4 + i];
        if (g->stride[i] < 1 || g->stride[i] > most || g->padding[i] < 0 || g->padding[i] > most ||
            g->dilation[i] < 1 || g->dilation[i] > most || g->taps[i] < 1 || g->taps[i] > CDL_TAPS)
            return CDL_EPARAM;
    }
    if (g->taps[0] * g->taps[1] > CDL_TAPS) return CDL_EPARAM;
    const int64_t far = (int64_t)1 << 40;
    if (g->out.h > far || g->out.w > far || g->in.h > far || g->in.w > far) return CDL_ESHAPE;
    return g->in.batch == g->out.batch ? CDL_OK : CDL_ESHAPE;
}

/* Input row and column of the first tap of output [y, x]. */
CDL_INLINE int64_t cdl_block_y(const cdl_block_window *g, int64_t y) { return y * g->stride[0] - g->padding[0]; }
CDL_INLINE int64_t cdl_block_x(const cdl_block_window *g, int64_t x) { return x * g->stride[1] - g->padding[1]; }

/* Whether all taps from this input on lie inside. */
CDL_INLINE bool cdl_block_inside(const cdl_block_window *g, int64_t y, int64_t x) {
    return y >= 0 && x >= 0 && y + (g->taps[0] - 1) * g->dilation[0] < g->in.h &&
           x + (g->taps[1] - 1) * g->dilation[1] < g->in.w;
}

/* How far from the first tap each reads, of inputs `row` and `column` elements apart. */
CDL_INLINE void cdl_block_offsets(const cdl_block_window *g, int64_t row, int64_t column, int64_t *at) {
    for (int64_t y = 0; y < g->taps[0]; y++)
        for (int64_t x = 0; x < g->taps[1]; x++) *at++ = y * g->dilation[0] * row + x * g->dilation[1] * column;
}

/* Where in an image the taps from input [y, x] on read; NULL outside. */
CDL_INLINE void cdl_block_taps(const cdl_block_window *g, int64_t y, int64_t x, int64_t row, int64_t column,
                               const float *image, const float **at, int64_t step) {
    for (int64_t ty = 0; ty < g->taps[0]; ty++, y += g->dilation[0])
        for (int64_t tx = 0, ix = x; tx < g->taps[1]; tx++, ix += g->dilation[1], at += step) {
            const bool inside = y >= 0 && y < g->in.h && ix >= 0 && ix < g->in.w;
            *at = inside ? image + (y * row + ix * column) : NULL;
        }
}

/* What becomes of a sum: i6 = 1 relu, i6 = 2 relu and then at most f0. */
typedef struct cdl_block_end {
    bool relu, bounded;
    float most;
} cdl_block_end;

CDL_INLINE cdl_status cdl_block_end_of(cdl_block_end *e, const cdl_params *p) {
    if (p->i[6] < 0 || p->i[6] > 2) return CDL_EPARAM;
    *e = (cdl_block_end){p->i[6] > 0, p->i[6] == 2, (float)p->f[0]};
    return CDL_OK;
}

/* A bias a channel and an image to add, each or absent, beside the result. */
CDL_INLINE cdl_status cdl_block_beside(const cdl_view *bias, const cdl_view *add, const cdl_block_image *out) {
    if (bias->data && (!cdl_block_plain(bias, 1) || bias->layout->shape[0] != out->blocks * CDL_B)) return CDL_ESHAPE;
    if (!add->data) return CDL_OK;
    cdl_block_image i;
    const cdl_status s = cdl_block_image_of(add, &i);
    if (s != CDL_OK) return s;
    return i.batch == out->batch && i.blocks == out->blocks && i.h == out->h && i.w == out->w ? CDL_OK : CDL_ESHAPE;
}

CDL_INLINE vf cdl_block_finish(const cdl_block_end *e, vf sum) {
    if (e->relu) sum = v_relu(sum);
    return e->bounded ? v_minimum(sum, v_set1(e->most)) : sum;
}
#endif
