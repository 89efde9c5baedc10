/* cast.c: tiles of every dtype to and from the three kinds, and between kinds. One table on all
 * machines: float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low
 * bits; to bool is x != 0; to f32 f16 bf16 rounds once, to nearest even. */
#include "tile.h"

/* -- load ----------------------------------------------------------------------------------------- */
#define LOADER(name, from, to, expr)                                                               \
    static void name(const char *p, int64_t step, int64_t n, to *out) {                            \
        if (step == (int64_t)sizeof(from)) {                                                       \
            const from *q = (const from *)p;                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                from x = q[i];                                                                     \
                out[i] = expr;                                                                     \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from x = *(const from *)(p + i * step);                                                \
            out[i] = expr;                                                                         \
        }                                                                                          \
    }
LOADER(load_f32, float, float, x)
LOADER(load_f64, double, double, x)
LOADER(load_i64, int64_t, int64_t, x)
LOADER(load_i32, int32_t, int64_t, x)
LOADER(load_u32, uint32_t, int64_t, x)
LOADER(load_u8, uint8_t, int64_t, x)
LOADER(load_bool, uint8_t, int64_t, x != 0)
LOADER(load_half, uint16_t, uint16_t, x)

#define HALF_LOADER(kind)                                                                          \
    static void load_##kind(const char *p, int64_t step, int64_t n, float *out) {                  \
        uint16_t packed[CDL_TILE];                                                                 \
        const uint16_t *q = (const uint16_t *)p;                                                   \
        if (step != 2) {                                                                           \
            load_half(p, step, n, packed);                                                         \
            q = packed;                                                                            \
        }                                                                                          \
        int64_t i = 0;                                                                             \
        for (; i + CDL_LANES <= n; i += CDL_LANES) v_store(out + i, v_load_##kind(q + i));         \
        if (i < n) v_store_n(out + i, v_load_##kind##_n(q + i, n - i), n - i);                     \
    }
HALF_LOADER(f16)
HALF_LOADER(bf16)

static void broadcast(cdl_kind kind, int64_t n, void *buffer) {
    if (kind == CDL_KIND_F)
        for (int64_t i = 1; i < n; i++) ((float *)buffer)[i] = *(float *)buffer;
    else /* doubles and int64 alike: eight bytes */
        for (int64_t i = 1; i < n; i++) ((int64_t *)buffer)[i] = *(int64_t *)buffer;
}

const void *CDL_NAME(cdl_tile_load)(int32_t dtype, const char *p, int64_t step, int64_t n, void *buffer) {
    if (cdl_tile_out(dtype, (char *)(uintptr_t)p, step, buffer) == p) return p;
    int64_t read = step ? n : 1;
    switch (dtype) {
    case CDL_F32: load_f32(p, step, read, buffer); break;
    case CDL_F64: load_f64(p, step, read, buffer); break;
    case CDL_F16: load_f16(p, step, read, buffer); break;
    case CDL_BF16: load_bf16(p, step, read, buffer); break;
    case CDL_I64: load_i64(p, step, read, buffer); break;
    case CDL_I32: load_i32(p, step, read, buffer); break;
    case CDL_U32: load_u32(p, step, read, buffer); break;
    case CDL_U8: load_u8(p, step, read, buffer); break;
    default: load_bool(p, step, read, buffer); break;
    }
    if (!step) broadcast(cdl_kind_of(dtype), n, buffer);
    return buffer;
}

/* -- store ---------------------------------------------------------------------------------------- */
#define STORER(name, from, to, expr)                                                               \
    static void name(char *p, int64_t step, int64_t n, const from *in) {                           \
        if (step == (int64_t)sizeof(to)) {                                                         \
            to *q = (to *)p;                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                from x = in[i];                                                                    \
                q[i] = expr;                                                                       \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                          \
            from x = in[i];                                                                        \
            *(to *)(p + i * step) = expr;                                                          \
        }                                                                                          \
    }
STORER(store_f32, float, float, x)
STORER(store_f64, double, double, x)
STORER(store_i64, int64_t, int64_t, x)
STORER(store_i32, int64_t, int32_t, (int32_t)(uint32_t)(uint64_t)x)
STORER(store_u32, int64_t, uint32_t, (uint32_t)(uint64_t)x)
STORER(store_u8, int64_t, uint8_t, (uint8_t)(uint64_t)x)
STORER(store_bool, int64_t, uint8_t, x != 0)
STORER(store_half, uint16_t, uint16_t, x)

#define HALF_STORER(kind)                                                                          \
    static void store_##kind(char *p, int64_t step, int64_t n, const float *in) {                  \
        uint16_t packed[CDL_TILE], *q = step == 2 ? (uint16_t *)p : packed;                        \
        int64_t i = 0;                                                                             \
        for (; i + CDL_LANES <= n; i += CDL_LANES) v_store_##kind(q + i, v_load(in + i));          \
        if (i < n) v_store_##kind##_n(q + i, v_load_n(in + i, n - i), n - i);                      \
        if (step != 2) store_half(p, step, n, packed);                                             \
    }
HALF_STORER(f16)
HALF_STORER(bf16)

