/* candle.h: the one public header of the kernel library.
 *
 * One entry does all the work: cdl_step(op, views, n, params). Eager mode makes one such call per
 * operation; a compiled plan is an array of them. Plain C11, fixed-width types, no macros in the
 * declared part, so that cffi reads this file as it is (preprocessed with -DCDL_CDEF).
 *
 * Conventions
 *   - Every function returns or is told everything; nothing aborts, prints or allocates in secret.
 *   - Views never own memory. Outputs come first, then inputs; outputs must not overlap inputs
 *     unless the operation's row in kernels/ops.def says so.
 *   - Strides count elements, may be zero or negative, and are ignored on axes of length 1.
 *   - Any thread may call. One call at a time uses the pool; a second caller runs on its own thread.
 */
#ifndef CANDLE_H
#define CANDLE_H

#ifndef CDL_CDEF
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#if defined(_WIN32)
#define CDL_API __declspec(dllexport)
#elif defined(__GNUC__)
#define CDL_API __attribute__((visibility("default")))
#else
#define CDL_API
#endif
#else
#define CDL_API
#endif

/* What a call answers. Zero is success; the text of each is cdl_status_text(). */
typedef enum cdl_status {
    CDL_OK = 0,
    CDL_EOP = 1,     /* no such operation, or not in this build's table */
    CDL_EARGS = 2,   /* wrong number of views, or a null where data is needed */
    CDL_EDTYPE = 3,  /* an element type this operation does not take */
    CDL_ESHAPE = 4,  /* sizes or strides that do not fit together */
    CDL_EPARAM = 5,  /* a parameter outside its range */
    CDL_ERANGE = 6,   /* an index outside its axis */
    CDL_ENOMEM = 7,   /* the allocator hook gave nothing */
    CDL_EDIVZERO = 8, /* integer division by zero */
    CDL_EPLAN = 9     /* a plan that breaks a rule of its format */
} cdl_status;

/* Element types. Block types hold rows of blocks: strides[0] counts elements, the last axis is
 * contiguous and a whole number of blocks. */
typedef enum cdl_dtype {
    CDL_F32 = 0,
    CDL_F64 = 1,
    CDL_F16 = 2,
    CDL_BF16 = 3,
    CDL_I64 = 4,
    CDL_I32 = 5,
    CDL_U32 = 6,
    CDL_U8 = 7,
    CDL_BOOL = 8,
    CDL_Q8_0 = 16,
    CDL_Q4_0 = 17,
    CDL_Q4_1 = 18,
    CDL_Q5_0 = 19,
    CDL_Q5_1 = 20,
    CDL_Q4_K = 21,
    CDL_Q5_K = 22,
    CDL_Q6_K = 23,
    CDL_F32X16 = 32 /* [ceil(rows/16)][k][16] f32, the last panel padded with zeros */
} cdl_dtype;

/* Shape and strides of a view; shared freely, never changed by the library. */
typedef struct cdl_layout {
    int32_t dtype;      /* cdl_dtype */
    int32_t rank;       /* 0 to 8 */
    int64_t shape[8];   /* elements per axis */
    int64_t strides[8]; /* elements between neighbours on each axis */
} cdl_layout;

/* A window on somebody's memory. `data` is the first element; NULL says "absent" where optional. */
typedef struct cdl_view {
    void *data;
    const cdl_layout *layout;
} cdl_view;

/* Parameters of one step; kernels/ops.def says what each operation reads. Unused ones are zero. */
typedef struct cdl_params {
    int64_t i[8];
    double f[2];
} cdl_params;

/* Activation applied by `linear` to its result. */
typedef enum cdl_activation {
    CDL_ACT_NONE = 0,
    CDL_ACT_RELU = 1,
    CDL_ACT_GELU = 2,      /* by erf */
    CDL_ACT_GELU_TANH = 3, /* by tanh */
    CDL_ACT_SILU = 4
} cdl_activation;

/* Run one operation. `views`: n cdl_view, outputs first. `params`: one cdl_params or NULL. */
CDL_API int32_t cdl_step(int32_t op, const void *views, int32_t n, const void *params);

enum { CDL_MAY = -1 };

/* Operations by number: 0 <= op < cdl_op_count(). The name is the row's name in ops.def. */
CDL_API int32_t cdl_op_count(void);
CDL_API const char *cdl_op_name(int32_t op);
/* How many views, the first ones, it writes; of these the first `cdl_op_keeps` are read as well. That
 * is CDL_MAY where the output may be exactly one of the inputs. */
CDL_API int32_t cdl_op_writes(int32_t op);
CDL_API int32_t cdl_op_keeps(int32_t op);

/* From now on calls of cdl_step on this thread are written to `tape` and answer CDL_OK without being
 * run; CDL_ENOMEM where they no longer fit. NULL ends it. One thread at a time: CDL_EARGS for others.
 * An entry: int32 op, int32 n, n times (void *data, cdl_layout), cdl_params. */
CDL_API int32_t cdl_record(void *tape, uint64_t bytes);
CDL_API uint64_t cdl_recorded(void); /* bytes written so far */

/* -- plans: an array of steps as bytes, docs/reference/plan-format.md ------------------------------- */

/* What a plan asks of its host, or the rule it breaks and where. */
typedef struct cdl_plan_info {
    uint64_t tables;  /* bytes of working memory, aligned to 64 */
    uint64_t arena;   /* bytes of the arena, aligned to 64 */
    int32_t symbols;  /* sizes that the host gives */
    int32_t buffers;  /* all of them; the host binds those that are not in the arena */
    int32_t steps;
    int32_t place;    /* of what breaks the rule: its number within its section */
    const char *rule; /* NULL where none is broken */
} cdl_plan_info;

/* Checks every rule of the format. `plan`: aligned to 8, constant as long as it is used. */
CDL_API int32_t cdl_plan_open(const void *plan, uint64_t bytes, void *info);
/* Fills `tables` for these values of the symbols: once for a plan that has none. Checks what depends
 * on them. `info` as above. */
CDL_API int32_t cdl_plan_bind(const void *plan, void *tables, const int64_t *symbols, void *info);
/* Runs all steps. `memory`: an address for each buffer, for those of the arena at their offsets in
 * it; each aligned to its elements and of the bytes that the plan tells, the written ones disjoint
 * from all others. `failed` is the step that answered other than CDL_OK. Allocates nothing. */
CDL_API int32_t cdl_plan_run(const void *plan, void *tables, void *const *memory, int32_t *failed);

CDL_API const char *cdl_status_text(int32_t status);
CDL_API const char *cdl_version(void);
CDL_API int32_t cdl_abi(void);

/* The instruction set in use, and all that this machine can run, separated by spaces. */
CDL_API const char *cdl_isa(void);
CDL_API const char *cdl_isa_list(void);
/* Choose by name ("scalar", "avx2", ...). CDL_EPARAM if this machine cannot run it. Not while
 * another thread is inside cdl_step. */
CDL_API int32_t cdl_isa_set(const char *name);
/* CPU features that matter here, separated by spaces ("avx2 fma f16c avx512f ..."). */
CDL_API const char *cdl_cpu_features(void);

/* Size of the thread pool, the calling thread included. 1 <= n <= 256. */
CDL_API int32_t cdl_threads(void);
CDL_API int32_t cdl_threads_set(int32_t n);

/* Memory aligned to 64 bytes; NULL if there is none. cdl_free(NULL) does nothing. */
CDL_API void *cdl_alloc(uint64_t bytes);
CDL_API void cdl_free(void *memory);

#ifndef CDL_CDEF
#ifdef __cplusplus
}
#endif
#endif
#endif
