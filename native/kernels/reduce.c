/* reduce.c: sum, mean, var, max, min, argmax, argmin over the last i0 axes.
 *
 * The reduced axes are one sequence in row-major order, cut into tiles, and tiles into chunks of
 * CHUNK values; both cuts depend on the shape only. Few outputs: the chunks run in parallel. Many
 * outputs: the outputs do. Outputs whose neighbours lie closer in memory than the values to be
 * reduced are read side by side (columns).
 */
#include "reduce_tile.h"
#include <math.h>

enum { CHUNK = 128 * CDL_TILE, COLUMNS = 256 };

typedef enum goal { SUM, MEAN, VAR, BEST_VALUE, BEST_PLACE } goal;

/* What a reduction is; the rows at the end of this file are all of them. */
struct plan;
typedef struct rule {
    goal goal;                        /* what becomes of a state: result_of */
    const struct rule *first;         /* a pass before it whose results are the centres of this one; or NULL */
    void (*merge)(cdl_state *into, const cdl_state *from);
    cdl_reduce_fn tile[3];            /* of floats, doubles, integers (NULL: not taken) */
    /* Up to COLUMNS neighbouring outputs side by side; NULL: outputs are made one by one. */
    void (*columns[3])(const struct plan *p, cdl_state *s, const char *data, int64_t step, int64_t n,
                       const double *centre);
} rule;

typedef struct plan {
    const rule *rule;
    int32_t in_dtype, rank; /* of the reduced axes, merged where possible; at least 1 */
    int64_t n;              /* values an output */
    int64_t shape[8], step[8];
    cdl_kind kind;
} plan;

typedef struct reduce {
    plan p;
    int64_t correction;
    int32_t out_dtype;
    cdl_state *chunks; /* [chunks] states of the one output that runs in parallel */
    const char *data;  /* its first value */
    double centre;
} reduce;

static const cdl_state empty_state = {0, 0, -1, false, 0};

/* -- reading -------------------------------------------------------------------------------------------- */
/* Values [at, at + n) of the output that starts at p; n <= CDL_TILE. */
static const void *read_tile(const plan *p, const char *data, int64_t at, int64_t n, void *buffer) {
    if (p->rank == 1) return CDL_NAME(cdl_tile_load)(p->in_dtype, data + at * p->step[0], p->step[0], n, buffer);
    const int32_t last = p->rank - 1;
    const int64_t size = cdl_kind_size(p->kind);
    for (int64_t done = 0; done < n;) {
        int64_t rest = at + done, run = CDL_MIN(n - done, p->shape[last] - rest % p->shape[last]);
        const char *from = data;
        for (int32_t i = last; i >= 0; i--) {
            from += rest % p->shape[i] * p->step[i];
            rest /= p->shape[i];
        }
        char *to = (char *)buffer + done * size;
        const void *got = CDL_NAME(cdl_tile_load)(p->in_dtype, from, p->step[last], run, to);
        if (got != to) memcpy(to, got, (size_t)(run * size));
        done += run;
    }
    return buffer;
}

/* One chunk of one output. */
static cdl_state reduce_chunk(const plan *p, const char *data, int64_t chunk, double centre) {
    _Alignas(64) double buffer[CDL_TILE];
    cdl_state s = empty_state;
    const int64_t begin = chunk * CHUNK, end = CDL_MIN(p->n, begin + CHUNK);
    for (int64_t at = begin; at < end; at += CDL_TILE) {
        const int64_t n = CDL_MIN(CDL_TILE, end - at);
        p->rule->tile[p->kind](&s, read_tile(p, data, at, n, buffer), n, at, centre);
    }
    return s;
}

static cdl_state reduce_one(const plan *p, const char *data, double centre) {
    cdl_state s = empty_state;
    for (int64_t c = 0; c * CHUNK < p->n; c++) {
        cdl_state part = reduce_chunk(p, data, c, centre);
        p->rule->merge(&s, &part);
    }
    return s;
}

