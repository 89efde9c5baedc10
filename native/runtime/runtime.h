/* runtime.h: what the files of runtime/ share. */
#ifndef CDL_RUNTIME_H
#define CDL_RUNTIME_H
#include "../kernels/kernel.h"

/* ISAs of this build, weakest first; the suffixes of files, names and CDL_ISA alike. */
#if defined(__x86_64__) || defined(_M_X64)
#define CDL_ISAS(X) X(scalar) X(avx2) X(avx512vnni)
#elif defined(__aarch64__)
#define CDL_ISAS(X) X(scalar) X(neon)
#else
#define CDL_ISAS(X) X(scalar)
#endif

/* Feature bits that cpu.c reads by hand (CPUID with XGETBV, or the hardware capabilities). */
enum {
    CDL_CPU_AVX2 = 1 << 0,       /* avx2 fma f16c bmi2, registers enabled by the system */
    CDL_CPU_AVX512 = 1 << 1,     /* avx512 f bw dq vl cd, registers enabled */
    CDL_CPU_AVX512VNNI = 1 << 2,
    CDL_CPU_NEON = 1 << 3
};
uint32_t cdl_cpu_bits(void);

/* The table in use; chosen once, at the first call. */
const cdl_table *cdl_table_now(void);

enum { CDL_MOST_VIEWS = 8 };
bool cdl_layout_ok(const cdl_layout *l);

/* record.c: whether this thread's steps go to a tape, and the writing of one. */
extern const void *cdl_recorder; /* the thread that records, by its mark; atomic */
extern _Thread_local char cdl_thread_mark;
CDL_INLINE bool cdl_recording(void) {
    const void *by = __atomic_load_n(&cdl_recorder, __ATOMIC_RELAXED);
    return by && by == &cdl_thread_mark;
}
cdl_status cdl_record_step(int32_t op, const cdl_view *v, int32_t n, const cdl_params *p);
#endif
