/* verify.c: every rule of the plan format, checked before the first step; nothing is trusted. */
#include "plan.h"

#define REQUIRE(condition, rule, place)                                                            \
    do {                                                                                           \
        if (!(condition)) return cdl_plan_broken(info, rule, place);                               \
    } while (0)

cdl_status cdl_plan_broken(cdl_plan_info *info, const char *rule, int64_t place) {
    info->rule = rule;
    info->place = (int32_t)place;
    return CDL_EPLAN;
}

/* -- sections --------------------------------------------------------------------------------------- */

cdl_status cdl_plan_sections(cdl_plan *plan, const void *bytes, uint64_t size, cdl_plan_info *info) {
    const cdl_plan_header *h = bytes;
    REQUIRE(bytes && (uintptr_t)bytes % 8 == 0, "it lies at a multiple of 8", 0);
    REQUIRE(size >= sizeof *h, "it has a header", 0);
    REQUIRE(memcmp(h->magic, CDL_PLAN_MAGIC, sizeof h->magic) == 0, "it begins with CDLPLAN", 0);
    REQUIRE(h->version == CDL_PLAN_VERSION, "its version is one that this library reads", h->version);
    REQUIRE(h->header == sizeof *h && h->bytes == size, "header and file are of the sizes it tells", 0);
    plan->header = h;
    uint64_t at = sizeof *h;
#define CDL_PLACE(name, type)                                                                      \
    plan->name = (const type *)((const char *)bytes + CDL_MIN(at, size));                          \
    at += ((uint64_t)h->name * sizeof(type) + 7) / 8 * 8; /* counts have 32 bits: no overflow */   \
    REQUIRE(at <= size, "its sections fit into it", h->name);
    CDL_PLAN_SECTIONS(CDL_PLACE)
#undef CDL_PLACE
    REQUIRE(at == size, "nothing follows its sections", 0);
    plan->now_layouts = plan->layouts;
    plan->now_views = plan->views;
    plan->now_params = plan->params;
    return CDL_OK;
}

/* -- entries ---------------------------------------------------------------------------------------- */

int32_t cdl_plan_op_number(const cdl_plan_op *op) {
    for (int32_t i = 0; i < cdl_op_count(); i++)
        if (strncmp(op->name, cdl_op_name(i), sizeof op->name) == 0) return i;
    return -1;
}

/* A text that ends within the section. */
static bool text_ok(const cdl_plan *plan, uint32_t at) {
    return at < plan->header->text && memchr(plan->text + at, 0, plan->header->text - at);
}

static cdl_status check_ops(const cdl_plan *plan, cdl_plan_info *info) {
    for (uint32_t i = 0; i < plan->header->ops; i++) {
        const char *name = plan->ops[i].name;
        REQUIRE(memchr(name, 0, CDL_PLAN_NAME), "names of operations end within 32 bytes", i);
        const int32_t op = cdl_plan_op_number(&plan->ops[i]);
        REQUIRE(op >= 0 && cdl_table_now()->op[op], "this library has its operations", i);
    }
    return CDL_OK;
}

static cdl_status check_symbols(const cdl_plan *plan, cdl_plan_info *info) {
    REQUIRE(plan->header->symbols <= CDL_PLAN_SYMBOLS, "it has at most 8 symbols", plan->header->symbols);
    for (uint32_t i = 0; i < plan->header->symbols; i++) {
        const cdl_plan_symbol *s = &plan->symbols[i];
        REQUIRE(0 <= s->least && s->least <= s->most && !s->zero, "0 <= least <= most of a symbol", i);
        REQUIRE(text_ok(plan, s->name), "names lie within the text", i);
    }
    return CDL_OK;
}

