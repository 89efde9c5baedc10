/* order.h: values as unsigned keys of the same order, and a stable sort of keys; for topk.c and sort.c.
 * NaN counts as the greatest, whatever its sign; -0 ties with 0. */
#ifndef CDL_ORDER_H
#define CDL_ORDER_H
#include "tile.h"

typedef struct cdl_pair {
    uint64_t key, index;
} cdl_pair;

CDL_INLINE uint64_t cdl_key_of_float(float x) {
    uint32_t u;
    if (x != x) return UINT32_MAX;
    x += 0.0f; /* -0 ties with 0 */
    memcpy(&u, &x, 4);
    return u >> 31 ? ~u : u | 0x80000000u;
}
CDL_INLINE uint64_t cdl_key_of_double(double x) {
    uint64_t u;
    if (x != x) return UINT64_MAX;
    x += 0.0;
    memcpy(&u, &x, 8);
    return u >> 63 ? ~u : u | (1ull << 63);
}
CDL_INLINE uint64_t cdl_key_at(cdl_kind kind, const void *row, int64_t i) {
    if (kind == CDL_KIND_F) return cdl_key_of_float(((const float *)row)[i]);
    if (kind == CDL_KIND_D) return cdl_key_of_double(((const double *)row)[i]);
    return (uint64_t)((const int64_t *)row)[i] ^ (1ull << 63);
}
/* Bytes of a key that tell values apart. */
CDL_INLINE int cdl_key_bytes(cdl_kind kind) { return kind == CDL_KIND_F ? 4 : 8; }

/* Few: each to its place among those before it. */
CDL_INLINE void cdl_insert_descending(cdl_pair *p, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        const cdl_pair moving = p[i];
        int64_t at = i;
        for (; at > 0 && p[at - 1].key < moving.key; at--) p[at] = p[at - 1];
        p[at] = moving;
    }
}

/* All n by descending key, equal keys as they came. `other` is as long; answers the one that holds the
 * result. A radix sort, byte by byte. */
CDL_INLINE cdl_pair *cdl_sort_descending(cdl_pair *from, cdl_pair *other, int64_t n, int bytes) {
    if (n <= 32) {
        cdl_insert_descending(from, n);
        return from;
    }
    int64_t count[8][256];
    memset(count, 0, (size_t)bytes * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        for (int byte = 0; byte < bytes; byte++) count[byte][(from[i].key >> (8 * byte)) & 255]++;
    for (int byte = 0; byte < bytes; byte++) {
        int64_t at = 0, *place = count[byte];
        if (place[(from[0].key >> (8 * byte)) & 255] == n) continue; /* all alike */
        for (int digit = 255; digit >= 0; digit--) {
            const int64_t here = place[digit];
            place[digit] = at;
            at += here;
        }
        for (int64_t i = 0; i < n; i++) other[place[(from[i].key >> (8 * byte)) & 255]++] = from[i];
        cdl_pair *swap = from;
        from = other;
        other = swap;
    }
    return from;
}

/* Bytes between neighbours on the last axis. */
CDL_INLINE int64_t cdl_last_step(const cdl_layout *l) {
    const int64_t size = cdl_dtype_size(l->dtype);
    return l->shape[l->rank - 1] == 1 ? size : l->strides[l->rank - 1] * size;
}
#endif
