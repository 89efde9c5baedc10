/* math.h: functions over vf, built on the vocabulary alone. Bounds are in units of the last place
 * of the f32 result, held by tests/native/test_elementwise.py against float64 on every ISA. All take
 * the whole line: infinities, NaN, subnormals, overflow and underflow end where C's own would.
 * Coefficients: minimax fits made in float64 and rounded to f32. */
#ifndef CDL_SIMD_MATH_H
#define CDL_SIMD_MATH_H

/* Doubles as wide as vf, for the few steps where f32 does not carry enough. */
typedef double vd __attribute__((vector_size(CDL_LANES * 8)));
typedef int64_t vl __attribute__((vector_size(CDL_LANES * 8)));
typedef uint64_t vul __attribute__((vector_size(CDL_LANES * 8)));
#define CDL_TO_D(v) __builtin_convertvector(v, vd)
#define CDL_TO_F(v) __builtin_convertvector(v, vf)
#define CDL_INF __builtin_inff()

CDL_INLINE vd vd_select(vl mask, vd a, vd b) { return (vd)((mask & (vl)a) | (~mask & (vl)b)); }
CDL_INLINE vd vd_set1(double x) { return x - (vd){0}; }

/* -- simple ----------------------------------------------------------------------------------- */
CDL_INLINE vf v_sign(vf x) { return v_select(x > 0.0f, v_set1(1.0f), v_select(x < 0.0f, v_set1(-1.0f), x)); }
CDL_INLINE vf v_relu(vf x) { return v_select(x < 0.0f, v_zero(), x); }
CDL_INLINE vf v_maximum(vf x, vf y) { return v_select((x > y) | (x != x), x, y); }
CDL_INLINE vf v_minimum(vf x, vf y) { return v_select((x < y) | (x != x), x, y); }

/* -- exponential ------------------------------------------------------------------------------- */
/* e^(x + low), |low| < 0.1: x = n ln2 + r, a polynomial in r, 2^n in two factors so that the ends of
 * the range round once. NaN is the caller's. */
CDL_INLINE vf v_exp_sum(vf x, vf low) {
    x = v_min(v_max(x, v_set1(-104.5f)), v_set1(89.0f));
    vf n = v_round(x * 0x1.715476p+0f);
    vf r = v_fma(n, v_set1(-0x1.63p-1f), x); /* ln2 in two parts; n times the first is exact */
    r = v_fma(n, v_set1(0x1.bd0106p-13f), r) + low;
    vf q = v_set1(0x1.6a2352p-10f);
    q = v_fma(q, r, v_set1(0x1.123a6cp-7f));
    q = v_fma(q, r, v_set1(0x1.5558f4p-5f));
    q = v_fma(q, r, v_set1(0x1.555490p-3f));
    q = v_fma(q, r, v_set1(0x1.fffffcp-2f));
    vf e = v_fma(q, r * r, r) + 1.0f;
    vi k = v_to_vi(n), half = k >> 1;
    return e * vi_as_v((half + 127) << 23) * vi_as_v((k - half + 127) << 23);
}
/* 2 ULP */
CDL_INLINE vf v_exp(vf x) { return v_select(x != x, x, v_exp_sum(x, v_zero())); }
/* 3 ULP, both tails */
CDL_INLINE vf v_sigmoid(vf x) {
    vf z = v_exp(-v_abs(x));
    return v_select(x < 0.0f, z, v_set1(1.0f)) / (z + 1.0f);
}
/* 4 ULP where the result is above 1e-36; -0 at -inf */
CDL_INLINE vf v_silu(vf x) {
    vf z = v_exp(-v_abs(x)), below = v_select(z == 0.0f, -v_zero(), z * x);
    return v_select(x < 0.0f, below, x) / (z + 1.0f);
}
/* 3 ULP */
CDL_INLINE vf v_tanh(vf x) {
    vf a = v_abs(x), z = a * a;
    vf p = v_set1(-0x1.75e1ccp-8f);
    p = v_fma(p, z, v_set1(0x1.52269ap-6f));
    p = v_fma(p, z, v_set1(-0x1.b83c5ap-5f));
    p = v_fma(p, z, v_set1(0x1.110726p-3f));
    p = v_fma(p, z, v_set1(-0x1.555532p-2f));
    vf small = v_fma(p * z, a, a), large = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    return v_copysign(v_select(a < 0.625f, small, large), x);
}