static cdl_status check_buffers(const cdl_plan *plan, cdl_plan_info *info) {
    const uint64_t arena = plan->header->arena;
    REQUIRE(arena < 1ull << 62, "an arena has less than 2**62 bytes", 0);
    for (uint32_t i = 0; i < plan->header->buffers; i++) {
        const cdl_plan_buffer *b = &plan->buffers[i];
        REQUIRE(b->kind < CDL_KINDS, "a buffer is of a known kind", i);
        REQUIRE(b->bytes < 1ull << 62 && b->offset < 1ull << 62, "a buffer has less than 2**62 bytes", i);
        REQUIRE(text_ok(plan, b->name), "names lie within the text", i);
        REQUIRE(b->offset % 64 == 0, "a buffer lies at a multiple of 64", i);
        REQUIRE(b->kind != CDL_IN_ARENA || b->offset + b->bytes <= arena, "buffers lie within the arena", i);
    }
    return CDL_OK;
}

static cdl_status check_patches(const cdl_plan *plan, cdl_plan_info *info) {
    const cdl_plan_header *h = plan->header;
    const uint32_t entries[CDL_TARGETS] = {h->layouts, h->layouts, h->views, h->params};
    const uint32_t fields[CDL_TARGETS] = {8, 8, 1, 8};
    uint64_t terms = 0; /* no term is of two patches: binding takes time in proportion to the plan */
    for (uint32_t i = 0; i < h->patches; i++) {
        const cdl_plan_patch *p = &plan->patches[i];
        REQUIRE(p->target < CDL_TARGETS && p->index < entries[p->target] && p->field < fields[p->target] && !p->zero,
                "a patch changes something there is", i);
        REQUIRE((uint64_t)p->term + p->terms <= h->terms, "a patch has the terms it names", i);
        REQUIRE((terms += p->terms) <= h->terms, "patches have no more terms than there are", i);
    }
    for (uint32_t i = 0; i < h->terms; i++)
        for (uint32_t s = 0; s < CDL_PLAN_SYMBOLS; s++)
            REQUIRE(plan->terms[i].power[s] <= (s < h->symbols ? 8 : 0), "powers are of symbols, up to 8", i);
    return CDL_OK;
}

static cdl_status check_references(const cdl_plan *plan, cdl_plan_info *info) {
    const cdl_plan_header *h = plan->header;
    for (uint32_t i = 0; i < h->views; i++) {
        const cdl_plan_view *v = &plan->views[i];
        REQUIRE(v->layout < h->layouts, "a view has a layout", i);
        REQUIRE(v->buffer < h->buffers || v->buffer == CDL_ABSENT, "a view has a buffer, or none", i);
    }
    for (uint32_t i = 0; i < h->steps; i++) {
        const cdl_plan_step *s = &plan->steps[i];
        REQUIRE(s->op < h->ops && s->params < h->params, "a step has an operation and parameters", i);
        REQUIRE(s->views >= 1 && s->views <= CDL_MOST_VIEWS, "a step has 1 to 8 views", i);
        REQUIRE((uint64_t)s->view + s->views <= h->views, "a step has the views it names", i);
    }
    return CDL_OK;
}

cdl_status cdl_plan_entries(const cdl_plan *plan, cdl_plan_info *info) {
    cdl_status (*const checks[])(const cdl_plan *, cdl_plan_info *) = {
        check_ops, check_symbols, check_buffers, check_patches, check_references,
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const cdl_status status = checks[i](plan, info);
        if (status != CDL_OK) return status;
    }
    return CDL_OK;
}

/* -- steps: what depends on the present values of symbols ---------------------------------------------- */

/* Block rows lie without gaps, in whole blocks. */
static bool blocks_ok(const cdl_layout *l) {
    const int64_t block = cdl_dtype_block(l->dtype);
    if (block == 1 && l->dtype != CDL_F32X16) return true;
    if (l->rank < 1 || l->shape[l->rank - 1] % block || (l->dtype == CDL_F32X16 && l->rank != 2)) return false;
    int64_t stride = 1;
    for (int32_t a = l->rank - 1; a >= 0; a--) {
        if (l->shape[a] > 1 && l->strides[a] != stride) return false;
        if (!cdl_mul_ok(stride, l->shape[a], &stride)) return false;
    }
    return true;
}

