/* quant.c: out[m,n] = act(x[m,k] W[n,k]^T + bias) for W of GGUF blocks, straight from their bytes.
 *
 * x is quantised once a call (quantise), then 16 rows of W at a time meet every token: few tokens
 * straight from the blocks (q_group), many through a tile that is unpacked once (q_unpack, q_tokens).
 * Both give the same bits; docs/reference/block-formats.md has the arithmetic.
 */
#include "quant.h"
#include "quant_tile.h"
#include "quant_float.h"

enum { FEW_TOKENS = 3, TOKEN_TILE = 256, INPUT_SLOT = 0, TILE_SLOT = 1, FETCH_AHEAD = 20480 };

typedef int8_t vb __attribute__((vector_size(CDL_LANES)));

typedef void (*q_group_fn)(q_sixteen rows, int64_t ahead, int64_t blocks, const q_input *x, int64_t t, float *y);
typedef void (*q_unpack_fn)(q_sixteen rows, int64_t blocks, q_tile *tile);
typedef void (*q_tokens_fn)(const q_tile *tile, int64_t blocks, const q_input *x, int64_t t, int32_t count, float *y);

typedef struct q_job {
    q_io io;
    q_input x;
    int64_t blocks;    /* sub-blocks in a row of W */
    int64_t cuts;      /* pieces the tokens are cut into */
    int32_t status; /* written by any worker, atomically */
    q_group_fn group;
    q_unpack_fn unpack;
    q_tokens_fn tokens;
} q_job;

