/* conv_block.c: the operation `conv_block`, convolution of blocked images (block.h).
 *
 * A tile is CDL_ROWS outputs, anywhere in the batch, by up to CDL_COLS blocks of channels in registers: each
 * step multiplies one channel of each pixel by a row of weights. The order of summation is blocks, taps,
 * channels, cut into chunks that are added in order: it depends on sizes only, not on tiles or threads.
 */
#include "block_tile.h"

enum { OUT, IN, W, BIAS, ADD };
enum { CHUNK = 1152, PART = 126 }; /* products of a chunk; pixels of a task, about */
static const float zeros[CDL_B];

typedef struct job {
    cdl_block_window g;
    cdl_block_end end;
    const float *in, *w, *bias, *add;
    float *out;
    int64_t depth, taps, chunk;                /* channels of an input block; blocks of a chunk */
    int64_t in_b, in_c, in_y, in_x, in_i, w_o; /* strides; in_i: of a channel within its block */
    int64_t pixels, part, parts, group, groups;
    int64_t at[CDL_TAPS * CDL_B]; /* of each tap, or of each channel of each tap of a plain image */
    bool plain, groups_first;
} job;

/* Pixels of a tile: where their first taps read, if all taps lie inside, or where each does; and where the
 * results lie. */
typedef struct tile {
    const float *base[CDL_ROWS], *in[CDL_TAPS][CDL_ROWS]; /* NULL outside */
    int64_t out[CDL_ROWS];
    int count;
    bool inside;
} tile;

/* A pixel of the batch. */
typedef struct spot {
    int64_t b, y, x;
} spot;

CDL_INLINE void next_spot(const job *j, spot *at) {
    if (++at->x < j->g.out.w) return;
    at->x = 0;
    if (++at->y == j->g.out.h) at->y = 0, at->b++;
}

/* The next CDL_ROWS pixels, where they lie in one row and all inside: steps are even. */
CDL_INLINE bool place_in_row(const job *j, spot *at, tile *t) {
    const cdl_block_image *out = &j->g.out;
    const int64_t y = cdl_block_y(&j->g, at->y), x = cdl_block_x(&j->g, at->x), step = j->g.stride[1] * j->in_x;
    if (at->x + CDL_ROWS > out->w || !cdl_block_inside(&j->g, y, x) ||
        !cdl_block_inside(&j->g, y, x + (CDL_ROWS - 1) * j->g.stride[1]))
        return false;
    const float *first = j->in + (at->b * j->in_b + y * j->in_y + x * j->in_x);
    const int64_t to = ((at->b * out->blocks * out->h + at->y) * out->w + at->x) * CDL_B;
    for (int k = 0; k < CDL_ROWS; k++) t->base[k] = first + k * step, t->out[k] = to + k * CDL_B;
    t->count = CDL_ROWS, t->inside = true;
    at->x += CDL_ROWS - 1;
    next_spot(j, at);
    return true;
}

/* The next `count` pixels from `at` on; of a short tile the last one stands for the missing. */
static void place(const job *j, spot *at, int count, tile *t) {
    const cdl_block_image *out = &j->g.out;
    spot input[CDL_ROWS];
    if (count == CDL_ROWS && place_in_row(j, at, t)) return;
    t->count = count, t->inside = true;
    for (int k = 0; k < CDL_ROWS; k++) {
        if (k < count) {
            input[k] = (spot){at->b, cdl_block_y(&j->g, at->y), cdl_block_x(&j->g, at->x)};
            t->inside &= cdl_block_inside(&j->g, input[k].y, input[k].x);
            t->out[k] = ((at->b * out->blocks * out->h + at->y) * out->w + at->x) * CDL_B;
            next_spot(j, at);
        } else input[k] = input[k - 1];
    }
    for (int k = 0; k < CDL_ROWS; k++) {
        const float *image = j->in + input[k].b * j->in_b;
        if (t->inside) t->base[k] = image + (input[k].y * j->in_y + input[k].x * j->in_x);
        else cdl_block_taps(&j->g, input[k].y, input[k].x, j->in_y, j->in_x, image, &t->in[0][k], CDL_ROWS);
    }
}

/* A plain image, all inside: each step reads at one distance from the first taps. */
CDL_INLINE void weigh_plain(const job *j, const tile *t, cdl_block_sums acc, const float *w, const int N) {
    const float *x[CDL_ROWS];
    UNROLL
    for (int k = 0; k < CDL_ROWS; k++) x[k] = t->base[k];
    const int64_t steps = j->taps * j->depth, w_o = j->w_o;
    ROLLED
    for (int64_t i = 0; i < steps; i++, w += CDL_B) cdl_block_weigh(acc, x, j->at[i], w, w_o, N);
}

