/* conv.h: two-dimensional convolution as one engine, whatever its direction.
 *
 * Output q of an axis reads, for tap t, input q * stride + at + t * move (zero outside), weighs it with
 * kernel element tap + t * tap_step, and lies at to + q * to_step. The forward pass is one such engine;
 * the gradient of its input is stride_y * stride_x of them, one for each remainder of the position, in
 * which the strides are 1 and only the taps that meet a result take part. The outputs are cut into
 * parts whose input is spread out in scratch, never the whole (conv_spread.c), and multiplied by the
 * tiles of conv_tile.c, lanes over pixels: no output depends on others, on parts or on threads.
 */
#ifndef CDL_CONV_H
#define CDL_CONV_H
#include "gemm.h"
#include "../simd/simd.h"

typedef struct cdl_conv_axis {
    int64_t in, out;              /* lengths; `out` counts the outputs of this engine only */
    int64_t stride, at, move;     /* where an output reads */
    int64_t taps, tap, tap_step;  /* which kernel elements it uses */
    int64_t to, to_step;          /* where it lies */
} cdl_conv_axis;

/* Strides count elements. Channels are those of one group. */
typedef struct cdl_conv {
    cdl_conv_axis y, x;
    int64_t batch, groups, in_channels, out_channels;
    int32_t dtype; /* of all: CDL_F32 or CDL_F64 */
    const void *in, *w, *bias; /* bias may be NULL */
    void *out;
    int64_t in_b, in_c, in_y, in_x;
    int64_t w_g, w_o, w_c, w_y, w_x;
    int64_t out_b, out_c, out_y, out_x;
    int64_t bias_c;
} cdl_conv;

/* Outputs of a task: rows [y, y + rows), columns [x, x + width) of images [image, image + images). Flat
 * pixel (row * images + image) * width + column. */
typedef struct cdl_conv_part {
    int64_t image, images, y, rows, x, width;
} cdl_conv_part;

/* All outputs, cut into `count` parts of at most so many images, rows and columns. */
typedef struct cdl_conv_cut {
    int64_t images, rows, width;
    int64_t image_parts, y_parts, x_parts, count;
} cdl_conv_cut;

CDL_INLINE cdl_conv_cut cdl_conv_cut_by(const cdl_conv *c, int64_t images, int64_t rows, int64_t width) {
    cdl_conv_cut cut = {.images = images, .rows = rows, .width = width};
    cut.image_parts = cdl_ceil_div(c->batch, images);
    cut.y_parts = cdl_ceil_div(c->y.out, rows);
    cut.x_parts = cdl_ceil_div(c->x.out, width);
    cut.count = cut.image_parts * cut.y_parts * cut.x_parts;
    return cut;
}
/* Parts of about so many pixels: whole images, or else whole rows, where they fit. */
CDL_INLINE cdl_conv_cut cdl_conv_cut_to(const cdl_conv *c, int64_t pixels) {
    const int64_t images = CDL_MIN(CDL_MAX(pixels / (c->y.out * c->x.out), (int64_t)1), c->batch);
    const int64_t width = CDL_MIN(c->x.out, pixels);
    return cdl_conv_cut_by(c, images, CDL_MIN(CDL_MAX(pixels / (images * width), (int64_t)1), c->y.out), width);
}
CDL_INLINE cdl_conv_part cdl_conv_part_at(const cdl_conv *c, const cdl_conv_cut *cut, int64_t index) {
    const int64_t x = index % cut->x_parts * cut->width, y = index / cut->x_parts % cut->y_parts * cut->rows;
    const int64_t image = index / cut->x_parts / cut->y_parts * cut->images;
    return (cdl_conv_part){image, CDL_MIN(cut->images, c->batch - image), y, CDL_MIN(cut->rows, c->y.out - y),
                           x, CDL_MIN(cut->width, c->x.out - x)};
}