/* The kernels of one format ... */
#define CDL_ROW(name, shape, offset, tile)                                                         \
    static void group_##name(q_sixteen rows, int64_t ahead, int64_t blocks, const q_input *x,      \
                             int64_t t, float *y) {                                                \
        q_group(CDL_##name, rows, ahead, blocks, x, t, y);                                         \
    }                                                                                              \
    static void unpack_##name(q_sixteen rows, int64_t blocks, q_tile *to) {                        \
        q_unpack(CDL_##name, rows, blocks, to);                                                    \
    }
CDL_QUANTS(CDL_ROW)
#undef CDL_ROW

/* ... and of one kind of tile: y[count][16], count at most Q_TOKENS. */
#define CDL_ROW(name)                                                                              \
    static void tokens_##name(const q_tile *tile, int64_t blocks, const q_input *x, int64_t t,     \
                              int32_t count, float *y) {                                           \
        enum { HALF = Q_TOKENS / 2 };                                                              \
        int32_t i = 0;                                                                             \
        if (count == Q_TOKENS) {                                                                   \
            q_tokens(CDL_##name, tile, blocks, x, t, Q_TOKENS, y);                                 \
            return;                                                                                \
        }                                                                                          \
        if (count >= HALF) q_tokens(CDL_##name, tile, blocks, x, t, HALF, y), i = HALF;            \
        for (; i < count; i++) q_tokens(CDL_##name, tile, blocks, x, t + i, 1, y + i * Q_ROWS);    \
    }
CDL_QUANT_TILES(CDL_ROW)
#undef CDL_ROW

static bool choose(q_job *job, int32_t dtype) {
    switch (dtype) {
#define CDL_ROW(name, shape, offset, tile)                                                         \
    case CDL_##name:                                                                               \
        job->group = group_##name, job->unpack = unpack_##name, job->tokens = tokens_##tile;       \
        return true;
        CDL_QUANTS(CDL_ROW)
#undef CDL_ROW
    default: return false;
    }
}

/* -- views ----------------------------------------------------------------------------------------- */

/* `linear` has checked dtypes, ranks, sizes and blocks. */
static q_io io_of(const cdl_view *v, int32_t n, const cdl_params *p) {
    const cdl_layout *out = v[0].layout, *x = v[1].layout, *w = v[2].layout;
    q_io io = {
        .m = out->shape[0], .n = out->shape[1], .k = x->shape[1], .dtype = w->dtype, .w = v[2].data,
        .row_bytes = q_io_stride(w, 0) / cdl_dtype_block(w->dtype) * cdl_dtype_size(w->dtype),
        .x = {v[1].data, x->dtype, x->shape[0], x->shape[1], q_io_stride(x, 0), q_io_stride(x, 1)},
        .out = v[0], .out_row = q_io_stride(out, 0), .out_col = q_io_stride(out, 1), .act = (int32_t)p->i[0]};
    if (n == 4 && v[3].data) io.bias = v[3], io.bias_stride = q_io_stride(v[3].layout, 0);
    return io;
}

/* -- activations ------------------------------------------------------------------------------------ */

/* 32 values to int8: d = max|x| / 127, q = x * (127 / max|x|) to nearest even. Below 2^-100 a block
 * counts as zero; one with a NaN or an infinity gets d = NaN, and so does every output of the token. */
static void quantise_block(const float *x, int8_t *q, float *d, int32_t half[2]) {
    vf top = v_zero();
    vi odd = (vi){0};
    for (int32_t i = 0; i < 32; i += CDL_LANES) {
        vf a = v_load(x + i);
        odd |= (vi)((a - a) != v_zero());
        top = v_max(top, v_abs(a));
    }
    float most = v_hmax(top);
    bool finite = !v_any(odd);
    bool zero = !finite || most < 0x1p-100f;
    *d = !finite ? __builtin_nanf("") : zero ? 0.0f : most / 127.0f;
    vf scale = v_set1(zero ? 0.0f : 127.0f / most);
    vi sums[2] = {(vi){0}, (vi){0}};
    for (int32_t i = 0; i < 32; i += CDL_LANES) {
        vi n = zero ? (vi){0} : v_to_vi(v_load(x + i) * scale);
        sums[i / 16] += n;
        vb bytes = __builtin_convertvector(n, vb);
        memcpy(q + i, &bytes, sizeof bytes);
    }
    half[0] = (int32_t)v_sum(vi_to_v(sums[0]));
    half[1] = (int32_t)v_sum(vi_to_v(sums[1]));
}

static void quantise_rows(void *ctx, int64_t begin, int64_t end) {
    q_job *job = ctx;
    const q_input *x = &job->x;
    int32_t offset = q_offset_of(job->io.dtype), shape = q_shape(job->io.dtype);
    for (int64_t t = begin; t < end; t++) {
        memset(x->q + t * x->k, 0, (size_t)x->k);
        for (int64_t b = 0; b < x->blocks; b++) {
            float values[32];
            int32_t half[2] = {0}, *seed = x->seed + (t * x->blocks + b) * 2;
            x->d[t * x->blocks + b] = 0;
            if (b < job->blocks)
                quantise_block(q_io_input(&job->io, t, b * 32, values), x->q + t * x->k + b * 32,
                               x->d + t * x->blocks + b, half);
            x->sum[t * x->blocks + b] = (float)(half[0] + half[1]);
            seed[0] = -offset * (shape == Q_SUB ? half[0] : half[0] + half[1]);
            seed[1] = shape == Q_SUB ? -offset * half[1] : 0;
        }
    }
}

static cdl_status quantise(q_job *job) {
    q_input *x = &job->x;
    x->k = (job->io.k + 127) / 128 * 128;
    x->blocks = x->k / 32;
    int64_t cells, bytes;
    if (!cdl_mul_ok(job->io.m, x->blocks, &cells) || !cdl_mul_ok(cells, 32 + 16, &bytes)) return CDL_ESHAPE;
    uint8_t *memory = cdl_scratch(INPUT_SLOT, (uint64_t)bytes);
    if (!memory) return CDL_ENOMEM;
    x->q = (int8_t *)memory;
    x->d = (float *)(memory + cells * 32);
    x->sum = x->d + cells;
    x->seed = (int32_t *)(x->sum + cells);
    cdl_parallel_for(job->io.m, CDL_MAX(16384 / (x->k + 1), 1), quantise_rows, job);
    return CDL_OK;
}

/* -- products --------------------------------------------------------------------------------------- */

/* A group of 16 outputs is computed from rows that all exist: the last group may begin earlier and skip
 * what its neighbour did, and where n < 16 each row is computed alone, 16 times over. */
typedef struct q_place {
    q_sixteen rows;
    int64_t first, skip, count; /* of y[skip], and how many */
} q_place;

static q_place place_of(const q_io *io, int64_t group) {
    int64_t first = group * Q_ROWS, start = CDL_MAX(CDL_MIN(first, io->n - Q_ROWS), 0);
    if (io->n < Q_ROWS) return (q_place){{io->w + group * io->row_bytes, 0}, group, 0, 1};
    return (q_place){{io->w + start * io->row_bytes, io->row_bytes}, first, first - start, CDL_MIN(io->n - first, Q_ROWS)};
}
static int64_t groups_of(const q_io *io) { return io->n < Q_ROWS ? io->n : (io->n + Q_ROWS - 1) / Q_ROWS; }

/* Bytes from a group to the one that is fetched meanwhile: whole groups, about FETCH_AHEAD. */
static int64_t fetch_ahead(const q_io *io) {
    int64_t group = Q_ROWS * io->row_bytes;
    return group > 0 ? CDL_MAX((FETCH_AHEAD + group / 2) / group, 1) * group : group;
}

static void run_few(void *ctx, int64_t begin, int64_t end) {
    q_job *job = ctx;
    float y[Q_ROWS];
    int64_t ahead = fetch_ahead(&job->io);
    for (int64_t g = begin; g < end; g++) {
        q_place at = place_of(&job->io, g);
        for (int64_t t = 0; t < job->io.m; t++) {
            job->group(at.rows, ahead, job->blocks, &job->x, t, y);
            q_io_output(&job->io, t, at.first, at.count, y + at.skip);
        }
    }
}

/* Cell (group, cut): the tile is unpacked when the group changes. */
static void run_many(void *ctx, int64_t begin, int64_t end) {
    q_job *job = ctx;
    float y[Q_TOKENS * Q_ROWS];
    q_tile *tile = cdl_scratch(TILE_SLOT, (uint64_t)job->blocks * sizeof(q_tile));
    if (!tile) {
        cdl_fail(&job->status, CDL_ENOMEM);
        return;
    }
    for (int64_t cell = begin, held = -1; cell < end; cell++) {
        int64_t g = cell / job->cuts, first = cell % job->cuts * TOKEN_TILE;
        int64_t last = CDL_MIN(first + TOKEN_TILE, job->io.m);
        q_place at = place_of(&job->io, g);
        if (g != held) job->unpack(at.rows, job->blocks, tile);
        held = g;
        for (int64_t t = first; t < last; t += Q_TOKENS) {
            int32_t count = (int32_t)CDL_MIN(last - t, Q_TOKENS);
            job->tokens(tile, job->blocks, &job->x, t, count, y);
            for (int32_t i = 0; i < count; i++)
                q_io_output(&job->io, t + i, at.first, at.count, y + i * Q_ROWS + at.skip);
        }
    }
}

/* About 2^17 products with a weight a piece: some ten microseconds. */
static int64_t grain(const q_job *job, int64_t tokens) {
    return CDL_MAX((int64_t)131072 / ((job->io.k + 32) * Q_ROWS * CDL_MAX(tokens / 8, 1)), 1);
}

cdl_status CDL_NAME(cdl_linear_block)(const cdl_view *v, int32_t n, const cdl_params *p) {
    q_job job = {.io = io_of(v, n, p), .status = CDL_OK};
    if (job.io.m == 0 || job.io.n == 0) return CDL_OK;
    if (!choose(&job, job.io.dtype)) return CDL_EDTYPE;
    if (p->i[1] == 1) return CDL_NAME(cdl_linear_block_float)(&job.io);
    job.blocks = job.io.k / Q_SUB_BLOCK;
    cdl_status status = quantise(&job);
    if (status != CDL_OK) return status;
    int64_t groups = groups_of(&job.io);
    if (job.io.m <= FEW_TOKENS) {
        cdl_parallel_for(groups, grain(&job, job.io.m), run_few, &job);
        return CDL_OK;
    }
    job.cuts = (job.io.m + TOKEN_TILE - 1) / TOKEN_TILE;
    cdl_parallel_for(groups * job.cuts, grain(&job, CDL_MIN(job.io.m, TOKEN_TILE)), run_many, &job);
    return job.status;
}
