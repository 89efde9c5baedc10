/* dispatch.c: picks the ISA's table once, and is the one entry: cdl_step. */
#include "runtime.h"
#include "../port/port.h"

#define CDL_DECLARE(isa) extern const cdl_table cdl_table_##isa;
CDL_ISAS(CDL_DECLARE)

/* Weakest first; `need` are the bits that must all be there. */
static const struct {
    const cdl_table *table;
    uint32_t need;
} tables[] = {
#define CDL_NEED_scalar 0
#define CDL_NEED_avx2 CDL_CPU_AVX2
#define CDL_NEED_avx512vnni CDL_CPU_AVX512VNNI
#define CDL_NEED_neon CDL_CPU_NEON
#define CDL_ROW(isa) {&cdl_table_##isa, CDL_NEED_##isa},
    CDL_ISAS(CDL_ROW)
};
enum { TABLES = sizeof tables / sizeof *tables };

static const cdl_table *current; /* written with the same value by whoever comes first */

static bool runs_here(int i) { return (cdl_cpu_bits() & tables[i].need) == tables[i].need; }

static const cdl_table *best(void) {
    int i = TABLES - 1;
    while (i > 0 && !runs_here(i)) i--;
    return tables[i].table;
}

const cdl_table *cdl_table_now(void) {
    const cdl_table *t = __atomic_load_n(&current, __ATOMIC_RELAXED);
    if (t) return t;
    cdl_isa_set(cdl_port_getenv("CANDLE_ISA"));
    t = __atomic_load_n(&current, __ATOMIC_RELAXED);
    if (!t) __atomic_store_n(&current, t = best(), __ATOMIC_RELAXED);
    return t;
}

CDL_API int32_t cdl_isa_set(const char *name) {
    for (int i = 0; name && i < TABLES; i++) {
        if (strcmp(name, tables[i].table->isa) != 0) continue;
        if (!runs_here(i)) return CDL_EPARAM;
        __atomic_store_n(&current, tables[i].table, __ATOMIC_RELAXED);
        return CDL_OK;
    }
    return CDL_EPARAM;
}

CDL_API const char *cdl_isa(void) { return cdl_table_now()->isa; }

CDL_API const char *cdl_isa_list(void) {
    static char text[96]; /* the same bytes from every thread */
    size_t at = 0;
    for (int i = 0; i < TABLES; i++) {
        if (!runs_here(i)) continue;
        size_t len = strlen(tables[i].table->isa);
        if (at) text[at++] = ' ';
        memcpy(text + at, tables[i].table->isa, len);
        at += len;
    }
    return text;
}

bool cdl_layout_ok(const cdl_layout *l) {
    if (!l || l->rank < 0 || l->rank > 8 || !cdl_dtype_size(l->dtype)) return false;
    int64_t count = 1;
    for (int32_t i = 0; i < l->rank; i++)
        if (l->shape[i] < 0 || !cdl_mul_ok(count, l->shape[i] ? l->shape[i] : 1, &count)) return false;
    return true;
}

CDL_API int32_t cdl_step(int32_t op, const void *views, int32_t n, const void *params) {
    static const cdl_params none;
    if (op < 0 || op >= CDL_OP_COUNT) return CDL_EOP;
    if (n < 1 || n > CDL_MOST_VIEWS || !views) return CDL_EARGS;
    const cdl_view *v = views;
    for (int32_t i = 0; i < n; i++)
        if (!cdl_layout_ok(v[i].layout)) return CDL_ESHAPE;
    if (cdl_recording()) return cdl_record_step(op, v, n, params ? params : &none);
    cdl_kernel kernel = cdl_table_now()->op[op];
    if (!kernel) return CDL_EOP;
    return kernel(v, n, params ? params : &none);
}

static const char *const names[] = {
#define CDL_UNARY(name, vf, d, i) #name,
#define CDL_BINARY(name, vf, d, i) #name,
#define CDL_COMPARE(name, op) #name,
#define CDL_OP(name, writes, kept) #name,
#include "../kernels/ops.def"
};

static const struct {
    int8_t writes, keeps;
} effects[] = {
#undef CDL_UNARY
#undef CDL_BINARY
#undef CDL_COMPARE
#undef CDL_OP
#define CDL_UNARY(name, vf, d, i) {1, CDL_MAY},
#define CDL_BINARY(name, vf, d, i) {1, CDL_MAY},
#define CDL_COMPARE(name, op) {1, 0},
#define CDL_OP(name, writes, keeps) {writes, keeps},
#include "../kernels/ops.def"
};

static bool known(int32_t op) { return op >= 0 && op < CDL_OP_COUNT; }
CDL_API int32_t cdl_op_writes(int32_t op) { return known(op) ? effects[op].writes : 0; }
CDL_API int32_t cdl_op_keeps(int32_t op) { return known(op) ? effects[op].keeps : 0; }

CDL_API int32_t cdl_op_count(void) { return CDL_OP_COUNT; }
CDL_API const char *cdl_op_name(int32_t op) { return known(op) ? names[op] : ""; }
CDL_API const char *cdl_version(void) { return CDL_VERSION; }
CDL_API int32_t cdl_abi(void) { return 1; }

CDL_API const char *cdl_status_text(int32_t status) {
    static const char *const text[] = {
        [CDL_OK] = "ok",
        [CDL_EOP] = "no such operation in this build",
        [CDL_EARGS] = "wrong number of views, or a null one",
        [CDL_EDTYPE] = "an element type this operation does not take",
        [CDL_ESHAPE] = "sizes that do not fit together",
        [CDL_EPARAM] = "a parameter outside its range",
        [CDL_ERANGE] = "an index outside its axis",
        [CDL_ENOMEM] = "out of memory",
        [CDL_EDIVZERO] = "integer division by zero",
        [CDL_EPLAN] = "a plan that breaks a rule of its format",
    };
    return status >= 0 && status < (int32_t)(sizeof text / sizeof *text) ? text[status] : "unknown status";
}
