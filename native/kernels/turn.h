/* turn.h: the transpose of a square of CDL_LANES vectors, in registers. */
#ifndef CDL_TURN_H
#define CDL_TURN_H
#include "../simd/simd.h"

#if CDL_LANES == 16
#define CDL_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define CDL_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif CDL_LANES == 8
#define CDL_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define CDL_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif CDL_LANES == 4
#define CDL_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define CDL_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define CDL_ZIP_LOW(a, b) (a)
#define CDL_ZIP_HIGH(a, b) (b)
#endif

/* Zipping the halves as often as halving leads to one lane turns rows into columns. */
CDL_INLINE void cdl_turn(vf x[CDL_LANES]) {
    vf y[CDL_LANES];
#pragma clang loop unroll(full)
    for (int half = CDL_LANES / 2; half > 0; half /= 2) {
#pragma clang loop unroll(full)
        for (int i = 0; i < CDL_LANES / 2; i++) {
            y[2 * i] = CDL_ZIP_LOW(x[i], x[i + CDL_LANES / 2]);
            y[2 * i + 1] = CDL_ZIP_HIGH(x[i], x[i + CDL_LANES / 2]);
        }
#pragma clang loop unroll(full)
        for (int i = 0; i < CDL_LANES; i++) x[i] = y[i];
    }
}
#endif
