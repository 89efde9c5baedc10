/* cpu.c: what this processor can run. Read by hand: __builtin_cpu_supports answers 0 under zig cc. */
#include "runtime.h"

#if defined(__x86_64__) || defined(_M_X64)
static void cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4]) {
    __asm__ volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(sub));
}

/* Which register states the operating system saves (XCR0); 0 without XSAVE. */
static uint64_t saved_states(uint32_t ecx1) {
    if (!(ecx1 >> 27 & 1)) return 0;
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

uint32_t cdl_cpu_bits(void) {
    uint32_t r0[4], r1[4], r7[4] = {0, 0, 0, 0};
    cpuid(0, 0, r0);
    cpuid(1, 0, r1);
    if (r0[0] >= 7) cpuid(7, 0, r7);
    uint64_t states = saved_states(r1[2]);
    bool ymm = (states & 0x6) == 0x6, zmm = (states & 0xe6) == 0xe6;
    uint32_t fma_f16c = 1u << 12 | 1u << 29, avx2_bmi2 = 1u << 5 | 1u << 8 | 1u << 3;
    uint32_t f_dq_cd_bw_vl = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31, bits = 0;
    if (ymm && (r1[2] & fma_f16c) == fma_f16c && (r7[1] & avx2_bmi2) == avx2_bmi2) bits |= CDL_CPU_AVX2;
    if (bits && zmm && (r7[1] & f_dq_cd_bw_vl) == f_dq_cd_bw_vl) bits |= CDL_CPU_AVX512;
    if ((bits & CDL_CPU_AVX512) && (r7[2] >> 11 & 1)) bits |= CDL_CPU_AVX512VNNI;
    return bits;
}
#elif defined(__aarch64__)
uint32_t cdl_cpu_bits(void) { return CDL_CPU_NEON; /* part of the base architecture */ }
#else
uint32_t cdl_cpu_bits(void) { return 0; }
#endif

static const struct {
    uint32_t bit;
    const char *name;
} features[] = {
    {CDL_CPU_AVX2, "avx2"}, {CDL_CPU_AVX512, "avx512"}, {CDL_CPU_AVX512VNNI, "avx512vnni"}, {CDL_CPU_NEON, "neon"},
};

CDL_API const char *cdl_cpu_features(void) {
    static char text[64]; /* the same bytes from every thread: a race writes what is there already */
    uint32_t bits = cdl_cpu_bits();
    size_t at = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        if (!(bits & features[i].bit)) continue;
        size_t len = strlen(features[i].name);
        if (at) text[at++] = ' ';
        memcpy(text + at, features[i].name, len);
        at += len;
    }
    return text;
}
