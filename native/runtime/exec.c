/* exec.c: opens a plan, fills its tables, runs its steps. It allocates nothing. */
#include "plan.h"

static uint64_t rounded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Where the parts of the tables lie. */
typedef struct parts {
    uint64_t op, layouts, views, params, bytes;
} parts;

static parts parts_of(const cdl_plan_header *h) {
    const bool copies = h->patches > 0;
    parts p = {.op = rounded(sizeof(cdl_plan_tables))};
    p.layouts = p.op + rounded(h->ops * sizeof(int32_t));
    p.views = p.layouts + (copies ? rounded(h->layouts * sizeof(cdl_layout)) : 0);
    p.params = p.views + (copies ? rounded(h->views * sizeof(cdl_plan_view)) : 0);
    p.bytes = p.params + (copies ? rounded(h->params * sizeof(cdl_params)) : 0);
    return p;
}

CDL_API int32_t cdl_plan_open(const void *bytes, uint64_t size, void *about) {
    cdl_plan plan;
    cdl_plan_info *info = about;
    *info = (cdl_plan_info){0};
    cdl_status status = cdl_plan_sections(&plan, bytes, size, info);
    if (status == CDL_OK) status = cdl_plan_entries(&plan, info);
    /* with symbols the same is checked for their values, by cdl_plan_bind */
    if (status == CDL_OK && plan.header->patches == 0) status = cdl_plan_steps(&plan, info);
    if (status != CDL_OK) return status;
    const cdl_plan_header *h = plan.header;
    info->tables = parts_of(h).bytes;
    info->arena = h->arena;
    info->symbols = (int32_t)h->symbols;
    info->buffers = (int32_t)h->buffers;
    info->steps = (int32_t)h->steps;
    return CDL_OK;
}

static bool times_power(int64_t *product, int64_t base, int32_t power) {
    for (int32_t i = 0; i < power; i++)
        if (!cdl_mul_ok(*product, base, product)) return false;
    return true;
}

static bool value_of(const cdl_plan *plan, const cdl_plan_patch *p, const int64_t *symbols, int64_t *sum) {
    *sum = 0;
    for (uint32_t t = p->term; t < p->term + p->terms; t++) {
        int64_t product = plan->terms[t].factor;
        for (uint32_t s = 0; s < plan->header->symbols; s++)
            if (!times_power(&product, symbols[s], plan->terms[t].power[s])) return false;
        if (!cdl_add_ok(*sum, product, sum)) return false;
    }
    return true;
}

/* Copies of what symbols change, with their values. */
static cdl_status patch(cdl_plan *plan, char *tables, const int64_t *symbols, cdl_plan_info *info) {
    const cdl_plan_header *h = plan->header;
    const parts at = parts_of(h);
    cdl_layout *layouts = (cdl_layout *)(tables + at.layouts);
    cdl_plan_view *views = (cdl_plan_view *)(tables + at.views);
    cdl_params *params = (cdl_params *)(tables + at.params);
    memcpy(layouts, plan->layouts, h->layouts * sizeof *layouts);
    memcpy(views, plan->views, h->views * sizeof *views);
    memcpy(params, plan->params, h->params * sizeof *params);
    plan->now_layouts = layouts;
    plan->now_views = views;
    plan->now_params = params;
    for (uint32_t i = 0; i < h->patches; i++) {
        const cdl_plan_patch *p = &plan->patches[i];
        int64_t value;
        if (!value_of(plan, p, symbols, &value)) return cdl_plan_broken(info, "a patch is counted in 64 bits", i);
        switch (p->target) {
        case CDL_OF_SHAPE: layouts[p->index].shape[p->field] = value; break;
        case CDL_OF_STRIDE: layouts[p->index].strides[p->field] = value; break;
        case CDL_OF_OFFSET: views[p->index].offset = value; break;
        default: params[p->index].i[p->field] = value;
        }
    }
    return cdl_plan_steps(plan, info);
}

static cdl_status fill(const void *bytes, void *memory, const int64_t *symbols, cdl_plan_info *info) {
    cdl_plan_tables *t = memory;
    cdl_status status = cdl_plan_sections(&t->plan, bytes, ((const cdl_plan_header *)bytes)->bytes, info);
    if (status != CDL_OK) return status;
    const cdl_plan_header *h = t->plan.header;
    t->op = (int32_t *)((char *)memory + parts_of(h).op);
    for (uint32_t i = 0; i < h->ops; i++) t->op[i] = cdl_plan_op_number(&t->plan.ops[i]);
    for (uint32_t i = 0; i < h->symbols; i++) {
        const bool fits = t->plan.symbols[i].least <= symbols[i] && symbols[i] <= t->plan.symbols[i].most;
        if (!fits) return cdl_plan_broken(info, "a size is within the bounds of its symbol", i);
    }
    return h->patches ? patch(&t->plan, memory, symbols, info) : CDL_OK;
}

CDL_API int32_t cdl_plan_bind(const void *bytes, void *memory, const int64_t *symbols, void *about) {
    cdl_plan_info *info = about;
    info->rule = NULL;
    const cdl_status status = fill(bytes, memory, symbols, info);
    if (status != CDL_OK) ((cdl_plan_tables *)memory)->plan.header = NULL; /* refused tables do not run */
    return status;
}

CDL_API int32_t cdl_plan_run(const void *bytes, void *memory, void *const *buffers, int32_t *failed) {
    const cdl_plan_tables *t = memory;
    const cdl_plan *plan = &t->plan;
    const cdl_table *isa = cdl_table_now();
    if ((const void *)plan->header != bytes) return CDL_EARGS; /* tables of another plan */
    for (uint32_t i = 0; i < plan->header->steps; i++) {
        const cdl_plan_step s = plan->steps[i];
        const cdl_plan_view *from = plan->now_views + s.view;
        cdl_view v[CDL_MOST_VIEWS];
        for (uint32_t k = 0; k < s.views; k++) {
            v[k].layout = &plan->now_layouts[from[k].layout];
            v[k].data = from[k].buffer == CDL_ABSENT ? NULL : (char *)buffers[from[k].buffer] + from[k].offset;
        }
        const cdl_status status = isa->op[t->op[s.op]](v, (int32_t)s.views, &plan->now_params[s.params]);
        if (status != CDL_OK) {
            *failed = (int32_t)i;
            return status;
        }
    }
    return CDL_OK;
}
