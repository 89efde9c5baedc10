/* optim.c: one step of an optimiser, in place, one variable a call: f32 and f64, contiguous.
 *
 * Every element is worked on alone and in the order of operations that the formulas below have, so
 * results depend on nothing else. The numbers of a step come as a view f64 [..] and are rounded to the
 * dtype first.
 */
#include "tile.h"
#include <math.h>

enum { SGD_RATE, SGD_MOMENTUM, SGD_SHARE, SGD_DECAY, SGD_NUMBERS };
enum { ADAM_RATE, ADAM_FIRST, ADAM_FIRST_SHARE, ADAM_SECOND, ADAM_SECOND_SHARE, ADAM_ROOT, ADAM_EPSILON, ADAM_DECAY,
       ADAM_KEEP, ADAM_NUMBERS };
enum { MOST_NUMBERS = ADAM_NUMBERS };

typedef struct step {
    void *value, *state[2]; /* state[0]: momentum or mean, or NULL; state[1]: mean of squares */
    const void *grad;
    double number[MOST_NUMBERS];
    float rounded[MOST_NUMBERS];
    bool first, nesterov; /* of SGD */
    int32_t dtype;
} step;

/* Row-major without gaps; strides of nothing mean nothing. */
static bool is_plain(const cdl_layout *l) { return cdl_count(l) == 0 || cdl_contiguous(l); }
static bool fits(const cdl_layout *l, const cdl_layout *value) {
    return l->dtype == value->dtype && cdl_same_shape(l, value) && is_plain(l);
}

/* views: value, `states` states (the first may be absent where `optional`), grad, numbers. */
static cdl_status check(step *s, const cdl_view *v, int32_t n, int32_t states, bool optional, int64_t numbers) {
    if (n != states + 3) return CDL_EARGS;
    const cdl_layout *value = v[0].layout, *given = v[n - 1].layout;
    if (value->dtype != CDL_F32 && value->dtype != CDL_F64) return CDL_EDTYPE;
    if (given->dtype != CDL_F64) return CDL_EDTYPE;
    if (!is_plain(value) || given->rank != 1 || given->shape[0] != numbers || !cdl_contiguous(given))
        return CDL_ESHAPE;
    if (!v[n - 1].data) return CDL_EARGS;
    for (int32_t i = 1; i < n - 1; i++) {
        const bool absent = i == 1 && optional && !v[i].data && cdl_count(v[i].layout) == 0;
        if (!absent && !fits(v[i].layout, value)) return v[i].layout->dtype == value->dtype ? CDL_ESHAPE : CDL_EDTYPE;
        if (!absent && !v[i].data && cdl_count(value)) return CDL_EARGS;
    }
    if (!v[0].data && cdl_count(value)) return CDL_EARGS;
    s->dtype = value->dtype;
    s->value = v[0].data;
    for (int32_t i = 0; i < states; i++) s->state[i] = v[1 + i].data;
    s->grad = v[n - 2].data;
    for (int64_t i = 0; i < numbers; i++) {
        s->number[i] = ((const double *)v[n - 1].data)[i];
        s->rounded[i] = (float)s->number[i];
    }
    return CDL_OK;
}

/* Loads and stores of a vector of floats, of its rest, or of one double, for the formulas below. */
#define LOAD_V(p) v_load((const float *)(p) + i)
#define STORE_V(p, x) v_store((float *)(p) + i, x)
#define LOAD_N(p) v_load_n((const float *)(p) + i, end - i)
#define STORE_N(p, x) v_store_n((float *)(p) + i, x, end - i)
#define LOAD_D(p) ((const double *)(p))[i]
#define STORE_D(p, x) (((double *)(p))[i] = (x))

/* The formula for the elements [begin, end): whole vectors, then the rest. */
#define EACH_ELEMENT(FORMULA)                                                                      \
    int64_t i = begin;                                                                             \
    if (s->dtype == CDL_F64) {                                                                     \
        for (; i < end; i++) FORMULA(double, s->number, LOAD_D, STORE_D, sqrt)                     \
        return;                                                                                    \
    }                                                                                              \
    for (; i + CDL_LANES <= end; i += CDL_LANES) FORMULA(vf, s->rounded, LOAD_V, STORE_V, v_sqrt)  \
    if (i < end) FORMULA(vf, s->rounded, LOAD_N, STORE_N, v_sqrt)

/* d = grad + decay * value; m = momentum * m + share * d, or d at first; value -= rate * (m, or
 * d + momentum * m) */
#define SGD(T, number, LOAD, STORE, ROOT)                                                          \
    {                                                                                              \
        T value = LOAD(s->value), d = LOAD(s->grad);                                               \
        if (number[SGD_DECAY] != 0) d = d + value * number[SGD_DECAY];                             \
        if (s->state[0]) {                                                                         \
            T m = d;                                                                               \
            if (!s->first) m = LOAD(s->state[0]) * number[SGD_MOMENTUM] + d * number[SGD_SHARE];   \
            STORE(s->state[0], m);                                                                 \
            d = s->nesterov ? d + m * number[SGD_MOMENTUM] : m;                                    \
        }                                                                                          \
        STORE(s->value, value - d * number[SGD_RATE]);                                             \
    }
static void sgd_range(void *ctx, int64_t begin, int64_t end) {
    const step *s = ctx;
    EACH_ELEMENT(SGD)
}

/* value *= keep; d = grad + decay * value; mean = first * mean + (1 - first) * d; square so of d * d;
 * value -= mean / (sqrt(square) * root + epsilon) * rate */
#define ADAM(T, number, LOAD, STORE, ROOT)                                                         \
    {                                                                                              \
        T value = LOAD(s->value) * number[ADAM_KEEP], d = LOAD(s->grad);                           \
        if (number[ADAM_DECAY] != 0) d = d + value * number[ADAM_DECAY];                           \
        T mean = LOAD(s->state[0]) * number[ADAM_FIRST] + d * number[ADAM_FIRST_SHARE];            \
        T square = LOAD(s->state[1]) * number[ADAM_SECOND] + d * d * number[ADAM_SECOND_SHARE];    \
        STORE(s->state[0], mean);                                                                  \
        STORE(s->state[1], square);                                                                \
        T below = ROOT(square) * number[ADAM_ROOT] + number[ADAM_EPSILON];                         \
        STORE(s->value, value - mean / below * number[ADAM_RATE]);                                 \
    }
static void adam_range(void *ctx, int64_t begin, int64_t end) {
    const step *s = ctx;
    EACH_ELEMENT(ADAM)
}

CDL_KERNEL(sgd_step) {
    step s = {.first = p->i[0] != 0, .nesterov = p->i[1] != 0};
    cdl_status status = check(&s, v, n, 1, true, SGD_NUMBERS);
    if (status == CDL_OK) cdl_parallel_for(cdl_count(v[0].layout), CDL_GRAIN, sgd_range, &s);
    return status;
}

CDL_KERNEL(adam_step) {
    (void)p;
    step s = {0};
    cdl_status status = check(&s, v, n, 2, false, ADAM_NUMBERS);
    if (status == CDL_OK) cdl_parallel_for(cdl_count(v[0].layout), CDL_GRAIN, adam_range, &s);
    return status;
}
