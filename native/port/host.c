/* host.c: the hooks on an operating system. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "port.h"
#include "../include/candle.h"
#include <stdlib.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif
#if defined(_WIN32)
#include <malloc.h>
#include <windows.h>
#else
#include <unistd.h>
#endif

enum { HUGE = 2 << 20 };

void *cdl_port_alloc(uint64_t bytes) {
    if (bytes > (uint64_t)INT64_MAX - 64) return NULL;
    uint64_t size = (CDL_MAX(bytes, 1) + 63) / 64 * 64;
#if defined(_WIN32)
    return _aligned_malloc((size_t)size, 64);
#else
    void *memory = NULL;
    uint64_t align = size >= 2 * (uint64_t)HUGE ? HUGE : 64;
    if (size > SIZE_MAX || posix_memalign(&memory, (size_t)align, (size_t)size) != 0) return NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (align == HUGE) madvise(memory, (size_t)size, MADV_HUGEPAGE); /* page faults are dear on VMs */
#endif
    return memory;
#endif
}

void cdl_port_free(void *memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

const char *cdl_port_getenv(const char *name) { return getenv(name); }

int32_t cdl_port_cpus(void) {
#if defined(_WIN32)
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int32_t)CDL_MAX(info.dwNumberOfProcessors, 1);
#else
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CDL_MAX(CPU_COUNT(&set), 1);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int32_t)n : 1;
#endif
}

CDL_API void *cdl_alloc(uint64_t bytes) { return cdl_port_alloc(bytes); }
CDL_API void cdl_free(void *memory) { cdl_port_free(memory); }
