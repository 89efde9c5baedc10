/* record.c: steps written down instead of run, for whoever makes plans of them. */
#include "runtime.h"

const void *cdl_recorder;
_Thread_local char cdl_thread_mark;

static struct {
    char *at;
    uint64_t used, bytes;
} tape;

CDL_API int32_t cdl_record(void *memory, uint64_t bytes) {
    const void *nobody = NULL, *me = &cdl_thread_mark;
    if (!memory) {
        if (!cdl_recording()) return CDL_EARGS;
        __atomic_store_n(&cdl_recorder, NULL, __ATOMIC_RELEASE);
        return CDL_OK;
    }
    if (!__atomic_compare_exchange_n(&cdl_recorder, &nobody, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return CDL_EARGS;
    tape.at = memory;
    tape.used = 0;
    tape.bytes = bytes;
    return CDL_OK;
}

CDL_API uint64_t cdl_recorded(void) { return cdl_recording() ? tape.used : 0; }

static void put(const void *from, size_t bytes) {
    memcpy(tape.at + tape.used, from, bytes);
    tape.used += bytes;
}

cdl_status cdl_record_step(int32_t op, const cdl_view *v, int32_t n, const cdl_params *p) {
    const uint64_t need = 8 + (uint64_t)n * (sizeof v->data + sizeof *v->layout) + sizeof *p;
    if (need > tape.bytes - tape.used) return CDL_ENOMEM;
    put(&op, sizeof op);
    put(&n, sizeof n);
    for (int32_t i = 0; i < n; i++) {
        put(&v[i].data, sizeof v[i].data);
        put(v[i].layout, sizeof *v[i].layout);
    }
    put(p, sizeof *p);
    return CDL_OK;
}