/* A plain image at an edge. */
CDL_INLINE void weigh_edge(const job *j, const tile *t, cdl_block_sums acc, const float *w, const int N) {
    for (int64_t tap = 0; tap < j->taps; tap++)
        for (int64_t i = 0; i < j->depth; i++, w += CDL_B) {
            const float *x[CDL_ROWS];
            UNROLL
            for (int k = 0; k < CDL_ROWS; k++) x[k] = t->in[tap][k] ? t->in[tap][k] + i * j->in_i : zeros;
            cdl_block_weigh(acc, x, 0, w, j->w_o, N);
        }
}

/* One block of a blocked image. */
CDL_INLINE void weigh_block(const job *j, const tile *t, cdl_block_sums acc, int64_t block, const float *w, const int N) {
    const int64_t w_o = j->w_o, depth = j->depth, shift = block * j->in_c;
    for (int64_t tap = 0; tap < j->taps; tap++) {
        const float *x[CDL_ROWS];
        const int64_t far = shift + j->at[tap];
        UNROLL
        for (int k = 0; k < CDL_ROWS; k++) {
            if (t->inside) x[k] = t->base[k] + far;
            else x[k] = t->in[tap][k] ? t->in[tap][k] + shift : zeros;
        }
        ROLLED
        for (int64_t i = 0; i < depth; i++, w += CDL_B) cdl_block_weigh(acc, x, i, w, w_o, N);
    }
}

/* N out blocks from `o` on, input blocks [c, end). */
CDL_INLINE void micro(const job *j, const tile *t, int64_t o, int64_t c, int64_t end, float *to, const int N,
                      const bool plain) {
    const float *w = j->w + o * j->w_o + c * j->taps * j->depth * CDL_B;
    cdl_block_sums acc;
    cdl_block_clear(acc, N);
    if (!plain)
        for (int64_t block = c; block < end; block++, w += j->taps * j->depth * CDL_B) weigh_block(j, t, acc, block, w, N);
    else if (t->inside) weigh_plain(j, t, acc, w, N);
    else weigh_edge(j, t, acc, w, N);
    cdl_block_store(acc, to, N);
}

/* Sums of a chunk to where the results lie; the last chunk makes them whole. */
CDL_INLINE void finish_as(const job *j, const tile *t, const float *from, int64_t o, int64_t n, const bool first,
                          const bool last, const bool add, const cdl_block_end *end) {
    const int64_t plane = j->g.out.h * j->g.out.w * CDL_B;
    for (int64_t v = 0; v < n * CDL_B; v += CDL_LANES) {
        const vf bias = first && j->bias ? v_load(j->bias + o * CDL_B + v) : v_zero();
        const int64_t block = (o + v / CDL_B) * plane + v % CDL_B;
        for (int k = 0; k < t->count; k++) {
            const int64_t at = t->out[k] + block;
            vf sum = v_load(from + k * CDL_COLS * CDL_B + v);
            if (!first) sum += v_load(j->out + at);
            else if (j->bias) sum += bias;
            if (add) sum += v_load(j->add + at);
            v_store(j->out + at, last ? cdl_block_finish(end, sum) : sum);
        }
    }
}

static void finish(const job *j, const tile *t, const float *from, int64_t o, int64_t n, bool first, bool last) {
    static const cdl_block_end plain = {0}, relu = {.relu = true};
    const cdl_block_end *e = &j->end;
    if (!first || !last) finish_as(j, t, from, o, n, first, last, last && j->add, e);
    else if (j->add) finish_as(j, t, from, o, n, true, true, true, e);
    else if (e->bounded) finish_as(j, t, from, o, n, true, true, false, &(const cdl_block_end){true, true, e->most});
    else if (e->relu) finish_as(j, t, from, o, n, true, true, false, &relu);
    else finish_as(j, t, from, o, n, true, true, false, &plain);
}

static void run_tile(const job *j, const tile *t, int64_t o, int64_t n, int64_t c, int64_t end) {
    float whole[CDL_ROWS * CDL_COLS * CDL_B];
#define PLAIN(N) micro(j, t, o, c, end, whole, N, true)
#define BLOCKED(N) micro(j, t, o, c, end, whole, N, false)
    if (j->plain) CDL_BLOCK_CASES(n, PLAIN);
    else CDL_BLOCK_CASES(n, BLOCKED);
    finish(j, t, whole, o, n, c == 0, end == j->g.in.blocks);
}

static void run_task(const job *j, int64_t index) {
    const int64_t part = j->groups_first ? index / j->groups : index % j->parts;
    const int64_t group = j->groups_first ? index % j->groups : index / j->parts;
    const int64_t begin = part * j->part, end = CDL_MIN(begin + j->part, j->pixels);
    const int64_t o = group * j->group, n = CDL_MIN(j->group, j->g.out.blocks - o);
    const int64_t row = begin / j->g.out.w;
    for (int64_t c = 0; c < j->g.in.blocks; c += j->chunk) {
        spot spot = {row / j->g.out.h, row % j->g.out.h, begin % j->g.out.w};
        for (int64_t at = begin; at < end; at += CDL_ROWS) {
            tile t;
            place(j, &spot, (int)CDL_MIN(CDL_ROWS, end - at), &t);
            run_tile(j, &t, o, n, c, CDL_MIN(c + j->chunk, j->g.in.blocks));
        }
    }
}

