// What the text of kernels is written with. No includes: the compiler's own functions are all there is.
//
// f16, bf16 and fp8 values are their bits; they are computed with in f32 and rounded after each operation. Integers wrap, `x / 0` is -1
// (all bits set), `x % 0` is x, shifts by the width or more give 0 or the sign, floats become integers by saturation.
//
// With TENSORLOOM_REFERENCE functions of f32 are computed in f64 and rounded once, as the reference does.

#ifndef D
#define D static __device__ __forceinline__
#endif

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

template <class T, int N> struct alignas(sizeof(T) * N) Vec { T at[N]; };

// Kernels may come while the one before them still runs. Each waits for what came before it ahead of touching memory (but for what
// nobody writes), then lets the next one come: so whoever has waited knows that all before it is done.
D void wait_turn() {
#ifdef __CUDA_ARCH__
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#endif
}

// 16 bytes that are read once.
D Vec<u32, 4> stream16(const void* p) {
#ifdef __CUDA_ARCH__
    Vec<u32, 4> r;
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])
                 : "l"(p));
    return r;
#else
    return *(const Vec<u32, 4>*)p;
#endif
}

// Formats.

D u32 bits(f32 x) { return __float_as_uint(x); }
D f32 real(u32 x) { return __uint_as_float(x); }
D u64 bits(f64 x) { return (u64)__double_as_longlong(x); }
D f64 real(u64 x) { return __longlong_as_double((i64)x); }

// |x| without the machine's own: the assembler takes `|x| > -1` for true where x is no number.
D f32 abs_of(f32 x) {
#ifdef __CUDA_ARCH__
    u32 r;
    asm("and.b32 %0, %1, 0x7fffffff;" : "=r"(r) : "r"(bits(x)));
    return real(r);
#else
    return fabsf(x);
#endif
}
D f64 abs_of(f64 x) {
#ifdef __CUDA_ARCH__
    u64 r;
    asm("and.b64 %0, %1, 0x7fffffffffffffff;" : "=l"(r) : "l"(bits(x)));
    return real(r);
#else
    return fabs(x);
#endif
}

// c ? a : b by bytes. The assembler makes a minimum of `a < b ? a : b`, and its own zeros of floats have an order; of a minimum of integers
// within a maximum with 0 it makes one instruction and takes its predicate for `result == b`, which it isn't. By bytes and not by bits
// (`lop3`): there the compiler itself crashes where the result is compared with 0.
D u32 pick(bool c, u32 a, u32 b) {
#ifdef __CUDA_ARCH__
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c ? 0x3210u : 0x7654u));
    return r;
#else
    return c ? a : b;
#endif
}
D u64 pick(bool c, u64 a, u64 b) {
    return (u64)pick(c, (u32)(a >> 32), (u32)(b >> 32)) << 32 | pick(c, (u32)a, (u32)b);
}
D f32 pick(bool c, f32 a, f32 b) { return real(pick(c, bits(a), bits(b))); }
D f64 pick(bool c, f64 a, f64 b) { return real(pick(c, bits(a), bits(b))); }
D i32 pick(bool c, i32 a, i32 b) { return (i32)pick(c, (u32)a, (u32)b); }
D i64 pick(bool c, i64 a, i64 b) { return (i64)pick(c, (u64)a, (u64)b); }
D i16 pick(bool c, i16 a, i16 b) { return (i16)pick(c, (u32)a, (u32)b); }
D i8 pick(bool c, i8 a, i8 b) { return (i8)pick(c, (u32)a, (u32)b); }
D u16 pick(bool c, u16 a, u16 b) { return (u16)pick(c, (u32)a, (u32)b); }
D u8 pick(bool c, u8 a, u8 b) { return (u8)pick(c, (u32)a, (u32)b); }

template <class T> D T smallest(T a, T b) { return pick(a < b, a, b); }
template <class T> D T largest(T a, T b) { return pick(a > b, a, b); }