void CDL_NAME(cdl_tile_store)(int32_t dtype, char *p, int64_t step, int64_t n, const void *tile) {
    switch (dtype) {
    case CDL_F32: store_f32(p, step, n, tile); break;
    case CDL_F64: store_f64(p, step, n, tile); break;
    case CDL_F16: store_f16(p, step, n, tile); break;
    case CDL_BF16: store_bf16(p, step, n, tile); break;
    case CDL_I64: store_i64(p, step, n, tile); break;
    case CDL_I32: store_i32(p, step, n, tile); break;
    case CDL_U32: store_u32(p, step, n, tile); break;
    case CDL_U8: store_u8(p, step, n, tile); break;
    default: store_bool(p, step, n, tile); break;
    }
}

/* -- rows ----------------------------------------------------------------------------------------- */
const void *CDL_NAME(cdl_row_load)(int32_t dtype, const char *p, int64_t step, int64_t n, void *buffer) {
    if (cdl_tile_out(dtype, (char *)(uintptr_t)p, step, NULL) == p) return p;
    const int64_t size = cdl_kind_size(cdl_kind_of(dtype));
    for (int64_t at = 0; at < n; at += CDL_TILE)
        CDL_NAME(cdl_tile_load)(dtype, p + at * step, step, CDL_MIN(CDL_TILE, n - at), (char *)buffer + at * size);
    return buffer;
}
void CDL_NAME(cdl_row_store)(int32_t dtype, char *p, int64_t step, int64_t n, const void *row) {
    if (row == p) return;
    const int64_t size = cdl_kind_size(cdl_kind_of(dtype));
    for (int64_t at = 0; at < n; at += CDL_TILE)
        CDL_NAME(cdl_tile_store)(dtype, p + at * step, step, CDL_MIN(CDL_TILE, n - at), (const char *)row + at * size);
}

/* -- between kinds -------------------------------------------------------------------------------- */
/* Rounding to odd: the f32 nearer to zero, its last bit set if anything was lost. Rounding that to
 * f16 or bf16 gives what one rounding from the start would give. */
static float f64_to_f32_odd(double x) {
    float f = (float)x;
    if ((double)f == x || x != x) return f;
    uint32_t u;
    memcpy(&u, &f, 4);
    double magnitude = x < 0 ? -x : x, rounded = f < 0 ? -(double)f : (double)f;
    if (rounded > magnitude) u--;
    u |= 1;
    memcpy(&f, &u, 4);
    return f;
}
static float i64_to_f32_odd(int64_t x) {
    uint64_t magnitude = x < 0 ? 0u - (uint64_t)x : (uint64_t)x, lost = 0;
    float scale = 1.0f;
    while (magnitude >> 24) {
        lost |= magnitude & 1;
        magnitude >>= 1;
        scale *= 2.0f;
    }
    float f = (float)(magnitude | lost) * scale;
    return x < 0 ? -f : f;
}

static void int_range(int32_t dtype, int64_t *low, int64_t *high) {
    *low = dtype == CDL_I64 ? INT64_MIN : dtype == CDL_I32 ? INT32_MIN : 0;
    *high = dtype == CDL_I64 ? INT64_MAX : dtype == CDL_I32 ? INT32_MAX : dtype == CDL_U32 ? UINT32_MAX : 255;
}
static int64_t saturate(double x, int64_t low, int64_t high) {
    if (x != x) return 0;
    if (x >= 0x1p63) return high;
    if (x < -0x1p63) return low;
    int64_t i = (int64_t)x;
    return i < low ? low : i > high ? high : i;
}

#define TO_INT(from)                                                                               \
    static void from##_to_int(const from *in, int32_t dtype, int64_t n, int64_t *out) {            \
        int64_t low, high;                                                                         \
        int_range(dtype, &low, &high);                                                             \
        if (dtype == CDL_BOOL)                                                                     \
            for (int64_t i = 0; i < n; i++) out[i] = in[i] != 0;                                   \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) out[i] = saturate((double)in[i], low, high);           \
    }
TO_INT(float)
TO_INT(double)

static void to_f32(cdl_kind from, const void *tile, int32_t dtype, int64_t n, float *out) {
    const double *d = tile;
    const int64_t *l = tile;
    if (from == CDL_KIND_D) {
        if (dtype == CDL_F32)
            for (int64_t i = 0; i < n; i++) out[i] = (float)d[i];
        else
            for (int64_t i = 0; i < n; i++) out[i] = f64_to_f32_odd(d[i]);
    } else if (dtype == CDL_BF16) {
        for (int64_t i = 0; i < n; i++) out[i] = i64_to_f32_odd(l[i]);
    } else { /* f16: what f32 would round is past f16's range */
        for (int64_t i = 0; i < n; i++) out[i] = (float)l[i];
    }
}
static void to_f64(cdl_kind from, const void *tile, int64_t n, double *out) {
    if (from == CDL_KIND_F)
        for (int64_t i = 0; i < n; i++) out[i] = (double)((const float *)tile)[i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = (double)((const int64_t *)tile)[i];
}

const void *CDL_NAME(cdl_tile_cast)(cdl_kind from, const void *tile, int32_t dtype, int64_t n, void *buffer) {
    cdl_kind to = cdl_kind_of(dtype);
    if (from == to) return tile;
    if (to == CDL_KIND_F) to_f32(from, tile, dtype, n, buffer);
    else if (to == CDL_KIND_D) to_f64(from, tile, n, buffer);
    else if (from == CDL_KIND_F) float_to_int(tile, dtype, n, buffer);
    else double_to_int(tile, dtype, n, buffer);
    return buffer;
}
