/* math.h: functions over vf, built on the vocabulary alone. */
#ifndef CDL_SIMD_MATH_H
#define CDL_SIMD_MATH_H
#endif