/* The input of a part, spread: [channel][tap x][plane][row][image, column]; see conv_spread.c. */
typedef struct cdl_conv_spread {
    bool shared;                    /* taps y share planes, one for each remainder of the stride */
    int64_t base;                   /* input row at row 0 of the first shared plane, output row 0 */
    int64_t planes, rows, width;
    int64_t tap_size, channel_size; /* elements */
} cdl_conv_spread;

cdl_status CDL_NAME(cdl_conv_spread_make)(cdl_conv_spread *s, const cdl_conv *c, const cdl_conv_part *p);
/* Where flat pixel 0 reads for these taps, from its channel's begin. */
int64_t CDL_NAME(cdl_conv_spread_at)(const cdl_conv_spread *s, const cdl_conv *c, int64_t tap_y, int64_t tap_x);
/* Fills `channels` channels from `in` on; writes CDL_CONV_SLACK elements more, at most. */
void CDL_NAME(cdl_conv_spread_fill)(const cdl_conv_spread *s, const cdl_conv *c, const cdl_conv_part *p, const float *in,
                                    int64_t channels, float *to);
enum { CDL_CONV_SLACK = 32 };

/* conv_tile.c: out[row][pixel] = sum over i < k of w[row * w_row + w_at[i]] * in[pixel + in_at[i]], added
 * to what is there (`add`) or to a bias a row (or NULL). Writes whole panels of pixels. */
typedef struct cdl_conv_tile {
    const float *w, *in, *bias;
    const int64_t *w_at, *in_at;
    int64_t w_row, bias_step, k, rows;
    float *out;
    int64_t out_row;
    bool add;
} cdl_conv_tile;
void CDL_NAME(cdl_conv_tiles)(const cdl_conv_tile *t, int64_t pixels);

/* conv_depth.c: one channel a group, f32. */
cdl_status CDL_NAME(cdl_conv_depth)(const cdl_conv *c);
cdl_status CDL_NAME(cdl_conv_depth_weight)(const cdl_conv *c, float *out);

/* conv_window.c: the same for squares of 3 and 5 and steps of 1 and 2. `gap`: coordinates between
 * neighbouring inputs. */
bool CDL_NAME(cdl_conv_window_fits)(const cdl_conv *c, int64_t gap);
cdl_status CDL_NAME(cdl_conv_window)(const cdl_conv *c, int64_t gap);
cdl_status CDL_NAME(cdl_conv_window_weight)(const cdl_conv *c, float *out);

/* conv_plain.c: f64, in plain loops. */
void CDL_NAME(cdl_conv_plain)(const cdl_conv *c);
void CDL_NAME(cdl_conv_plain_weight)(const cdl_conv *c, double *out);

/* conv_engine.c: one engine. */
cdl_status CDL_NAME(cdl_conv_run_engine)(const cdl_conv *c);

/* Pixels [x, x + count) of row y of image b, gathered into columns from `at` on. */
typedef struct cdl_conv_run {
    int64_t b, y, x, at, count;
} cdl_conv_run;

enum { CDL_CONV_TILE = 176 }; /* pixels at a time: an odd number of panels, to spread over cache sets */

/* conv_gather.c: pixels [first, first + count) of all images in order; at most `count` runs. */
int64_t CDL_NAME(cdl_conv_runs)(const cdl_conv *c, int64_t first, int64_t count, cdl_conv_run *runs);
/* Rows [k, k + count) of the patches of one group ([channel, tap y, tap x]) for these pixels, f32. */
void CDL_NAME(cdl_conv_gather)(const cdl_conv *c, const float *in, const cdl_conv_run *runs, int64_t n, int64_t k,
                               int64_t count, float *out, int64_t out_row);


/* conv_weight_taps.c: one way to the gradient of the weights; `grad` is the gradient of the result as
 * its own patches of one tap. */
cdl_status CDL_NAME(cdl_conv_weight_taps)(const cdl_conv *c, const cdl_conv *grad, float *out);
/* conv_weight_few.c: another. */
cdl_status CDL_NAME(cdl_conv_weight_few)(const cdl_conv *c, const cdl_conv *grad, float *out);
#endif
