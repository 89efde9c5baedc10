/* block_tile.h: the register tile of blocked convolutions: CDL_ROWS pixels by up to CDL_COLS blocks of 16
 * channels. Weights of a block follow each other by 16; those of the next block lie `w_block` further.
 */
#ifndef CDL_BLOCK_TILE_H
#define CDL_BLOCK_TILE_H
#include "block.h"

/* Vectors of weights held at once: on 32 registers two beside 28 sums, and the numbers anew for each. */
#if CDL_LANES == 16
enum { CDL_ROWS = 7, CDL_COLS = 4, CDL_HELD = 2 };
#elif CDL_LANES == 1
enum { CDL_ROWS = 1, CDL_COLS = 1, CDL_HELD = CDL_VB };
#else
enum { CDL_ROWS = 6, CDL_COLS = 1, CDL_HELD = CDL_VB };
#endif
#define CDL_FORGET __asm__ volatile("" ::: "memory") /* what was broadcast before: registers are few */

typedef vf cdl_block_sums[CDL_ROWS][CDL_COLS * CDL_VB];

#define CDL_EACH_SUM(r, v, N)                                                                      \
    UNROLL                                                                                         \
    for (int r = 0; r < CDL_ROWS; r++)                                                             \
        UNROLL                                                                                     \
        for (int v = 0; v < (N) * CDL_VB; v++)

CDL_INLINE void cdl_block_clear(cdl_block_sums acc, const int N) { CDL_EACH_SUM(r, v, N) acc[r][v] = v_zero(); }

/* Number i of each row by a row of weights of N blocks. */
CDL_INLINE void cdl_block_weigh(cdl_block_sums acc, const float *const *x, int64_t i, const float *w, int64_t w_block,
                                const int N) {
    UNROLL
    for (int u = 0; u < N * CDL_VB; u += CDL_HELD) {
        const int end = CDL_MIN(u + CDL_HELD, N * CDL_VB);
        vf y[CDL_HELD];
        CDL_FORGET;
        UNROLL
        for (int v = u; v < end; v++) y[v - u] = v_load(w + v / CDL_VB * w_block + v % CDL_VB * CDL_LANES);
        UNROLL
        for (int r = 0; r < CDL_ROWS; r++) {
            const vf s = v_set1(x[r][i]);
            UNROLL
            for (int v = u; v < end; v++) acc[r][v] = v_fma(s, y[v - u], acc[r][v]);
        }
    }
}

/* Rows of 16 CDL_COLS sums, of which the first 16 N are written. */
CDL_INLINE void cdl_block_store(cdl_block_sums acc, float *to, const int N) {
    CDL_EACH_SUM(r, v, N) v_store(to + (r * CDL_COLS * CDL_VB + v) * CDL_LANES, acc[r][v]);
}

/* A call for each count of blocks that a tile may have, each a constant. */
#if CDL_LANES == 16
#define CDL_BLOCK_CASES(n, CALL)                                                                   \
    do {                                                                                           \
        switch (n) {                                                                               \
            case 1: CALL(1); break;                                                                \
            case 2: CALL(2); break;                                                                \
            case 3: CALL(3); break;                                                                \
            default: CALL(4);                                                                      \
        }                                                                                          \
    } while (0)
#else
#define CDL_BLOCK_CASES(n, CALL) CALL(1)
#endif
#endif
