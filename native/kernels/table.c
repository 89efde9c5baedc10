/* table.c: compiled once per ISA; builds that ISA's constant table from ops.def. The references are
 * weak: a family left out of a build leaves null slots, and its operations answer CDL_EOP. */
#include "kernel.h"
#define CDL_STR2(x) #x
#define CDL_STR(x) CDL_STR2(x)
#include "../simd/simd.h"

#define CDL_UNARY(name, vf, d, i) __attribute__((weak)) CDL_KERNEL(name);
#define CDL_BINARY(name, vf, d, i) __attribute__((weak)) CDL_KERNEL(name);
#define CDL_COMPARE(name, op) __attribute__((weak)) CDL_KERNEL(name);
#define CDL_OP(name, writes, kept) __attribute__((weak)) CDL_KERNEL(name);
#include "ops.def"
#undef CDL_UNARY
#undef CDL_BINARY
#undef CDL_COMPARE
#undef CDL_OP

const cdl_table CDL_NAME(cdl_table) = {
    .isa = CDL_STR(CDL_ISA),
    .lanes = CDL_LANES,
    .op = {
#define CDL_UNARY(name, vf, d, i) [CDL_OP_##name] = CDL_NAME(cdl_##name),
#define CDL_BINARY(name, vf, d, i) [CDL_OP_##name] = CDL_NAME(cdl_##name),
#define CDL_COMPARE(name, op) [CDL_OP_##name] = CDL_NAME(cdl_##name),
#define CDL_OP(name, writes, kept) [CDL_OP_##name] = CDL_NAME(cdl_##name),
#include "ops.def"
#undef CDL_UNARY
#undef CDL_BINARY
#undef CDL_COMPARE
#undef CDL_OP
    },
};