/* -- columns ------------------------------------------------------------------------------------------ */
static const char *row_at(const plan *p, const char *data, int64_t at) {
    if (p->rank == 1) return data + at * p->step[0];
    for (int32_t i = p->rank - 1; i >= 0; i--) {
        data += at % p->shape[i] * p->step[i];
        at /= p->shape[i];
    }
    return data;
}

/* Sums of up to COLUMNS neighbouring outputs, values or squared distances from `centre`: sixteen rows
 * of partial sums, so that each output is added in the order of sum_of_floats. */
#define SUM_COLUMNS_OF(name, type)                                                                 \
    static void name(const plan *p, cdl_state *s, const char *data, int64_t step, int64_t columns, \
                     const double *centre) {                                                       \
        _Alignas(64) double partial[CDL_PARTIALS][COLUMNS], chunk[COLUMNS], row[COLUMNS];          \
        for (int64_t at = 0; at < p->n; at += CDL_TILE) {                                          \
            const int64_t n = CDL_MIN(CDL_TILE, p->n - at);                                        \
            memset(partial, 0, sizeof partial);                                                    \
            if (at % CHUNK == 0) memset(chunk, 0, sizeof chunk);                                   \
            for (int64_t j = 0; j < n; j++) {                                                      \
                const char *from = row_at(p, data, at + j);                                        \
                const type *x = CDL_NAME(cdl_tile_load)(p->in_dtype, from, step, columns, row);    \
                double *to = partial[j % CDL_PARTIALS];                                            \
                if (centre)                                                                        \
                    for (int64_t c = 0; c < columns; c++)                                          \
                        to[c] += ((double)x[c] - centre[c]) * ((double)x[c] - centre[c]);          \
                else                                                                               \
                    for (int64_t c = 0; c < columns; c++) to[c] += (double)x[c];                   \
            }                                                                                      \
            for (int w = CDL_PARTIALS / 2; w; w /= 2)                                              \
                for (int i = 0; i < w; i++)                                                        \
                    for (int64_t c = 0; c < columns; c++) partial[i][c] += partial[i + w][c];      \
            for (int64_t c = 0; c < columns; c++) chunk[c] += partial[0][c];                       \
            if ((at + CDL_TILE) % CHUNK == 0 || at + n == p->n)                                    \
                for (int64_t c = 0; c < columns; c++) s[c].value += chunk[c];                      \
        }                                                                                          \
    }
SUM_COLUMNS_OF(sum_columns_f, float)
SUM_COLUMNS_OF(sum_columns_d, double)

static void sum_columns_i(const plan *p, cdl_state *s, const char *data, int64_t step, int64_t columns,
                          const double *centre) {
    (void)centre;
    _Alignas(64) int64_t row[COLUMNS];
    for (int64_t j = 0; j < p->n; j++) {
        const int64_t *x = CDL_NAME(cdl_tile_load)(p->in_dtype, row_at(p, data, j), step, columns, row);
        for (int64_t c = 0; c < columns; c++) s[c].whole = (int64_t)((uint64_t)s[c].whole + (uint64_t)x[c]);
    }
}

/* The first best of each column, or its first NaN. */
#define BEST_COLUMNS(name, type, field, op)                                                        \
    static void name(const plan *p, cdl_state *s, const char *data, int64_t step, int64_t columns, \
                     const double *centre) {                                                       \
        (void)centre;                                                                              \
        _Alignas(64) type best[COLUMNS], row[COLUMNS];                                             \
        int64_t place[COLUMNS];                                                                    \
        for (int64_t j = 0; j < p->n; j++) {                                                       \
            const char *from = row_at(p, data, j);                                                 \
            const type *x = CDL_NAME(cdl_tile_load)(p->in_dtype, from, step, columns, row);        \
            for (int64_t c = 0; c < columns; c++) {                                                \
                const type y = x[c], b = best[c];                                                  \
                const bool better = (j == 0) | (y op b) | ((y != y) & (b == b));                   \
                best[c] = better ? y : b;                                                          \
                place[c] = better ? j : place[c];                                                  \
            }                                                                                      \
        }                                                                                          \
        for (int64_t c = 0; c < columns; c++) s[c] = (cdl_state){.field = best[c], .at = place[c]}; \
    }