/* First and end byte of a view's elements, from where its buffer begins. false: overflow. */
static bool extent(const cdl_plan_view *v, const cdl_layout *l, int64_t *first, int64_t *end) {
    int64_t low = 0, high = 0, reach;
    *first = *end = v->offset;
    for (int32_t a = 0; a < l->rank; a++)
        if (l->shape[a] == 0) return true;
    for (int32_t a = 0; a < l->rank; a++) {
        if (l->shape[a] == 1) continue;
        if (!cdl_mul_ok(l->shape[a] - 1, l->strides[a], &reach)) return false;
        if (!(reach < 0 ? cdl_add_ok(low, reach, &low) : cdl_add_ok(high, reach, &high))) return false;
    }
    const int64_t block = cdl_dtype_block(l->dtype), size = cdl_dtype_size(l->dtype);
    if (block > 1) high = (high + 1) / block - 1;
    if (l->dtype == CDL_F32X16) { /* whole panels, whatever its strides */
        if (!cdl_add_ok(l->shape[0], 15, &reach) || !cdl_mul_ok(reach / 16 * 16, l->shape[1], &high)) return false;
        high--;
    }
    return cdl_mul_ok(low, size, &low) && cdl_add_ok(v->offset, low, first) && cdl_add_ok(high, 1, &high) &&
           cdl_mul_ok(high, size, &high) && cdl_add_ok(v->offset, high, end);
}

static int64_t count_of(const cdl_layout *l) { /* no overflow: cdl_layout_ok */
    int64_t count = 1;
    for (int32_t a = 0; a < l->rank; a++) count *= l->shape[a];
    return count;
}

static cdl_status check_view(const cdl_plan *plan, uint32_t i, cdl_plan_info *info) {
    const cdl_plan_view *v = &plan->now_views[i];
    const cdl_layout *l = &plan->now_layouts[v->layout];
    if (v->buffer == CDL_ABSENT) return CDL_OK;
    const cdl_plan_buffer *b = &plan->buffers[v->buffer];
    const int64_t size = cdl_dtype_size(l->dtype), align = cdl_dtype_block(l->dtype) == 1 ? size : 4;
    int64_t first, end;
    REQUIRE(extent(v, l, &first, &end), "a view's sizes are counted in 64 bits", i);
    REQUIRE(first >= 0 && first <= end && (uint64_t)end <= b->bytes, "a view lies within its buffer", i);
    REQUIRE(v->offset % align == 0, "a view is aligned to its elements", i);
    REQUIRE(count_of(l) <= CDL_MAX(1ll << 31, (int64_t)b->bytes), "a view has no more elements than its buffer or 2**31", i);
    return CDL_OK;
}

static bool same_layout(const cdl_layout *a, const cdl_layout *b) {
    return a == b || memcmp(a, b, sizeof *a) == 0;
}

/* Whether two views of one step share bytes, by what the plan tells; `first` and `end` of each. */
static bool overlap(const cdl_plan *plan, const cdl_plan_view *a, const cdl_plan_view *b) {
    int64_t from[2], to[2];
    const cdl_plan_view *both[2] = {a, b};
    if (a->buffer == CDL_ABSENT || b->buffer == CDL_ABSENT) return false;
    const bool arena = plan->buffers[a->buffer].kind == CDL_IN_ARENA && plan->buffers[b->buffer].kind == CDL_IN_ARENA;
    if (!arena && a->buffer != b->buffer) return false;
    for (int32_t i = 0; i < 2; i++) {
        if (!extent(both[i], &plan->now_layouts[both[i]->layout], &from[i], &to[i])) return true;
        if (arena) from[i] += (int64_t)plan->buffers[both[i]->buffer].offset;
        if (arena) to[i] += (int64_t)plan->buffers[both[i]->buffer].offset;
    }
    return from[0] < to[1] && from[1] < to[0];
}

