/* reduce_tile.h: what one tile of at most CDL_TILE values does to the state of a reduction.
 *
 * Sums: value j of a tile goes to partial sum j mod 16, in f64; the sixteen are added by halves; tiles
 * are added one after the other. The order is the same on every ISA, so sums are too.
 */
#ifndef CDL_REDUCE_TILE_H
#define CDL_REDUCE_TILE_H
#include "tile.h"

enum { CDL_PARTIALS = 16 };

/* The state of one output. `at` < 0: nothing seen yet. */
typedef struct cdl_state {
    double value;  /* sum, or best of floats */
    int64_t whole; /* sum, or best of integers */
    int64_t at;    /* where the best was found first */
    bool nan;      /* a NaN was found: it wins */
    double centre; /* result of a first pass, once the second is done */
} cdl_state;

/* x: n values of a kind, the first at index `base` of the reduced axes; centre: taken off before
 * squaring. */
typedef void (*cdl_reduce_fn)(cdl_state *s, const void *x, int64_t n, int64_t base, double centre);

CDL_INLINE double cdl_halves(double *p) {
    for (int w = CDL_PARTIALS / 2; w; w /= 2)
        for (int i = 0; i < w; i++) p[i] += p[i + w];
    return p[0];
}

/* -- sums -------------------------------------------------------------------------------------------- */
CDL_INLINE double sum_of_floats(const float *x, int64_t n, double centre, bool square) {
    enum { VECTORS = CDL_PARTIALS / CDL_LANES };
    vd sum[VECTORS] = {{0}};
    double p[CDL_PARTIALS];
    int64_t i = 0;
    for (; i + CDL_PARTIALS <= n; i += CDL_PARTIALS)
        for (int k = 0; k < VECTORS; k++) {
            vd d = CDL_TO_D(v_load(x + i + k * CDL_LANES));
            if (square) d = (d - centre) * (d - centre);
            sum[k] += d;
        }
    memcpy(p, sum, sizeof p);
    for (int k = 0; i < n; i++, k++) {
        double d = (double)x[i];
        if (square) d = (d - centre) * (d - centre);
        p[k] += d;
    }
    return cdl_halves(p);
}
CDL_INLINE double sum_of_doubles(const double *x, int64_t n, double centre, bool square) {
    double p[CDL_PARTIALS] = {0};
    for (int64_t i = 0; i < n; i += CDL_PARTIALS) {
        const int64_t m = CDL_MIN(CDL_PARTIALS, n - i);
        for (int64_t k = 0; k < m; k++) {
            double d = x[i + k];
            if (square) d = (d - centre) * (d - centre);
            p[k] += d;
        }
    }
    return cdl_halves(p);
}
static void sum_f(cdl_state *s, const void *x, int64_t n, int64_t base, double centre) {
    (void)base;
    s->value += sum_of_floats(x, n, centre, false);
}
static void sum_d(cdl_state *s, const void *x, int64_t n, int64_t base, double centre) {
    (void)base;
    s->value += sum_of_doubles(x, n, centre, false);
}
static void sum_i(cdl_state *s, const void *x, int64_t n, int64_t base, double centre) {
    (void)base, (void)centre;
    uint64_t sum = (uint64_t)s->whole;
    for (int64_t i = 0; i < n; i++) sum += ((const uint64_t *)x)[i];
    s->whole = (int64_t)sum;
}
static void square_f(cdl_state *s, const void *x, int64_t n, int64_t base, double centre) {
    (void)base;
    s->value += sum_of_floats(x, n, centre, true);
}
static void square_d(cdl_state *s, const void *x, int64_t n, int64_t base, double centre) {
    (void)base;
    s->value += sum_of_doubles(x, n, centre, true);
}
static void sum_merge(cdl_state *into, const cdl_state *from) {
    into->value += from->value;
    into->whole = (int64_t)((uint64_t)into->whole + (uint64_t)from->whole);
}

/* -- greatest and least -------------------------------------------------------------------------------- */
/* The best of a tile whose NaNs are only noted. */
CDL_INLINE float best_of_floats(const float *x, int64_t n, bool max, bool *nan) {
    vf a = v_set1(max ? -CDL_INF : CDL_INF), b = a;
    vi bad = {0};
    int64_t i = 0;
    for (; i + 2 * CDL_LANES <= n; i += 2 * CDL_LANES) {
        vf p = v_load(x + i), q = v_load(x + i + CDL_LANES);
        a = max ? v_max(p, a) : v_min(p, a);
        b = max ? v_max(q, b) : v_min(q, b);
        bad |= (p != p) | (q != q);
    }
    float best = max ? v_hmax(v_max(a, b)) : v_hmin(v_min(a, b));
    *nan = v_any(bad);
    for (; i < n; i++) {
        if (max ? x[i] > best : x[i] < best) best = x[i];
        *nan |= x[i] != x[i];
    }
    return best;
}
#define BEST_PLAIN(name, type)                                                                     \
    CDL_INLINE type name(const type *x, int64_t n, bool max, bool *nan) {                          \
        type best = x[0];                                                                          \
        *nan = best != best;                                                                       \
        for (int64_t i = 1; i < n; i++) {                                                          \
            if (max ? x[i] > best : x[i] < best) best = x[i];                                      \
            *nan |= x[i] != x[i];                                                                  \
        }                                                                                          \
        return best;                                                                               \
    }
BEST_PLAIN(best_of_doubles, double)
BEST_PLAIN(best_of_ints, int64_t)

/* A tile that beats the state. Where the place is asked for, it is searched for its best, or its first
 * NaN; and where the best is 0, so that the first of -0 and 0 is taken on every ISA. */
#define BEST(name, type, best_of, field, max, placed)                                              \
    static void name(cdl_state *s, const void *in, int64_t n, int64_t base, double centre) {       \
        const type *x = in;                                                                        \
        bool nan;                                                                                  \
        (void)centre;                                                                              \
        if (s->nan) return;                                                                        \
        const type best = best_of(x, n, max, &nan);                                                \
        if (!nan && s->at >= 0 && !((max) ? best > (type)s->field : best < (type)s->field)) return; \
        int64_t i = 0;                                                                             \
        if ((placed) || nan || best == 0)                                                          \
            while (nan ? x[i] == x[i] : x[i] != best) i++;                                         \
        s->field = (placed) || nan || best == 0 ? x[i] : best;                                     \
        s->at = base + i;                                                                          \
        s->nan = nan;                                                                              \
    }
#define BEST_OF_KINDS(name, max, placed)                                                           \
    BEST(name##_f, float, best_of_floats, value, max, placed)                                      \
    BEST(name##_d, double, best_of_doubles, value, max, placed)                                    \
    BEST(name##_i, int64_t, best_of_ints, whole, max, placed)
BEST_OF_KINDS(max, true, false)
BEST_OF_KINDS(min, false, false)
BEST_OF_KINDS(argmax, true, true)
BEST_OF_KINDS(argmin, false, true)

/* `from` comes after `into`: a tie keeps the first. One of value and whole is unused and equal. */
#define BEST_MERGE(name, op)                                                                       \
    static void name(cdl_state *into, const cdl_state *from) {                                     \
        if (into->nan || from->at < 0) return;                                                     \
        if (into->at < 0 || from->nan || from->value op into->value || from->whole op into->whole) *into = *from; \
    }
BEST_MERGE(max_merge, >)
BEST_MERGE(min_merge, <)
#endif