// a / b and 1 / x as instructions: of divisions of known numbers by a known 0 the compiler believes that they are numbers (`x != x` is
// false).
#ifdef __CUDA_ARCH__
D f32 quotient(f32 a, f32 b) { f32 r; asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
D f64 quotient(f64 a, f64 b) { f64 r; asm("div.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b)); return r; }
D f32 reciprocal(f32 x) { f32 r; asm("rcp.rn.f32 %0, %1;" : "=f"(r) : "f"(x)); return r; }
D f64 reciprocal(f64 x) { f64 r; asm("rcp.rn.f64 %0, %1;" : "=d"(r) : "d"(x)); return r; }
#else
template <class T> D T quotient(T a, T b) { return a / b; }
template <class T> D T reciprocal(T x) { return (T)1 / x; }
#endif

// To f32, cut off, with the last bit set if anything was cut: rounding that to a narrower format rounds once.
D f32 odd(f64 x) {
    f32 t = (f32)x;
    if (x != x || (f64)t == x) return t;
    u32 b = bits(t);
    f64 far = t < 0 ? -(f64)t : (f64)t, near = x < 0 ? -x : x;
    if (far > near) b -= 1;
    return real(b | 1u);
}

// The same of integers that f64 does not hold.
D f32 odd(u64 x) { return odd(x >> 53 ? (f64)(x >> 11 | (u64)((x & 2047u) != 0)) * 2048.0 : (f64)x); }
D f32 odd(i64 x) { return x < 0 ? -odd(0 - (u64)x) : odd((u64)x); }

D f32 f16_f32(u16 x) {
#ifdef __CUDA_ARCH__
    f32 r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
#else
    u32 s = (u32)(x & 0x8000u) << 16, a = x & 0x7fffu;
    if (a >= 0x7c00u) return real(s | 0x7f800000u | (a & 0x3ffu) << 13);
    if (a < 0x400u) return real(s | bits((f32)a * 5.9604644775390625e-8f));
    return real(s | ((a << 13) + (112u << 23)));
#endif
}
D u16 f32_f16(f32 x) {
#ifdef __CUDA_ARCH__
    u16 r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#else
    u32 b = bits(x), s = (b >> 16) & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (u16)(s | 0x7e00u);
    if (a >= 0x477ff000u) return (u16)(s | 0x7c00u);
    if (a < 0x38800000u) return (u16)(s | (bits(real(a) + 0.5f) - bits(0.5f)));
    a += 0xfffu + ((a >> 13) & 1u);
    return (u16)(s | ((a >> 13) - (112u << 10)));
#endif
}

D f32 bf16_f32(u16 x) { return real((u32)x << 16); }
D u16 f32_bf16(f32 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u16 r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#else
    u32 b = bits(x);
    if (x != x) return (u16)(b >> 16 | 0x40u);
    return (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
}

D f32 fp8_e4m3_f32(u8 x) {
    u32 s = (u32)(x & 0x80u) << 24, a = x & 0x7fu;
    if (a == 0x7fu) return real(s | 0x7fc00000u);
    if (a < 8u) return real(s | bits((f32)a * 0.001953125f));
    return real(s | ((a << 20) + (120u << 23)));
}
D u8 f32_fp8_e4m3(f32 x) {
    u32 b = bits(x), s = (b >> 24) & 0x80u, a = b & 0x7fffffffu;
    // Above 464 nothing is near 448.
    if (a > 0x43e80000u) return (u8)(s | 0x7fu);
    if (a < 0x3c800000u) return (u8)(s | (bits(real(a) + 16384.0f) - bits(16384.0f)));
    a += 0x7ffffu + ((a >> 20) & 1u);
    return (u8)(s | ((a >> 20) - (120u << 3)));
}

D f32 fp8_e5m2_f32(u8 x) {
    u32 s = (u32)(x & 0x80u) << 24, a = x & 0x7fu;
    if (a > 0x7cu) return real(s | 0x7fc00000u);
    if (a == 0x7cu) return real(s | 0x7f800000u);
    if (a < 4u) return real(s | bits((f32)a * 0.0000152587890625f));
    return real(s | ((a << 21) + (112u << 23)));
}
D u8 f32_fp8_e5m2(f32 x) {
    u32 b = bits(x), s = (b >> 24) & 0x80u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (u8)(s | 0x7eu);
    if (a >= 0x47700000u) return (u8)(s | 0x7cu);
    if (a < 0x38800000u) return (u8)(s | (bits(real(a) + 128.0f) - bits(128.0f)));
    a += 0xfffffu + ((a >> 21) & 1u);
    return (u8)(s | ((a >> 21) - (112u << 2)));
}

// Saturating conversions of floats to integers; NaN gives 0.

template <class F> D i32 to_i32(F x) {
    if (x != x) return 0;
    if (x >= (F)2147483648.0) return 0x7fffffff;
    if (x <= (F)-2147483648.0) return -0x7fffffff - 1;
    return (i32)x;
}
template <class F> D u32 to_u32(F x) {
    if (!(x > 0)) return 0;
    if (x >= (F)4294967296.0) return 0xffffffffu;
    return (u32)x;
}
template <class F> D i64 to_i64(F x) {
    if (x != x) return 0;
    if (x >= (F)9223372036854775808.0) return 0x7fffffffffffffffll;
    if (x <= (F)-9223372036854775808.0) return -0x7fffffffffffffffll - 1;
    return (i64)x;
}
template <class F> D u64 to_u64(F x) {
    if (!(x > 0)) return 0;
    if (x >= (F)18446744073709551616.0) return 0xffffffffffffffffull;
    return (u64)x;
}
template <class F> D i8 to_i8(F x) { i32 y = to_i32(x); return (i8)(y < -128 ? -128 : y > 127 ? 127 : y); }
template <class F> D i16 to_i16(F x) { i32 y = to_i32(x); return (i16)(y < -32768 ? -32768 : y > 32767 ? 32767 : y); }
// The lower bound first: see `pick`.
template <class F> D u8 to_u8(F x) { i32 y = largest<i32>(to_i32(x), 0); return (u8)(y > 255 ? 255 : y); }
template <class F> D u16 to_u16(F x) { i32 y = largest<i32>(to_i32(x), 0); return (u16)(y > 65535 ? 65535 : y); }

// To the finite range of a format.
template <class F> D F within(F x, F most) { return x != x ? x : x > most ? most : x < -most ? -most : x; }

// Integers. W is the unsigned type that is computed in, of 32 bits or 64.

template <class T, class W> D T add(T a, T b) { return (T)((W)a + (W)b); }
template <class T, class W> D T sub(T a, T b) { return (T)((W)a - (W)b); }
template <class T, class W> D T mul(T a, T b) { return (T)((W)a * (W)b); }
template <class T, class W> D T neg(T a) { return (T)(0 - (W)a); }
template <class T, class W> D T magnitude(T a) { return a < 0 ? (T)(0 - (W)a) : a; }
template <class T> D T sign(T a) { return (T)((a > 0) - (a < 0)); }
template <class T, class W> D T div(T a, T b) { return b == 0 ? (T)-1 : (T)-1 < 0 && b == (T)-1 ? (T)(0 - (W)a) : (T)(a / b); }
template <class T> D T rem(T a, T b) { return b == 0 ? a : (T)-1 < 0 && b == (T)-1 ? (T)0 : (T)(a % b); }
template <class T, class W> D T shl(T a, T b) { return b < 0 || (u64)b >= sizeof(T) * 8 ? (T)0 : (T)((W)a << (i32)b); }
template <class T> D T shr(T a, T b) {
    if (b < 0 || (u64)b >= sizeof(T) * 8) return a < 0 ? (T)-1 : (T)0;
    return (T)(a >> (i32)b);
}
template <class T> D T power(T x, T y) {
    if (y < 0) return x == 1 ? (T)1 : x == (T)-1 ? (y & 1 ? (T)-1 : (T)1) : (T)0;
    u64 r = 1, base = (u64)x, e = (u64)y;
    for (; e; e >>= 1, base *= base)
        if (e & 1) r *= base;
    return (T)r;
}

// Floats.

D f32 max_of(f32 a, f32 b) { return a != a || a > b ? a : b; }
D f64 max_of(f64 a, f64 b) { return a != a || a > b ? a : b; }
D f32 min_of(f32 a, f32 b) { return a != a || a < b ? a : b; }
D f64 min_of(f64 a, f64 b) { return a != a || a < b ? a : b; }
D f32 sign_of(f32 a) { return a != a || a == 0 ? a : a < 0 ? -1.0f : 1.0f; }
D f64 sign_of(f64 a) { return a != a || a == 0 ? a : a < 0 ? -1.0 : 1.0; }
D bool finite_of(f32 a) { return (bits(a) & 0x7f800000u) != 0x7f800000u; }
D bool finite_of(f64 a) { return (bits(a) & 0x7ff0000000000000ull) != 0x7ff0000000000000ull; }

D f64 logistic(f64 x) {
    if (x >= 0) return 1.0 / (1.0 + exp(-x));
    f64 e = exp(x);
    return e / (1.0 + e);
}

// eˣ = 2ⁿ eʳ with x = n ln 2 + r: adding 1.5 · 2²³ leaves the rounded n in the low bits of a float. The compiler's own `expf` is off by
// up to two units in the last place; this is not by one.
D f32 scaled(f32 p, u32 n) {
    // In two steps, of which only the second can round.
    i32 half = (i32)n >> 1, rest = (i32)n - half;
    return p * real((u32)(half + 127) << 23) * real((u32)(rest + 127) << 23);
}
D f32 exp_quick(f32 x) {
    // Beyond, the result or the way there is no normal number.
    const bool near = x > -87.0f && x < 88.0f;
    if (!near) x = x < -105.0f ? -105.0f : x > 90.0f ? 90.0f : x;
    f32 shifted = fmaf(x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
    f32 r = fmaf(-n, -1.9046542e-9f, fmaf(-n, 0.693147182f, x));
    f32 p = fmaf(0.0013926376f, r, 0.0083633335f);
    p = fmaf(p, r, 0.041666552f);
    p = fmaf(p, r, 0.16666576f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(fmaf(p, r, 1.0f), r, 1.0f);
    if (near) return real(bits(p) + (bits(shifted) << 23));
    return x != x ? x : scaled(p, bits(shifted) - bits(12582912.0f));
}
D f32 exp2_quick(f32 x) {
    x = x < -151.0f ? -151.0f : x > 129.0f ? 129.0f : x;
    f32 shifted = x + 12582912.0f, r = x - (shifted - 12582912.0f);
    f32 p = fmaf(0.00015453361f, r, 0.0013391094f);
    p = fmaf(p, r, 0.009618082f);
    p = fmaf(p, r, 0.055503566f);
    p = fmaf(p, r, 0.2402265f);
    p = fmaf(fmaf(p, r, 0.693147182f), r, 1.0f);
    return x != x ? x : scaled(p, bits(shifted) - bits(12582912.0f));
}
// 1 / √x: the machine's own, and a step of Newton's.
D f32 rsqrt_quick(f32 x) {
#ifdef __CUDA_ARCH__
    f32 y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    f32 better = fmaf(0.5f * y, fmaf(-(x * y), y, 1.0f), y);
    return x > 0.0f && x < real(0x7f800000u) ? better : y;
#else
    return 1.0f / sqrtf(x);
#endif
}
// 1 / x, rounded nearly always, for x whose inverse is a normal number.
D f32 inverse(f32 x) {
#ifdef __CUDA_ARCH__
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return fmaf(r, fmaf(-x, r, 1.0f), r);
#else
    return 1.0f / x;
#endif
}
// The number nearest to x from `low` to `high`; what is no number stays none. Two instructions, and no branch around what follows.
D f32 between(f32 x, f32 low, f32 high) {
#ifdef __CUDA_ARCH__
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(high));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(low));
    return x;
#else
    return x < low ? low : x > high ? high : x;
#endif
}
// 1 / (1 + e⁻ˣ), as 2⁻³² / (2⁻³² + 2⁻³² e⁻ˣ) so that nothing overflows while the result underflows.
D f32 logistic_quick(f32 x) {
    const f32 small = 2.3283064365386963e-10f;
    x = between(x, -105.0f, 60.0f);
    f32 shifted = fmaf(-x, 1.44269504f, 12582912.0f), n = shifted - 12582912.0f;
    f32 r = fmaf(n, -1.9046542e-9f, fmaf(n, 0.693147182f, x));
    f32 q = fmaf(0.0013926376f, r, -0.0083633335f);
    q = fmaf(q, r, 0.041666552f);
    q = fmaf(q, r, -0.16666576f);
    q = fmaf(q, r, 0.5f);
    f32 power = real((bits(shifted) << 23) + bits(small));
    return small * inverse(fmaf(fmaf(r * r, q, -r), power, power + small));
}

D f64 digamma(f64 x) {
    const f64 pi = 3.14159265358979323846, inf = real((u64)0x7ff0000000000000ull);
    if (x == 0) return bits(x) >> 63 ? inf : -inf;
    if (x != x || x == -inf || (x < 0 && x == floor(x))) return real((u64)0x7ff8000000000000ull);
    f64 back = 0;
    if (x < 0) {
        // The distance to the nearest pole is exact.
        back = pi / tan(pi * (x - rint(x)));
        x = 1 - x;
    }
    f64 shift = 0;
    while (x < 10) {
        shift -= 1 / x;
        x += 1;
    }
    f64 z = 1 / (x * x);
    f64 s = 1.0 / 12.0 * z;
    s = (s + -691.0 / 32760.0) * z;
    s = (s + 1.0 / 132.0) * z;
    s = (s + -1.0 / 240.0) * z;
    s = (s + 1.0 / 252.0) * z;
    s = (s + -1.0 / 120.0) * z;
    s = (s + 1.0 / 12.0) * z;
    return shift + log(x) - 0.5 / x - s - back;
}

D f64 zeta_sum(f64 s, f64 q) {
    f64 sum = 0, a = q;
    while (a < 12) {
        sum += pow(a, -s);
        a += 1;
    }
    f64 w = pow(a, -s);
    sum += pow(a, 1 - s) / (s - 1) + 0.5 * w;
    const f64 b[10] = {1.0 / 12.0, -1.0 / 720.0, 1.0 / 30240.0, -1.0 / 1209600.0, 1.0 / 47900160.0, -691.0 / 1307674368000.0,
        1.0 / 74724249600.0, -3617.0 / 10670622842880000.0, 43867.0 / 5109094217170944000.0,
        -174611.0 / 802857662698291200000.0};
    f64 factor = s, power = w / a;
    for (i32 k = 0; k < 10; k++) {
        f64 term = b[k] * factor * power;
        sum += term;
        if (fabs(term) < 1e-17 * fabs(sum)) break;
        factor *= (s + 2.0 * k + 1.0) * (s + 2.0 * k + 2.0);
        power /= a * a;
    }
    return sum;
}

D f64 zeta(f64 s, f64 q) {
    const f64 pi = 3.14159265358979323846;
    const f64 nan = real((u64)0x7ff8000000000000ull), inf = real((u64)0x7ff0000000000000ull);
    if (s != s || q != q || s < 1) return nan;
    if (s == 1) return inf;
    if (q == inf) return 0;
    if (q <= 0) {
        if (q == -inf || s != floor(s)) return nan;
        if (q == floor(q)) return inf;
        // What derivatives of lgamma and digamma need is reflected.
        if (s == 2 || s == 3) {
            f64 off = q - rint(q), over = pi / sin(pi * off);
            if (s == 2) return over * over - zeta_sum(s, 1 - q);
            return over * over * over * sin(pi * (0.5 - fabs(off))) + zeta_sum(s, 1 - q);
        }
        if (q < -10000) return nan;
    }
    return zeta_sum(s, q);
}

// A function of f32 and of f64. `quick` is what is computed in f32; what the table of docs/ir.md does not allow goes through f64.
#ifdef TENSORLOOM_REFERENCE
#define FUNCTION(name, quick, exact)                          \
    D f64 name##_f64(f64 x) { return exact; }                 \
    D f32 name##_f32(f32 x) { return (f32)name##_f64((f64)x); } \
    D f32 name##_narrow(f32 x) { return odd(name##_f64((f64)x)); }
#define FUNCTION2(name, quick, exact)                                          \
    D f64 name##_f64(f64 x, f64 y) { return exact; }                           \
    D f32 name##_f32(f32 x, f32 y) { return (f32)name##_f64((f64)x, (f64)y); } \
    D f32 name##_narrow(f32 x, f32 y) { return odd(name##_f64((f64)x, (f64)y)); }
#else
#define FUNCTION(name, quick, exact)          \
    D f64 name##_f64(f64 x) { return exact; } \
    D f32 name##_f32(f32 x) { return quick; } \
    D f32 name##_narrow(f32 x) { return quick; }
#define FUNCTION2(name, quick, exact)                \
    D f64 name##_f64(f64 x, f64 y) { return exact; } \
    D f32 name##_f32(f32 x, f32 y) { return quick; } \
    D f32 name##_narrow(f32 x, f32 y) { return quick; }
#endif

FUNCTION(exp, exp_quick(x), exp(x))
FUNCTION(exp2, exp2_quick(x), exp2(x))
FUNCTION(expm1, expm1f(x), expm1(x))
FUNCTION(log, logf(x), log(x))
FUNCTION(log2, log2f(x), log2(x))
FUNCTION(log10, (f32)log10((f64)x), log10(x))
FUNCTION(log1p, log1pf(x), log1p(x))
FUNCTION(rsqrt, rsqrt_quick(x), 1.0 / sqrt(x))
FUNCTION(sin, sinf(x), sin(x))
FUNCTION(cos, cosf(x), cos(x))
FUNCTION(tan, tanf(x), tan(x))
FUNCTION(asin, asinf(x), asin(x))
FUNCTION(acos, acosf(x), acos(x))
FUNCTION(atan, atanf(x), atan(x))
FUNCTION(sinh, sinhf(x), sinh(x))
FUNCTION(cosh, coshf(x), cosh(x))
FUNCTION(tanh, tanhf(x), tanh(x))
FUNCTION(asinh, asinhf(x), asinh(x))
FUNCTION(acosh, acoshf(x), acosh(x))
FUNCTION(atanh, atanhf(x), atanh(x))
FUNCTION(erf, erff(x), erf(x))
FUNCTION(erfc, erfcf(x), erfc(x))
FUNCTION(erf_inv, erfinvf(x), erfinv(x))
FUNCTION(lgamma, (f32)lgamma((f64)x), lgamma(x))
FUNCTION(digamma, (f32)digamma((f64)x), digamma(x))
FUNCTION(logistic, logistic_quick(x), logistic(x))
FUNCTION2(pow, (f32)pow((f64)x, (f64)y), pow(x, y))
FUNCTION2(atan2, atan2f(x, y), atan2(x, y))
FUNCTION2(zeta, (f32)zeta((f64)x, (f64)y), zeta(x, y))
