/* conv_winograd.c: the operation `conv_winograd`: 3 x 3 convolution of blocked images (block.h) with
 * stride and dilation 1, by minimal filtering F(2x2, 3x3) (Winograd 1980; Lavin and Gray 2015).
 *
 * A tile of 4 x 4 inputs becomes 16 numbers a channel, each is multiplied by weights transformed
 * beforehand and summed over the channels, in order; 16 sums become 2 x 2 outputs. So 16 products do
 * what takes 36, and results differ from direct sums in the last bits. Tiles begin at the image's
 * corner: no result depends on other images, on the cut into tasks or on threads.
 */
#include "block_tile.h"

enum { OUT, IN, W, BIAS, ADD };
enum { POINTS = 16, MOST_BYTES = 512 << 10 };

typedef struct job {
    cdl_block_window g;
    cdl_block_end end;
    const float *in, *w, *bias, *add;
    float *out;
    int64_t channels, down, across, tiles; /* tiles of an image: down x across; of all */
    int64_t part, parts, groups, share, shares; /* tiles of a task; groups of out blocks, and those of a task */
    int32_t status;
} job;

static const float zeros[CDL_B];

/* The 16 inputs of a tile, for one block; NULL outside of the image. */
static void place(const job *j, int64_t tile, const float *at[POINTS]) {
    const cdl_block_image *in = &j->g.in;
    const int64_t one = j->down * j->across, b = tile / one, y = tile % one / j->across * 2 - j->g.padding[0];
    const int64_t x = tile % j->across * 2 - j->g.padding[1];
    const float *image = j->in + b * in->blocks * in->h * in->w * CDL_B;
    for (int64_t i = 0; i < POINTS; i++) {
        const int64_t iy = y + i / 4, ix = x + i % 4;
        const bool inside = iy >= 0 && iy < in->h && ix >= 0 && ix < in->w;
        at[i] = inside ? image + (iy * in->w + ix) * CDL_B : NULL;
    }
}

/* d0 - d2, d1 + d2, d2 - d1, d1 - d3 */
#define SPREAD(a, b, c, d, to0, to1, to2, to3) to0 = a - c, to1 = b + c, to2 = c - b, to3 = b - d

/* Inputs of tiles [first, first + count) as [point][tile][channel]. */
static void spread(const job *j, int64_t first, int64_t count, float *to, int64_t step) {
    const int64_t plane = j->g.in.h * j->g.in.w * CDL_B;
    for (int64_t t = 0; t < count; t++) {
        const float *at[POINTS];
        place(j, first + t, at);
        for (int64_t block = 0; block < j->g.in.blocks; block++)
            for (int v = 0; v < CDL_B; v += CDL_LANES) {
                vf d[POINTS], m[POINTS];
                UNROLL
                for (int i = 0; i < POINTS; i++) d[i] = v_load(at[i] ? at[i] + block * plane + v : zeros);
                UNROLL
                for (int i = 0; i < 4; i++) SPREAD(d[i], d[4 + i], d[8 + i], d[12 + i], m[i], m[4 + i], m[8 + i], m[12 + i]);
                float *out = to + t * j->channels + block * CDL_B + v;
                UNROLL
                for (int i = 0; i < POINTS; i += 4) {
                    SPREAD(m[i], m[i + 1], m[i + 2], m[i + 3], d[0], d[1], d[2], d[3]);
                    UNROLL
                    for (int k = 0; k < 4; k++) v_store(out + (i + k) * step, d[k]);
                }
            }
    }
}

/* out[row][16 N] = sum over i of x[row][i] * w[block][i][16] */
CDL_INLINE void micro(const float *from, int64_t from_row, const float *w, int64_t k, float *out, const int N) {
    const float *x[CDL_ROWS];
    UNROLL
    for (int r = 0; r < CDL_ROWS; r++) x[r] = from + r * from_row;
    cdl_block_sums acc;
    cdl_block_clear(acc, N);
    ROLLED
    for (int64_t i = 0; i < k; i++) cdl_block_weigh(acc, x, i, w + i * CDL_B, k * CDL_B, N);
    cdl_block_store(acc, out, N);
}

static void multiply(const float *x, int64_t x_row, const float *w, int64_t k, float *out, int64_t rows, int64_t n) {
#define MICRO(N) micro(x, x_row, w, k, out, N)
    for (int64_t r = 0; r < rows; r += CDL_ROWS, x += CDL_ROWS * x_row, out += CDL_ROWS * CDL_COLS * CDL_B)
        CDL_BLOCK_CASES(n, MICRO);
}

/* Sums of tiles, [point][tile][16 CDL_COLS], as the outputs of blocks [o, o + n). */
static void gather(const job *j, const float *sums, int64_t step, int64_t first, int64_t count, int64_t o, int64_t n) {
    const cdl_block_image *out = &j->g.out;
    const int64_t one = j->down * j->across, plane = out->h * out->w * CDL_B;
    for (int64_t t = 0; t < count; t++) {
        const int64_t tile = first + t, b = tile / one, y = tile % one / j->across * 2, x = tile % j->across * 2;
        for (int64_t c = 0; c < n * CDL_B; c += CDL_LANES) {
            const float *from = sums + t * CDL_COLS * CDL_B + c;
            const int64_t block = o + c / CDL_B;
            vf m[2][4];
            UNROLL
            for (int i = 0; i < 4; i++) {
                const vf p = v_load(from + i * step), q = v_load(from + (4 + i) * step);
                const vf r = v_load(from + (8 + i) * step), s = v_load(from + (12 + i) * step);
                m[0][i] = p + q + r, m[1][i] = q - r - s;
            }
            for (int i = 0; i < 2 && y + i < out->h; i++)
                for (int k = 0; k < 2 && x + k < out->w; k++) {
                    const int64_t at = (b * out->blocks + block) * plane + ((y + i) * out->w + x + k) * CDL_B + c % CDL_B;
                    vf sum = k ? m[i][1] - m[i][2] - m[i][3] : m[i][0] + m[i][1] + m[i][2];
                    if (j->bias) sum += v_load(j->bias + block * CDL_B + c % CDL_B);
                    if (j->add) sum += v_load(j->add + at);
                    v_store(j->out + at, cdl_block_finish(&j->end, sum));
                }
        }
    }
}