static void run_tasks(void *job_, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) run_task(job_, i);
}

static void measure(job *j) {
    int64_t at[CDL_TAPS];
    cdl_block_offsets(&j->g, j->in_y, j->in_x, at);
    const int64_t each = j->plain ? j->depth : 1;
    for (int64_t i = 0; i < j->taps * each; i++) j->at[i] = at[i / each] + i % each * j->in_i;
}

static void cut(job *j) {
    const cdl_block_image *out = &j->g.out;
    j->pixels = out->batch * out->h * out->w;
    j->groups = cdl_ceil_div(out->blocks, CDL_COLS);
    j->group = cdl_ceil_div(out->blocks, j->groups);
    j->groups = cdl_ceil_div(out->blocks, j->group);
    j->parts = CDL_MAX(cdl_ceil_div(j->pixels, PART), (int64_t)1);
    j->part = cdl_ceil_div(cdl_ceil_div(j->pixels, j->parts), CDL_ROWS) * CDL_ROWS;
    j->parts = cdl_ceil_div(j->pixels, j->part);
    j->chunk = CDL_MAX(CHUNK / (j->taps * j->depth), (int64_t)1);
    const int64_t weights = out->blocks * j->w_o, image = j->pixels * j->g.in.blocks * CDL_B;
    j->groups_first = weights < image;
}

/* x blocked, or plain [b,c,h,w] as one block of c channels. The only block may be weighed in part. */
static cdl_status set_input(job *j, const cdl_view *x, int64_t depth) {
    const int64_t *s = x->layout->shape;
    cdl_block_image *in = &j->g.in;
    if (x->layout->rank == 5) {
        const cdl_status status = cdl_block_image_of(x, in);
        if (status != CDL_OK) return status;
        j->depth = in->blocks == 1 ? CDL_MIN(CDL_MAX(depth, 1), CDL_B) : CDL_B, j->in_x = CDL_B, j->in_i = 1;
        j->in_y = in->w * CDL_B, j->in_c = in->h * j->in_y, j->in_b = in->blocks * j->in_c;
        return CDL_OK;
    }
    if (x->layout->dtype != CDL_F32) return CDL_EDTYPE;
    if (!cdl_block_plain(x, 4) || s[1] < 1 || s[1] > CDL_B) return CDL_ESHAPE;
    *in = (cdl_block_image){s[0], 1, s[2], s[3]};
    j->depth = s[1], j->in_x = 1, j->in_y = in->w, j->in_i = in->h * in->w;
    j->in_c = 0, j->in_b = s[1] * j->in_i;
    j->plain = true;
    return CDL_OK;
}

static cdl_status check(job *j, const cdl_view *v, const cdl_params *p) {
    cdl_status s;
    const int64_t *w = v[W].layout->shape;
    if ((s = cdl_block_image_of(&v[OUT], &j->g.out)) != CDL_OK) return s;
    if (!cdl_block_plain(&v[W], 6)) return CDL_ESHAPE;
    if ((s = set_input(j, &v[IN], w[4])) != CDL_OK) return s;
    if (w[0] != j->g.out.blocks || w[1] != j->g.in.blocks || w[4] != j->depth || w[5] != CDL_B) return CDL_ESHAPE;
    j->g.taps[0] = w[2], j->g.taps[1] = w[3];
    if ((s = cdl_block_window_of(&j->g, p)) != CDL_OK || (s = cdl_block_end_of(&j->end, p)) != CDL_OK) return s;
    j->taps = w[2] * w[3];
    j->w_o = w[1] * j->taps * j->depth * CDL_B;
    return cdl_block_beside(&v[BIAS], &v[ADD], &j->g.out);
}

CDL_KERNEL(conv_block) {
    job j = {0};
    if (n != 5) return CDL_EARGS;
    cdl_status s = check(&j, v, p);
    const cdl_block_image *out = &j.g.out;
    if (s != CDL_OK || !(out->batch && out->blocks && out->h && out->w)) return s;
    if (!v[OUT].data || !v[IN].data || !v[W].data || !j.g.in.blocks) return CDL_EARGS;
    j.out = v[OUT].data, j.in = v[IN].data, j.w = v[W].data, j.bias = v[BIAS].data, j.add = v[ADD].data;
    measure(&j);
    cut(&j);
    const int64_t grain = cdl_grain(j.part, j.group * CDL_B, j.taps * j.depth * j.g.in.blocks);
    cdl_parallel_for(j.parts * j.groups, grain, run_tasks, &j);
    return CDL_OK;
}
