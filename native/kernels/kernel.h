/* kernel.h: what every kernel file sees. One family a file; each file is compiled once per ISA with
 * -DCDL_ISA=<name> and includes simd/<name>.h through this header.
 *
 * Name grammar: cdl_<op>_<isa>, one function per row of ops.def, all of type cdl_kernel.
 */
#ifndef CDL_KERNEL_H
#define CDL_KERNEL_H

#include "../base/base.h"
#include "../include/candle.h"

/* enum cdl_op: CDL_OP_<name> */
typedef enum cdl_op {
#define CDL_UNARY(name, vf, d, i) CDL_OP_##name,
#define CDL_BINARY(name, vf, d, i) CDL_OP_##name,
#define CDL_COMPARE(name, op) CDL_OP_##name,
#define CDL_OP(name, writes, kept) CDL_OP_##name,
#include "ops.def"
#undef CDL_UNARY
#undef CDL_BINARY
#undef CDL_COMPARE
#undef CDL_OP
    CDL_OP_COUNT
} cdl_op;

/* One kernel: n views (outputs first), parameters never NULL. Checks what memory safety needs:
 * count of views, dtypes, ranks and sizes; the caller has checked the rest. */
typedef cdl_status (*cdl_kernel)(const cdl_view *v, int32_t n, const cdl_params *p);

/* Notes in a job that its threads share that one of them failed. */
CDL_INLINE void cdl_fail(int32_t *status, int32_t why) { __atomic_store_n(status, why, __ATOMIC_RELAXED); }

/* Tasks [begin, end) of a job, up to the first that fails: the body of a cdl_parallel_for. */
CDL_INLINE void cdl_each_task(void *job, int32_t *status, cdl_status (*task)(void *job, int64_t index), int64_t begin,
                              int64_t end) {
    for (int64_t i = begin; i < end; i++) {
        cdl_status s = task(job, i);
        if (s != CDL_OK) {
            cdl_fail(status, s);
            return;
        }
    }
}

/* The kernels of one ISA. Constant; a null slot means "not supported" (CDL_EOP). */
typedef struct cdl_table {
    const char *isa;
    int32_t lanes; /* f32 lanes of a vector register */
    cdl_kernel op[CDL_OP_COUNT];
} cdl_table;

/* Suffix: CDL_NAME(cdl_exp) is cdl_exp_avx2 when compiled with -DCDL_ISA=avx2. */
#define CDL_JOIN2(a, b) a##_##b
#define CDL_JOIN(a, b) CDL_JOIN2(a, b)
#ifdef CDL_ISA
#define CDL_NAME(base) CDL_JOIN(base, CDL_ISA)
#define CDL_KERNEL(name) cdl_status CDL_NAME(cdl_##name)(const cdl_view *v, int32_t n, const cdl_params *p)
#endif

/* Threads (runtime/threads.c): calls fn on [begin, end) pieces that cover [0, range), each a multiple
 * of grain but the last. Runs inline when range <= grain or the pool is busy. Which thread runs which
 * piece is not fixed, so fn must not let the result depend on the cut. */
typedef void (*cdl_range_fn)(void *ctx, int64_t begin, int64_t end);
void cdl_parallel_for(int64_t range, int64_t grain, cdl_range_fn fn, void *ctx);

/* Scratch of the calling thread: `slot` 0 to 3, at least `bytes`, aligned to 64, kept between calls.
 * NULL when the allocator hook gives nothing. Valid until the same slot is asked for again. */
void *cdl_scratch(int32_t slot, uint64_t bytes);

#endif