/* Its value alone: the first of -0 and 0, as above, since a tie does not replace it. */
#define VALUE_COLUMNS(name, type, field, op)                                                       \
    static void name(const plan *p, cdl_state *s, const char *data, int64_t step, int64_t columns, \
                     const double *centre) {                                                       \
        _Alignas(64) type best[COLUMNS], row[COLUMNS];                                             \
        (void)centre;                                                                              \
        for (int64_t j = 0; j < p->n; j++) {                                                       \
            const char *from = row_at(p, data, j);                                                 \
            const type *x = CDL_NAME(cdl_tile_load)(p->in_dtype, from, step, columns, row);        \
            if (j)                                                                                 \
                for (int64_t c = 0; c < columns; c++) {                                            \
                    const type y = x[c], b = best[c];                                              \
                    best[c] = (y op b) | ((y != y) & (b == b)) ? y : b;                            \
                }                                                                                  \
            else                                                                                   \
                memcpy(best, x, (size_t)columns * sizeof *best);                                   \
        }                                                                                          \
        for (int64_t c = 0; c < columns; c++) s[c] = (cdl_state){.field = best[c], .at = 0};       \
    }
#define COLUMNS_OF_KINDS(macro, name, op)                                                          \
    macro(name##_columns_f, float, value, op)                                                      \
    macro(name##_columns_d, double, value, op)                                                     \
    macro(name##_columns_i, int64_t, whole, op)
COLUMNS_OF_KINDS(VALUE_COLUMNS, max, >)
COLUMNS_OF_KINDS(VALUE_COLUMNS, min, <)
COLUMNS_OF_KINDS(BEST_COLUMNS, argmax, >)
COLUMNS_OF_KINDS(BEST_COLUMNS, argmin, <)

/* -- results ------------------------------------------------------------------------------------------- */
static double result_of(const reduce *r, const rule *rule, const cdl_state *s) {
    const int64_t n = r->p.n, over = n - r->correction;
    switch (rule->goal) {
    case MEAN: return n ? s->value / (double)n : (double)__builtin_nanf("");
    case VAR: return over > 0 ? s->value / (double)over : (double)__builtin_nanf("");
    default: return s->value;
    }
}

static void store_results(const reduce *r, const cdl_state *s, char *out, int64_t step, int64_t n) {
    _Alignas(64) double number[COLUMNS], converted[COLUMNS];
    int64_t *whole = (int64_t *)converted;
    const void *tile = whole;
    if (r->p.rule->goal == BEST_PLACE) {
        for (int64_t i = 0; i < n; i++) whole[i] = s[i].at;
    } else if (r->p.kind == CDL_KIND_I) {
        for (int64_t i = 0; i < n; i++) whole[i] = s[i].whole;
    } else {
        for (int64_t i = 0; i < n; i++) number[i] = result_of(r, r->p.rule, &s[i]);
        tile = CDL_NAME(cdl_tile_cast)(CDL_KIND_D, number, r->out_dtype, n, converted);
    }
    CDL_NAME(cdl_tile_store)(r->out_dtype, out, step, n, tile);
}

static plan first_plan(const plan *p) {
    plan q = *p;
    q.rule = p->rule->first;
    return q;
}

/* n <= COLUMNS outputs, one after the other. */
static void by_output(const reduce *r, cdl_state *s, const char *in, int64_t step, int64_t n) {
    const plan first = first_plan(&r->p);
    for (int64_t i = 0; i < n; i++, in += step) {
        double centre = 0.0;
        if (first.rule) {
            const cdl_state found = reduce_one(&first, in, 0.0);
            centre = result_of(r, first.rule, &found);
        }
        s[i] = reduce_one(&r->p, in, centre);
        s[i].centre = centre;
    }
}

/* The same, side by side. */
static void by_columns(const reduce *r, cdl_state *s, const char *in, int64_t step, int64_t n) {
    const plan *p = &r->p, first = first_plan(p);
    double centre[COLUMNS];
    for (int64_t i = 0; i < n; i++) s[i] = empty_state;
    if (first.rule) {
        first.rule->columns[p->kind](&first, s, in, step, n, NULL);
        for (int64_t i = 0; i < n; i++) {
            centre[i] = result_of(r, first.rule, &s[i]);
            s[i] = empty_state;
            s[i].centre = centre[i];
        }
    }
    p->rule->columns[p->kind](p, s, in, step, n, first.rule ? centre : NULL);
}

static int64_t distance(int64_t step) { return step < 0 ? -step : step; }

static void outputs_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    reduce *r = ctx;
    cdl_state s[COLUMNS];
    const bool columns = r->p.rule->columns[r->p.kind] && count >= 4 && r->p.n > 1 &&
                         distance(step[1]) < distance(r->p.step[r->p.rank - 1]);
    for (int64_t at = 0; at < count; at += COLUMNS) {
        const int64_t n = CDL_MIN(COLUMNS, count - at);
        const char *in = data[1] + at * step[1];
        if (columns) by_columns(r, s, in, step[1], n);
        else by_output(r, s, in, step[1], n);
        store_results(r, s, data[0] + at * step[0], step[0], n);
    }
}

/* -- few outputs: chunks in parallel --------------------------------------------------------------------- */
static void chunks_piece(void *ctx, int64_t begin, int64_t end) {
    const reduce *r = ctx;
    for (int64_t c = begin; c < end; c++) r->chunks[c] = reduce_chunk(&r->p, r->data, c, r->centre);
}

static cdl_state reduce_parallel(reduce *r, const plan *p, const char *data, double centre) {
    const int64_t chunks = (p->n + CHUNK - 1) / CHUNK;
    reduce job = *r;
    cdl_state s = empty_state;
    job.p = *p, job.data = data, job.centre = centre;
    cdl_parallel_for(chunks, 1, chunks_piece, &job);
    for (int64_t c = 0; c < chunks; c++) p->rule->merge(&s, &job.chunks[c]);
    return s;
}

static void few_run(void *ctx, char *const *data, const int64_t *step, int64_t count) {
    reduce *r = ctx;
    const plan first = first_plan(&r->p);
    for (int64_t i = 0; i < count; i++) {
        const char *in = data[1] + i * step[1];
        double centre = 0.0;
        if (first.rule) {
            const cdl_state found = reduce_parallel(r, &first, in, 0.0);
            centre = result_of(r, first.rule, &found);
        }
        cdl_state s = reduce_parallel(r, &r->p, in, centre);
        s.centre = centre;
        store_results(r, &s, data[0] + i * step[0], 8, 1);
    }
}

/* -- entries ------------------------------------------------------------------------------------------- */
/* The reduced axes of `in`, in order, neighbours merged. */
static void plan_axes(plan *p, const cdl_layout *in, int32_t first) {
    const int64_t size = cdl_dtype_size(in->dtype);
    p->n = 1;
    p->rank = 0;
    for (int32_t i = first; i < in->rank; i++) {
        const int64_t length = in->shape[i], step = in->strides[i] * size;
        p->n *= length;
        if (length == 1) continue;
        if (p->rank && p->step[p->rank - 1] == length * step) {
            p->shape[p->rank - 1] *= length;
            p->step[p->rank - 1] = step;
        } else {
            p->shape[p->rank] = length;
            p->step[p->rank++] = step;
        }
    }
    if (p->rank) return;
    p->rank = 1;
    p->shape[0] = 1;
    p->step[0] = size;
}

static cdl_status check(const cdl_view *v, int32_t n, const cdl_params *p, const rule *rule, cdl_kind kind) {
    if (n != 2) return CDL_EARGS;
    const cdl_layout *lo = v[0].layout, *li = v[1].layout;
    const goal goal = rule->goal;
    if (p->i[0] < 0 || p->i[0] > li->rank || p->i[1] < 0) return CDL_EPARAM;
    if (kind == CDL_KIND_NONE || !rule->tile[kind]) return CDL_EDTYPE;
    if (goal == BEST_PLACE || (goal == SUM && kind == CDL_KIND_I)) {
        if (lo->dtype != CDL_I64) return CDL_EDTYPE;
    } else if (goal == BEST_VALUE ? lo->dtype != li->dtype : cdl_kind_of(lo->dtype) != kind) {
        return CDL_EDTYPE;
    }
    if (lo->rank != li->rank - p->i[0]) return CDL_ESHAPE;
    for (int32_t i = 0; i < lo->rank; i++)
        if (lo->shape[i] != li->shape[i]) return CDL_ESHAPE;
    return CDL_OK;
}

static cdl_status run_reduce(const cdl_view *v, int32_t n, const cdl_params *p, const rule *rule) {
    const cdl_kind kind = n == 2 ? cdl_kind_of(v[1].layout->dtype) : CDL_KIND_NONE;
    cdl_status status = check(v, n, p, rule, kind);
    if (status) return status;
    cdl_layout outer = *v[1].layout;
    outer.rank -= (int32_t)p->i[0];
    reduce r = {.correction = rule->goal == VAR ? p->i[1] : 0, .out_dtype = v[0].layout->dtype};
    r.p.rule = rule, r.p.kind = kind, r.p.in_dtype = outer.dtype;
    plan_axes(&r.p, v[1].layout, outer.rank);
    const int64_t outputs = cdl_count(&outer);
    if (!outputs) return CDL_OK;
    if (!r.p.n && (rule->goal == BEST_VALUE || rule->goal == BEST_PLACE)) return CDL_ESHAPE;
    const char none = 0; /* an empty axis: no value is read, and `in` may be null */
    const cdl_view pair[2] = {v[0], {r.p.n ? v[1].data : (void *)(uintptr_t)&none, &outer}};
    cdl_nd nd;
    status = CDL_NAME(cdl_nd_make)(&nd, pair, 2);
    if (status) return status;
    const int64_t chunks = (r.p.n + CHUNK - 1) / CHUNK;
    if (outputs < 8 && chunks > 1) {
        r.chunks = cdl_scratch(1, (uint64_t)chunks * sizeof *r.chunks);
        if (!r.chunks) return CDL_ENOMEM;
        CDL_NAME(cdl_nd_run)(&nd, INT64_MAX, few_run, &r);
    } else {
        CDL_NAME(cdl_nd_run)(&nd, CDL_GRAIN / (r.p.n + 1) + 1, outputs_run, &r);
    }
    return CDL_OK;
}

#define CDL_REDUCE(name, ...)                                                                      \
    static const rule name##_rule = {__VA_ARGS__};                                                 \
    CDL_KERNEL(name) { return run_reduce(v, n, p, &name##_rule); }
#define OF(f) {f##_f, f##_d, f##_i}
CDL_REDUCE(sum, SUM, NULL, sum_merge, OF(sum), OF(sum_columns))
CDL_REDUCE(mean, MEAN, NULL, sum_merge, {sum_f, sum_d, NULL}, {sum_columns_f, sum_columns_d, NULL})
CDL_REDUCE(var, VAR, &mean_rule, sum_merge, {square_f, square_d, NULL}, {sum_columns_f, sum_columns_d, NULL})
CDL_REDUCE(max, BEST_VALUE, NULL, max_merge, OF(max), OF(max_columns))
CDL_REDUCE(min, BEST_VALUE, NULL, min_merge, OF(min), OF(min_columns))
CDL_REDUCE(argmax, BEST_PLACE, NULL, max_merge, OF(argmax), OF(argmax_columns))
CDL_REDUCE(argmin, BEST_PLACE, NULL, min_merge, OF(argmin), OF(argmin_columns))