/* -- logarithm --------------------------------------------------------------------------------- */
/* 2 ULP: x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)) */
CDL_INLINE vf v_log(vf x) {
    vi tiny = x < 0x1p-126f;
    vi bits = v_as_vi(v_select(tiny, x * 0x1p23f, x)) & 0x7fffffff;
    vi e = (bits - 0x3f3504f3) >> 23;
    vf f = (vf)((vu)bits - ((vu)e << 23)) - 1.0f, n = vi_to_v(e - (tiny & 23)), z = f * f;
    vf p = v_set1(0x1.1457c4p-4f);
    p = v_fma(p, f, v_set1(-0x1.de3c48p-4f));
    p = v_fma(p, f, v_set1(0x1.e6f07ap-4f));
    p = v_fma(p, f, v_set1(-0x1.fc2200p-4f));
    p = v_fma(p, f, v_set1(0x1.233766p-3f));
    p = v_fma(p, f, v_set1(-0x1.555c4ep-3f));
    p = v_fma(p, f, v_set1(0x1.99a4b6p-3f));
    p = v_fma(p, f, v_set1(-0x1.000006p-2f));
    p = v_fma(p, f, v_set1(0x1.555548p-2f));
    vf y = v_fma(p * f, z, n * -0x1.bd0106p-13f);
    y = v_fma(z, v_set1(-0.5f), y);
    vf r = v_fma(n, v_set1(0x1.63p-1f), f + y);
    r = v_select(x == 0.0f, v_set1(-CDL_INF), v_select(x == CDL_INF, x, r));
    return v_select((x < 0.0f) | (x != x), v_set1(__builtin_nanf("")), r);
}

