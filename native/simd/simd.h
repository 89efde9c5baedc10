/* simd.h: one vocabulary over float vectors; includes the header of the ISA being compiled. */
#ifndef CDL_SIMD_H
#define CDL_SIMD_H
#define CDL_ISA_scalar 1
#define CDL_ISA_avx2 2
#define CDL_ISA_avx512vnni 3
#define CDL_ISA_neon 4
#define CDL_ISA_CAT2(x) CDL_ISA_##x
#define CDL_ISA_CAT(x) CDL_ISA_CAT2(x)
#define CDL_ISA_NUMBER CDL_ISA_CAT(CDL_ISA)
#if CDL_ISA_NUMBER == CDL_ISA_scalar
#include "scalar.h"
#elif CDL_ISA_NUMBER == CDL_ISA_avx2
#include "avx2.h"
#elif CDL_ISA_NUMBER == CDL_ISA_avx512vnni
#include "avx512vnni.h"
#elif CDL_ISA_NUMBER == CDL_ISA_neon
#include "neon.h"
#else
#error "unknown CDL_ISA"
#endif
#include "math.h"
#endif