/* The very same elements: what an operation in place may have as its output. */
static bool same_view(const cdl_plan *plan, const cdl_plan_view *a, const cdl_plan_view *b) {
    const cdl_plan_buffer *x = &plan->buffers[a->buffer], *y = &plan->buffers[b->buffer];
    const uint64_t left = a->offset + (x->kind == CDL_IN_ARENA ? x->offset : 0);
    const uint64_t right = b->offset + (y->kind == CDL_IN_ARENA ? y->offset : 0);
    return left == right && same_layout(&plan->now_layouts[a->layout], &plan->now_layouts[b->layout]);
}

static uint64_t size_of(int64_t stride) { return stride < 0 ? -(uint64_t)stride : (uint64_t)stride; }

/* No element twice, so that threads that write do not meet: each axis steps over all that those of
 * lesser strides reach, as in every window of a row-major array. */
static bool distinct(const cdl_layout *l) {
    uint64_t reach = 0, last = 0; /* of the axes so far */
    for (int32_t done = 0; done < l->rank; done++) {
        int32_t next = -1;
        for (int32_t a = 0; a < l->rank; a++) {
            const uint64_t stride = size_of(l->strides[a]);
            if (l->shape[a] > 1 && stride > last && (next < 0 || stride < size_of(l->strides[next]))) next = a;
        }
        if (next < 0) break;
        last = size_of(l->strides[next]);
        if (last <= reach) return false;
        reach += (uint64_t)(l->shape[next] - 1) * last; /* within its buffer: no overflow */
    }
    for (int32_t a = 0; a < l->rank; a++) /* two axes of one stride, or one of none */
        for (int32_t b = 0; b <= a; b++) {
            const uint64_t stride = size_of(l->strides[a]), other = size_of(l->strides[b]);
            if (l->shape[a] > 1 && l->shape[b] > 1 && (a == b ? stride == 0 : stride == other)) return false;
        }
    return true;
}

static cdl_status check_step(const cdl_plan *plan, uint32_t i, cdl_plan_info *info) {
    const cdl_plan_step *s = &plan->steps[i];
    const cdl_plan_view *v = plan->now_views + s->view;
    const int32_t op = cdl_plan_op_number(&plan->ops[s->op]);
    const uint32_t writes = (uint32_t)cdl_op_writes(op);
    REQUIRE(writes <= s->views, "a step has all outputs of its operation", i);
    for (uint32_t k = 0; k < writes; k++) {
        if (v[k].buffer == CDL_ABSENT) continue;
        const uint32_t kind = plan->buffers[v[k].buffer].kind;
        REQUIRE(distinct(&plan->now_layouts[v[k].layout]), "a step writes each element once", i);
        REQUIRE(kind != CDL_CONSTANT && kind != CDL_INPUT, "constants and inputs are not written", i);
        for (uint32_t other = 0; other < s->views; other++) {
            if (other == k || !overlap(plan, &v[k], &v[other])) continue;
            const bool may = cdl_op_keeps(op) == CDL_MAY && other >= writes && same_view(plan, &v[k], &v[other]);
            REQUIRE(may, "what a step writes is apart from its other views", i);
        }
    }
    return CDL_OK;
}

cdl_status cdl_plan_steps(const cdl_plan *plan, cdl_plan_info *info) {
    const cdl_plan_header *h = plan->header;
    for (uint32_t i = 0; i < h->layouts; i++) {
        const cdl_layout *l = &plan->now_layouts[i];
        REQUIRE(cdl_layout_ok(l) && blocks_ok(l), "a layout is of a known dtype, up to 8 axes and 2**63 elements", i);
    }
    for (uint32_t i = 0; i < h->views; i++) {
        const cdl_status status = check_view(plan, i, info);
        if (status != CDL_OK) return status;
    }
    for (uint32_t i = 0; i < h->steps; i++) {
        const cdl_status status = check_step(plan, i, info);
        if (status != CDL_OK) return status;
    }
    return CDL_OK;
}
