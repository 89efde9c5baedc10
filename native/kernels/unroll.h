/* unroll.h: hints that register tiles need; each compiler spells them in its own way. */
#ifndef CDL_UNROLL_H
#define CDL_UNROLL_H

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)") /* unrolled, it spills */
#else
#define UNROLL _Pragma("GCC unroll 64")
#define ROLLED _Pragma("GCC unroll 1")
#endif
/* Keeps a pointer in a register of its own: compilers else derive all rows from one, a sum each. */
#define HIDE(p) __asm__("" : "+r"(p))
#define EACH /* row r < R and vector v < V of the tile */                                          \
    UNROLL                                                                                         \
    for (int r = 0; r < R; r++)                                                                    \
        UNROLL                                                                                     \
        for (int v = 0; v < V; v++)
#endif