static cdl_status run_task(void *job_, int64_t index) {
    job *j = job_;
    const int64_t first = index / j->shares * j->part, count = CDL_MIN(j->part, j->tiles - first);
    const int64_t rows = cdl_ceil_div(j->part, CDL_ROWS) * CDL_ROWS;
    const int64_t x_step = rows * j->channels + CDL_B, y_step = rows * CDL_COLS * CDL_B + CDL_B; /* off a power of two */
    float *x = cdl_scratch(0, (uint64_t)(POINTS * x_step) * sizeof(float));
    float *y = cdl_scratch(1, (uint64_t)(POINTS * y_step) * sizeof(float));
    if (!x || !y) return CDL_ENOMEM;
    spread(j, first, count, x, x_step);
    for (int64_t p = 0; p < POINTS; p++)
        memset(x + p * x_step + count * j->channels, 0, (size_t)((rows - count) * j->channels) * sizeof(float));
    const int64_t begin = index % j->shares * j->share, end = CDL_MIN(begin + j->share, j->groups);
    for (int64_t group = begin; group < end; group++) {
        const int64_t o = group * CDL_COLS, n = CDL_MIN(CDL_COLS, j->g.out.blocks - o);
        for (int64_t p = 0; p < POINTS; p++) {
            const float *w = j->w + (p * j->g.out.blocks + o) * j->channels * CDL_B;
            multiply(x + p * x_step, j->channels, w, j->channels, y + p * y_step, count, n);
        }
        gather(j, y, y_step, first, count, o, n);
    }
    return CDL_OK;
}

static void run_tasks(void *job_, int64_t begin, int64_t end) {
    job *j = job_;
    cdl_each_task(j, &j->status, run_task, begin, end);
}

/* Tiles of a task fit the second cache; where they are few, tasks share them. */
static void cut(job *j) {
    const int64_t one = POINTS * j->channels * (int64_t)sizeof(float), enough = 8;
    const int64_t most = CDL_MAX(CDL_MIN(MOST_BYTES / one, (int64_t)8 * CDL_ROWS), (int64_t)4 * CDL_ROWS);
    j->parts = cdl_ceil_div(j->tiles, most);
    j->part = cdl_ceil_div(cdl_ceil_div(j->tiles, j->parts), CDL_ROWS) * CDL_ROWS;
    j->parts = cdl_ceil_div(j->tiles, j->part);
    j->groups = cdl_ceil_div(j->g.out.blocks, CDL_COLS);
    j->share = cdl_ceil_div(j->groups, cdl_ceil_div(enough, j->parts));
    j->shares = cdl_ceil_div(j->groups, j->share);
}

static cdl_status check(job *j, const cdl_view *v, const cdl_params *p) {
    cdl_status s;
    const int64_t *w = v[W].layout->shape;
    const cdl_block_image *out = &j->g.out;
    if ((s = cdl_block_image_of(&v[OUT], &j->g.out)) != CDL_OK) return s;
    if ((s = cdl_block_image_of(&v[IN], &j->g.in)) != CDL_OK) return s;
    if (!cdl_block_plain(&v[W], 4) || w[0] != POINTS || w[1] != out->blocks || w[3] != CDL_B) return CDL_ESHAPE;
    if (j->g.in.blocks > (int64_t)1 << 20 || w[2] != j->g.in.blocks * CDL_B) return CDL_ESHAPE;
    j->channels = w[2];
    j->g.taps[0] = j->g.taps[1] = 3;
    if ((s = cdl_block_window_of(&j->g, p)) != CDL_OK || (s = cdl_block_end_of(&j->end, p)) != CDL_OK) return s;
    if (p->i[0] != 1 || p->i[1] != 1 || p->i[4] != 1 || p->i[5] != 1) return CDL_EPARAM;
    return cdl_block_beside(&v[BIAS], &v[ADD], out);
}

CDL_KERNEL(conv_winograd) {
    job j = {0};
    if (n != 5) return CDL_EARGS;
    const cdl_status s = check(&j, v, p);
    const cdl_block_image *out = &j.g.out;
    if (s != CDL_OK || !(out->batch && out->blocks && out->h && out->w)) return s;
    if (!v[OUT].data || !v[IN].data || !v[W].data || !j.channels) return CDL_EARGS;
    j.out = v[OUT].data, j.in = v[IN].data, j.w = v[W].data, j.bias = v[BIAS].data, j.add = v[ADD].data;
    j.down = cdl_ceil_div(out->h, 2), j.across = cdl_ceil_div(out->w, 2);
    j.tiles = out->batch * j.down * j.across;
    cut(&j);
    cdl_parallel_for(j.parts * j.shares, cdl_grain(j.part * POINTS, j.channels, j.share * CDL_COLS * CDL_B), run_tasks, &j);
    return j.status;
}
