/* test_quant.c: every ISA of this build gives the bits of the scalar one, for all block formats, few
 * and many tokens, any bytes as weights. Needs nothing but the library, so that it runs under an
 * emulator too: tests/native/test_quant_targets.py builds it for other machines.
 */
#include "../include/candle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 2048 };

static uint64_t state = 1;
static uint32_t draw(void) { /* xorshift64* */
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (uint32_t)(state * 2685821657736338717u >> 32);
}

static int32_t operation(const char *name) {
    for (int32_t i = 0; i < cdl_op_count(); i++)
        if (!strcmp(cdl_op_name(i), name)) return i;
    return -1;
}

static cdl_layout matrix(int32_t dtype, int64_t rows, int64_t cols) {
    return (cdl_layout){.dtype = dtype, .rank = 2, .shape = {rows, cols}, .strides = {cols, 1}};
}

static int same(const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, 4) && !(a[i] != a[i] && b[i] != b[i])) return 0;
    return 1;
}

/* out [m,n] on the present ISA; `f32`: activations not quantised. */
static int linear(int32_t dtype, float *x, uint8_t *w, float *out, int64_t m, int64_t n, int64_t k, int f32) {
    cdl_layout lo = matrix(CDL_F32, m, n), lx = matrix(CDL_F32, m, k), lw = matrix(dtype, n, k);
    cdl_view v[3] = {{out, &lo}, {x, &lx}, {w, &lw}};
    cdl_params p = {.i = {0, f32}};
    memset(out, 255, (size_t)(m * n) * sizeof *out);
    return cdl_step(operation("linear"), v, 3, &p);
}

static int check(int32_t dtype, int64_t block, int64_t size, int64_t m, int64_t n, int64_t blocks) {
    static float x[64 * MOST], want[64 * 64], got[64 * 64];
    uint8_t *w = malloc((size_t)(n * blocks * size));
    int64_t k = blocks * block;
    if (!w) return 1;
    for (int64_t i = 0; i < n * blocks * size; i++) w[i] = (uint8_t)draw();
    for (int64_t i = 0; i < m * k; i++) x[i] = (float)(int32_t)draw() * 0x1p-30f;
    int bad = cdl_isa_set("scalar") || linear(dtype, x, w, want, m, n, k, 0);
    char list[96];
    snprintf(list, sizeof list, "%s", cdl_isa_list());
    for (char *isa = strtok(list, " "); isa; isa = strtok(NULL, " ")) {
        int failed = cdl_isa_set(isa) || linear(dtype, x, w, got, m, n, k, 0) || !same(got, want, m * n);
        for (int64_t t = 0; t < m && !failed; t++)
            failed = linear(dtype, x + t * k, w, got, 1, n, k, 0) || !same(got, want + t * n, n);
        if (failed) printf("dtype %d on %s: m %d n %d k %d\n", dtype, isa, (int)m, (int)n, (int)k);
        bad |= failed;
    }
    free(w);
    return bad;
}

int main(void) {
    static const int64_t formats[][3] = {
        {CDL_Q8_0, 32, 34}, {CDL_Q4_0, 32, 18}, {CDL_Q4_1, 32, 20}, {CDL_Q5_0, 32, 22},
        {CDL_Q5_1, 32, 24}, {CDL_Q4_K, 256, 144}, {CDL_Q5_K, 256, 176}, {CDL_Q6_K, 256, 210}};
    static const int64_t sizes[][3] = {{1, 1, 1}, {1, 16, 5}, {3, 17, 2}, {4, 33, 3}, {13, 40, 7}, {33, 15, 4}, {64, 64, 8}};
    int bad = 0;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            bad |= check((int32_t)formats[f][0], formats[f][1], formats[f][2], sizes[s][0], sizes[s][1], sizes[s][2]);
    printf("%s: %s\n", cdl_isa_list(), bad ? "FAILED" : "ok");
    return bad;
}