/* -- sine, cosine ------------------------------------------------------------------------------ */
/* Beyond 2^30: the angle modulo 2 pi from 96 bits of 2/pi that matter for this exponent. */
static __attribute__((noinline, unused)) double cdl_reduce_large(float x, int32_t *quadrant) {
    static const uint32_t two_over_pi[8] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                            0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561};
    uint32_t u;
    memcpy(&u, &x, 4);
    if ((u & 0x7f800000u) == 0x7f800000u) {
        *quadrant = 0;
        return (double)(x - x); /* NaN */
    }
    uint64_t m = (u & 0x7fffffu) | 0x800000u, w[3];
    uint32_t bit = ((u >> 23) & 255u) - 152u, i = bit >> 5, s = bit & 31u;
    for (uint32_t j = 0; j < 3; j++)
        w[j] = ((((uint64_t)two_over_pi[i + j] << 32) | two_over_pi[i + j + 1]) << s) >> 32;
    uint64_t turns = (m * w[0] << 32) + m * w[1] + (m * w[2] >> 32); /* in units of 2^-62 quarters */
    uint64_t n = (turns + (1ull << 61)) >> 62;
    double r = (double)(int64_t)(turns - (n << 62)) * 0x1.921fb54442d18p-62;
    *quadrant = u >> 31 ? -(int32_t)n : (int32_t)n;
    return u >> 31 ? -r : r;
}
/* d = quarter turns * pi/2 + r, |r| <= pi/4, for |d| < 2^31; pi/2 in three parts */
CDL_INLINE vd vd_reduce(vd d, vi *quarter) {
    vd shifted = d * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = shifted - 0x1.8p52;
    *quarter = __builtin_convertvector((vl)shifted, vi);
    return ((d - n * 0x1.921fbp0) - n * 0x1.5110bp-22) - n * 0x1.18469898cc517p-44;
}
CDL_INLINE vf v_reduce(vf x, vi *quarter) {
    vd r = vd_reduce(CDL_TO_D(x), quarter);
    if (__builtin_expect(v_any(~(v_abs(x) < 0x1p30f)), 0)) {
        for (int i = 0; i < CDL_LANES; i++) {
            int32_t q = 0;
            if (__builtin_fabsf(x[i]) < 0x1p30f) continue;
            r[i] = cdl_reduce_large(x[i], &q);
            (*quarter)[i] = q;
        }
    }
    return CDL_TO_F(r);
}
/* sin and cos of r + quarter * pi/2, |r| <= pi/4 */
CDL_INLINE void v_sincos_quarter(vf r, vi quarter, vf *sine, vf *cosine) {
    vf z = r * r, s = v_set1(-0x1.994cfap-13f), c = v_set1(0x1.9a00cep-16f);
    s = v_fma(s, z, v_set1(0x1.11075cp-7f));
    s = v_fma(s, z, v_set1(-0x1.555546p-3f));
    s = v_fma(s, r * z, r);
    c = v_fma(c, z, v_set1(-0x1.6c0c86p-10f));
    c = v_fma(c, z, v_set1(0x1.55554ap-5f));
    c = v_fma(c, z * z, v_fma(z, v_set1(-0.5f), v_set1(1.0f)));
    vi swap = -(quarter & 1);
    vu sign = (vu){0} + 0x80000000u;
    *sine = (vf)((vu)v_select(swap, c, s) ^ (((vu)quarter << 30) & sign));
    *cosine = (vf)((vu)v_select(swap, s, c) ^ ((((vu)quarter + 1) << 30) & sign));
}
/* 2 ULP for every finite x; NaN for infinities */
CDL_INLINE vf v_sin(vf x) {
    vi quarter;
    vf s, c, r = v_reduce(x, &quarter);
    v_sincos_quarter(r, quarter, &s, &c);
    return v_select(x == 0.0f, x, s);
}
CDL_INLINE vf v_cos(vf x) {
    vi quarter;
    vf s, c, r = v_reduce(x, &quarter);
    v_sincos_quarter(r, quarter, &s, &c);
    return c;
}

/* -- error function, GELU ---------------------------------------------------------------------- */
/* The upper tail of the normal distribution at a >= 0, relative to itself: e^(high + low) t P(t) with
 * t = 1 / (1 + 0.3 a), where high + low = -a^2 / 2 in two parts, so large a keep their digits. */
CDL_INLINE vf v_tail(vf a, vf high, vf low) {
    vf t = 1.0f / v_fma(a, v_set1(0.3f), v_set1(1.0f));
    vf p = v_set1(-0x1.51e512p-6f);
    p = v_fma(p, t, v_set1(0x1.cc893ep-4f));
    p = v_fma(p, t, v_set1(-0x1.d3619ap-3f));
    p = v_fma(p, t, v_set1(0x1.88c644p-3f));
    p = v_fma(p, t, v_set1(-0x1.455176p-4f));
    p = v_fma(p, t, v_set1(0x1.89dbb0p-4f));
    p = v_fma(p, t, v_set1(0x1.411586p-4f));
    p = v_fma(p, t, v_set1(0x1.c38638p-4f));
    p = v_fma(p, t, v_set1(0x1.e9c422p-4f));
    p = v_fma(p, t, v_set1(0x1.ea3c98p-4f));
    return v_exp_sum(high, low) * (p * t);
}
/* 4 ULP */
CDL_INLINE vf v_erf(vf x) {
    vf a = v_min(v_abs(x), v_set1(8.0f)), z = a * a;
    vf p = v_set1(0x1.496a32p-14f);
    p = v_fma(p, z, v_set1(-0x1.a3f700p-11f));
    p = v_fma(p, z, v_set1(0x1.5405b2p-8f));
    p = v_fma(p, z, v_set1(-0x1.b7f90ep-6f));
    p = v_fma(p, z, v_set1(0x1.ce2cf8p-4f));
    p = v_fma(p, z, v_set1(-0x1.81273ep-2f));
    vf small = v_fma(p * z, a, a * 0x1.20dd74p+0f), large = 1.0f - 2.0f * v_tail(a * 0x1.6a09e6p+0f, -z, v_zero());
    return v_select(x != x, x, v_copysign(v_select(a < 1.0f, small, large), x));
}
/* x times the normal distribution function: within 1e-6 relative of float64 (10 ULP), both tails */
CDL_INLINE vf v_gelu(vf x) {
    vf a = v_min(v_abs(x), v_set1(16.0f)), h = vi_as_v(v_as_vi(a) & ~0xfff);
    vf q = v_tail(a, h * h * -0.5f, (a - h) * (a + h) * -0.5f);
    vf y = v_select(x < 0.0f, v_select(q == 0.0f, -v_zero(), x * q), v_fma(x, -q, x));
    return v_select(v_abs(x) < 16.0f, y, v_select(x < 0.0f, -v_zero(), x));
}
/* x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form without its cancellation. 40 ULP
 * from -5 up, 2e-5 relative further down */
