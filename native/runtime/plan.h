/* plan.h: a plan's bytes as they lie, little-endian, each section aligned to 8 and in this order:
 * header, ops, symbols, buffers, layouts, views, params, steps, patches, terms, text.
 * docs/reference/plan-format.md has the same with words. */
#ifndef CDL_PLAN_H
#define CDL_PLAN_H
#include "runtime.h"

#define CDL_PLAN_MAGIC "CDLPLAN"
enum { CDL_PLAN_VERSION = 1, CDL_PLAN_SYMBOLS = 8, CDL_PLAN_NAME = 32 };
enum { CDL_ABSENT = 0xffffffffu };

/* THE list of sections: member of the header that counts, type of one entry. */
#define CDL_PLAN_SECTIONS(X)                                                                       \
    X(ops, cdl_plan_op)                                                                            \
    X(symbols, cdl_plan_symbol)                                                                    \
    X(buffers, cdl_plan_buffer)                                                                    \
    X(layouts, cdl_layout)                                                                         \
    X(views, cdl_plan_view)                                                                        \
    X(params, cdl_params)                                                                          \
    X(steps, cdl_plan_step)                                                                        \
    X(patches, cdl_plan_patch)                                                                     \
    X(terms, cdl_plan_term)                                                                        \
    X(text, char)

typedef enum cdl_plan_kind { /* of a buffer */
    CDL_IN_ARENA = 0,
    CDL_CONSTANT = 1,
    CDL_INPUT = 2,
    CDL_OUTPUT = 3,
    CDL_STATE = 4, /* read and written, kept from run to run */
    CDL_KINDS
} cdl_plan_kind;

typedef enum cdl_plan_target { /* of a patch */
    CDL_OF_SHAPE = 0,
    CDL_OF_STRIDE = 1,
    CDL_OF_OFFSET = 2,
    CDL_OF_PARAM = 3,
    CDL_TARGETS
} cdl_plan_target;

typedef struct cdl_plan_op {
    char name[CDL_PLAN_NAME]; /* a row of ops.def, ended by a zero */
} cdl_plan_op;
typedef struct cdl_plan_symbol {
    int64_t least, most; /* 0 <= least <= most */
    uint32_t name, zero; /* place in the text */
} cdl_plan_symbol;
typedef struct cdl_plan_buffer {
    uint32_t kind, name;    /* name: place in the text */
    uint64_t bytes, offset; /* the most bytes; offset within the arena, or the file of constants */
} cdl_plan_buffer;
typedef struct cdl_plan_view {
    uint32_t buffer, layout; /* buffer CDL_ABSENT: none */
    int64_t offset;          /* bytes */
} cdl_plan_view;
typedef struct cdl_plan_step {
    uint32_t op, view, views, params; /* number of the op, its first view, how many, its params */
} cdl_plan_step;
/* One integer that depends on symbols: the sum of `terms` terms from `term` on. */
typedef struct cdl_plan_patch {
    uint32_t target, index, field, term, terms, zero;
} cdl_plan_patch;
typedef struct cdl_plan_term {
    int64_t factor;                  /* times each symbol to its power */
    uint8_t power[CDL_PLAN_SYMBOLS]; /* 0 to 8 */
} cdl_plan_term;

typedef struct cdl_plan_header {
    char magic[8];
    uint32_t version, header; /* bytes of the header */
    uint64_t bytes, arena;    /* of the plan, of the arena */
#define CDL_COUNT(name, type) uint32_t name;
    CDL_PLAN_SECTIONS(CDL_COUNT)
#undef CDL_COUNT
} cdl_plan_header;

/* The sections of a plan by name, and the tables for present values of its symbols. */
typedef struct cdl_plan {
    const cdl_plan_header *header;
#define CDL_SECTION(name, type) const type *name;
    CDL_PLAN_SECTIONS(CDL_SECTION)
#undef CDL_SECTION
    const cdl_layout *now_layouts; /* those of the plan where no symbol changes them */
    const cdl_plan_view *now_views;
    const cdl_params *now_params;
} cdl_plan;

/* The numbers of a plan's ops follow it, then copies of layouts, views and params if it has patches. */
typedef struct cdl_plan_tables {
    cdl_plan plan;
    int32_t *op; /* number in this library of each of the plan's ops */
} cdl_plan_tables;

/* A rule broken: says so in `info`. */
cdl_status cdl_plan_broken(cdl_plan_info *info, const char *rule, int64_t place);
/* verify.c: every rule, for present values. */
cdl_status cdl_plan_sections(cdl_plan *plan, const void *bytes, uint64_t size, cdl_plan_info *info);
cdl_status cdl_plan_entries(const cdl_plan *plan, cdl_plan_info *info);
cdl_status cdl_plan_steps(const cdl_plan *plan, cdl_plan_info *info);
int32_t cdl_plan_op_number(const cdl_plan_op *op);
#endif