CDL_INLINE vf v_gelu_tanh(vf x) {
    vf a = v_min(v_max(x, v_set1(-16.0f)), v_set1(16.0f));
    vf u = a * v_fma(a * a, v_set1(0x1.2444f2p-4f), v_set1(0x1.988454p+0f));
    vf y = a * v_sigmoid(u);
    return v_select(v_abs(x) < 16.0f, y, v_select(x < 0.0f, -v_zero(), x));
}

/* -- power ------------------------------------------------------------------------------------- */
/* log of a finite a > 0 whose f32 form is normal or subnormal, relative 1e-12 */
CDL_INLINE vd vd_log(vd a) {
    vl bits = (vl)a, e = (bits - 0x3fe6a09e667f3bcd) >> 52;
    vd m = (vd)((vul)bits - ((vul)e << 52)), s = (m - 1.0) / (m + 1.0), z = s * s;
    vd p = z * (2.0 / 15) + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    return CDL_TO_D(__builtin_convertvector(e, vi)) * 0x1.62e42fefa39efp-1 + (p * z * s + 2.0 * s);
}
/* e^x, relative 1e-11; x is clamped to where f32 has long been 0 or infinite */
CDL_INLINE vd vd_exp(vd x) {
    x = vd_select(x < -160.0, vd_set1(-160.0), vd_select(x > 160.0, vd_set1(160.0), x));
    vd shifted = x * 0x1.71547652b82fep0 + 0x1.8p52, n = shifted - 0x1.8p52;
    vd r = x - n * 0x1.62e42fefa39efp-1;
    vd p = r * (1.0 / 362880) + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return p * (vd)(((vul)shifted << 52) + 0x3ff0000000000000u);
}
/* 1 ULP; the special cases are C's pow */
CDL_INLINE vf v_pow(vf x, vf y) {
    vf a = v_abs(x), one = v_set1(1.0f);
    vd l = vd_log(CDL_TO_D(v_select((a > 0.0f) & (a < CDL_INF), a, one)));
    l = vd_select(__builtin_convertvector(a == 0.0f, vl), vd_set1(-__builtin_inf()), l);
    l = vd_select(__builtin_convertvector(a == CDL_INF, vl), vd_set1(__builtin_inf()), l);
    vf r = CDL_TO_F(vd_exp(l * CDL_TO_D(y)));
    vf half = y * 0.5f;
    vi whole = v_floor(y) == y, odd = whole & (v_floor(half) != half) & (v_abs(y) < CDL_INF);
    r = vi_as_v(v_as_vi(r) ^ (odd & v_as_vi(x) & INT32_MIN));
    r = v_select((x < 0.0f) & (a < CDL_INF) & ~whole, v_set1(__builtin_nanf("")), r);
    r = v_select((x != x) | (y != y), x + y, r);
    return v_select((x == 1.0f) | (y == 0.0f) | ((a == 1.0f) & (v_abs(y) == CDL_INF)), one, r);
}
#endif
