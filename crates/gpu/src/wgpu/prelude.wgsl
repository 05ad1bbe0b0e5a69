// What the text of kernels is written with; a kernel gets the functions that it calls, and those that they call.
//
// f16, bf16 and fp8 values are f32 numbers that those formats have: they are decoded when they are loaded, rounded after
// each operation and encoded when they are stored. Integers of 8 and 16 bits are i32 and u32 numbers in their range. Integers wrap,
// `x / 0` is -1 (all bits set), `x % 0` is x, shifts by the width or more give 0 or the sign, floats become integers by
// saturation.
//
// WGSL's own functions may be off by thousands of units in the last place, and some compilers take `(x + c) - c` for x: these
// functions need neither. Constants that WGSL has no literals for come through `real`, which no compiler evaluates early.

fn real(x: u32) -> f32 { return bitcast<f32>(x); }

fn bits(x: f32) -> u32 { return bitcast<u32>(x); }

fn nan_of(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

fn finite_of(x: f32) -> bool { return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u; }

fn signed_as(x: f32, s: f32) -> f32 { return real((bits(x) & 0x7fffffffu) | (bits(s) & 0x80000000u)); }

// Formats.

fn f16_f32(x: u32) -> f32 {
    let s = (x & 0x8000u) << 16u;
    let a = x & 0x7fffu;
    if (a >= 0x7c00u) { return real(s | 0x7f800000u | ((a & 0x3ffu) << 13u)); }
    if (a < 0x400u) { return real(s | bits(f32(a) * 5.9604644775390625e-8f)); }
    return real(s | ((a << 13u) + (112u << 23u)));
}

fn f32_f16(x: f32) -> u32 {
    let b = bits(x);
    let s = (b >> 16u) & 0x8000u;
    var a = b & 0x7fffffffu;
    if (a > 0x7f800000u) { return s | 0x7e00u | ((a >> 13u) & 0x1ffu); }
    if (a >= 0x477ff000u) { return s | 0x7c00u; }
    if (a < 0x38800000u) { return s | (bits(real(a) + 0.5f) - 0x3f000000u); }
    a += 0xfffu + ((a >> 13u) & 1u);
    return s | ((a >> 13u) - (112u << 10u));
}

fn round_f16(x: f32) -> f32 { return f16_f32(f32_f16(x)); }

fn bf16_f32(x: u32) -> f32 { return real(x << 16u); }

fn f32_bf16(x: f32) -> u32 {
    let b = bits(x);
    if (nan_of(x)) { return (b >> 16u) | 0x40u; }
    return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}

fn round_bf16(x: f32) -> f32 { return real(f32_bf16(x) << 16u); }

fn fp8_e4m3_f32(x: u32) -> f32 {
    let s = (x & 0x80u) << 24u;
    let a = x & 0x7fu;
    if (a == 0x7fu) { return real(s | 0x7fc00000u); }
    if (a < 8u) { return real(s | bits(f32(a) * 0.001953125f)); }
    return real(s | ((a << 20u) + (120u << 23u)));
}

fn f32_fp8_e4m3(x: f32) -> u32 {
    let b = bits(x);
    let s = (b >> 24u) & 0x80u;
    var a = b & 0x7fffffffu;
    // Above 464 nothing is near 448.
    if (a > 0x43e80000u) { return s | 0x7fu; }
    if (a < 0x3c800000u) { return s | (bits(real(a) + 16384.0f) - 0x46800000u); }
    a += 0x7ffffu + ((a >> 20u) & 1u);
    return s | ((a >> 20u) - (120u << 3u));
}

fn round_fp8_e4m3(x: f32) -> f32 { return fp8_e4m3_f32(f32_fp8_e4m3(x)); }

fn fp8_e5m2_f32(x: u32) -> f32 {
    let s = (x & 0x80u) << 24u;
    let a = x & 0x7fu;
    if (a > 0x7cu) { return real(s | 0x7fc00000u); }
    if (a == 0x7cu) { return real(s | 0x7f800000u); }
    if (a < 4u) { return real(s | bits(f32(a) * 0.0000152587890625f)); }
    return real(s | ((a << 21u) + (112u << 23u)));
}

fn f32_fp8_e5m2(x: f32) -> u32 {
    let b = bits(x);
    let s = (b >> 24u) & 0x80u;
    var a = b & 0x7fffffffu;
    if (a > 0x7f800000u) { return s | 0x7eu; }
    if (a >= 0x47700000u) { return s | 0x7cu; }
    if (a < 0x38800000u) { return s | (bits(real(a) + 128.0f) - 0x43000000u); }
    a += 0xfffffu + ((a >> 21u) & 1u);
    return s | ((a >> 21u) - (112u << 2u));
}

fn round_fp8_e5m2(x: f32) -> f32 { return fp8_e5m2_f32(f32_fp8_e5m2(x)); }

// To f32, cut off, with the last bit set if anything was cut: rounding that to a narrower format rounds once.
fn odd_u32(x: u32) -> f32 {
    let zeros = countLeadingZeros(x);
    if (zeros >= 8u) { return f32(x); }
    let low = (1u << (8u - zeros)) - 1u;
    return f32((x & ~low) | select(0u, low + 1u, (x & low) != 0u));
}

fn odd_i32(x: i32) -> f32 {
    if (x < 0) { return -odd_u32(0u - u32(x)); }
    return odd_u32(u32(x));
}

// Saturating conversions; NaN gives 0.

fn to_i32(x: f32) -> i32 {
    if (nan_of(x)) { return 0; }
    if (x >= 2147483648.0f) { return 2147483647; }
    if (x <= -2147483648.0f) { return i32(-2147483648); }
    return i32(x);
}

fn to_u32(x: f32) -> u32 {
    if (nan_of(x) || x <= 0.0f) { return 0u; }
    if (x >= 4294967296.0f) { return 0xffffffffu; }
    return u32(x);
}

fn to_i8(x: f32) -> i32 { return clamp(to_i32(x), -128, 127); }

fn to_i16(x: f32) -> i32 { return clamp(to_i32(x), -32768, 32767); }

fn to_u8(x: f32) -> u32 { return min(to_u32(x), 255u); }

fn to_u16(x: f32) -> u32 { return min(to_u32(x), 65535u); }

// To the finite range of a format.
fn within(x: f32, most: f32) -> f32 {
    if (nan_of(x)) { return x; }
    return select(select(x, -most, x < -most), most, x > most);
}

// Integers.

fn wrap_i8(x: i32) -> i32 { return (x << 24u) >> 24u; }

fn wrap_i16(x: i32) -> i32 { return (x << 16u) >> 16u; }

fn sign_i32(x: i32) -> i32 { return select(select(0, 1, x > 0), -1, x < 0); }

fn div_i32(a: i32, b: i32) -> i32 {
    if (b == 0) { return -1; }
    if (b == -1) { return 0 - a; }
    return a / b;
}

fn div_u32(a: u32, b: u32) -> u32 {
    if (b == 0u) { return 0xffffffffu; }
    return a / b;
}

fn rem_i32(a: i32, b: i32) -> i32 {
    if (b == 0) { return a; }
    if (b == -1) { return 0; }
    return a - (a / b) * b;
}

fn rem_u32(a: u32, b: u32) -> u32 {
    if (b == 0u) { return a; }
    return a % b;
}

fn shl_i32(a: i32, b: i32, width: i32) -> i32 {
    if (b < 0 || b >= width) { return 0; }
    return a << u32(b);
}

fn shl_u32(a: u32, b: u32, width: u32) -> u32 {
    if (b >= width) { return 0u; }
    return a << b;
}

fn shr_i32(a: i32, b: i32, width: i32) -> i32 {
    if (b < 0 || b >= width) { return a >> 31u; }
    return a >> u32(b);
}

fn shr_u32(a: u32, b: u32, width: u32) -> u32 {
    if (b >= width) { return 0u; }
    return a >> b;
}

fn power_u32(x: u32, y: u32) -> u32 {
    var r = 1u;
    var base = x;
    for (var e = y; e != 0u; e = e >> 1u) {
        if ((e & 1u) != 0u) { r *= base; }
        base *= base;
    }
    return r;
}

fn power_i32(x: i32, y: i32) -> i32 {
    if (y < 0) {
        if (x == 1) { return 1; }
        if (x == -1) { return select(1, -1, (y & 1) != 0); }
        return 0;
    }
    return i32(power_u32(u32(x), u32(y)));
}

// Floats.

// Written so that no compiler takes the difference of two infinities for 0, or `(a + b) - a` for b.
fn minus(a: f32, b: f32) -> f32 { return a + bitcast<f32>(bitcast<u32>(b) ^ 0x80000000u); }

// A number that no compiler knows: `nothing` is 0. It is added, not exchanged, since what is hidden twice must not come out again.
fn hidden(x: f32, nothing: u32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + nothing); }

// Not the compiler's own sign, with which it would take `x + -x` for 0. The sign bit is added too: exchanged, it would meet a hidden -0.
fn negated(x: f32, nothing: u32) -> f32 { return bitcast<f32>(bitcast<u32>(x) + (0x80000000u + nothing)); }

// A quotient which no compiler takes for 1 where both are the same. What is added is further away than registers are from each other:
// else the 0 of one would be that of its neighbour.
fn over(a: f32, b: f32, nothing: u32) -> f32 { return a / hidden(b, nothing * 0x100000u); }

// A root of which no compiler knows the square, of a square which it doesn't know.
fn root_of(x: f32, nothing: u32) -> f32 { return hidden(sqrt(hidden(x, nothing)), nothing); }

// A compiler may take a choice of the larger one for its own maximum, which forgets NaN and has an order of zeros.
fn max_of(a: f32, b: f32) -> f32 {
    if (nan_of(a)) { return a; }
    if (nan_of(b)) { return b; }
    return pick(a > b, a, b);
}

fn min_of(a: f32, b: f32) -> f32 {
    if (nan_of(a)) { return a; }
    if (nan_of(b)) { return b; }
    return pick(a < b, a, b);
}

// A choice between bits, so that no compiler takes `x > 0 ? x : 0` for its own maximum.
fn pick(c: bool, a: f32, b: f32) -> f32 { return bitcast<f32>(select(bitcast<u32>(b), bitcast<u32>(a), c)); }

fn sign_of(a: f32) -> f32 {
    if (nan_of(a) || a == 0.0f) { return a; }
    return select(1.0f, -1.0f, a < 0.0f);
}

fn up_exponent(m: u32) -> u32 { return countLeadingZeros(m) - 8u; }

// The remainder of a division that is cut off, exactly: eight quotient bits at a time.
fn rem_f32(x: f32, y: f32) -> f32 {
    let a = bits(x) & 0x7fffffffu;
    let b = bits(y) & 0x7fffffffu;
    if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) { return real(0x7fc00000u); }
    if (a < b) { return x; }
    var ea = a >> 23u;
    var eb = b >> 23u;
    var ma = (a & 0x7fffffu) | select(0u, 0x800000u, ea > 0u);
    var mb = (b & 0x7fffffu) | select(0u, 0x800000u, eb > 0u);
    ea = max(ea, 1u);
    eb = max(eb, 1u);
    ma = ma % mb;
    for (var n = ea - eb; n > 0u && ma > 0u;) {
        let by = min(n, 8u);
        ma = (ma << by) % mb;
        n -= by;
    }
    if (ma == 0u) { return real(bits(x) & 0x80000000u); }
    let up = min(up_exponent(ma), eb - 1u);
    ma = ma << up;
    let e = select(0u, eb - up, ma >= 0x800000u);
    return real((bits(x) & 0x80000000u) | (e << 23u) | (ma & 0x7fffffu));
}

// p 2ⁿ in two steps, of which only the second can round.
fn scaled(p: f32, n: i32) -> f32 {
    let half = n >> 1u;
    let rest = n - half;
    return p * real(u32(half + 127) << 23u) * real(u32(rest + 127) << 23u);
}

// (eʳ - 1 - r) / r².
fn exp_rest(r: f32) -> f32 {
    var p = fma(0.0013926376f, r, 0.0083633335f);
    p = fma(p, r, 0.041666552f);
    p = fma(p, r, 0.16666576f);
    return fma(p, r, 0.5f);
}

// eˣ⁺ᵈ for a small d: 2ⁿ eʳ with x = n ln 2 + r.
fn exp_sum(given: f32, d: f32) -> f32 {
    let x = clamp(given, -105.0f, 90.0f);
    let n = round(x * 1.44269504f);
    let r = fma(n, 1.9046542e-9f, fma(n, -0.693147182f, x)) + d;
    return scaled(fma(fma(exp_rest(r), r, 1.0f), r, 1.0f), i32(n));
}

fn exp_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    return exp_sum(x, 0.0f);
}

fn exp2_f32(given: f32) -> f32 {
    if (nan_of(given)) { return given; }
    let x = clamp(given, -151.0f, 129.0f);
    let n = round(x);
    let r = x - n;
    var p = fma(0.00015453361f, r, 0.0013391094f);
    p = fma(p, r, 0.009618082f);
    p = fma(p, r, 0.055503566f);
    p = fma(p, r, 0.2402265f);
    p = fma(fma(p, r, 0.693147182f), r, 1.0f);
    return scaled(p, i32(n));
}

fn expm1_f32(given: f32) -> f32 {
    if (nan_of(given)) { return given; }
    let x = clamp(given, -20.0f, 88.8f);
    let n = round(x * 1.44269504f);
    let r = fma(n, 1.9046542e-9f, fma(n, -0.693147182f, x));
    let p = fma(r * r, exp_rest(r), r);
    // 2ⁿ⁻¹ (eʳ - 1) + (2ⁿ⁻¹ - 1/2), doubled: 2ⁿ itself may overflow.
    let s = real(u32(i32(n) + 126) << 23u);
    let y = fma(p, s, s - 0.5f);
    // Half of a tiny number loses its last bit.
    return signed_as(select(y + y, given, abs(given) < 1.0e-15f), given);
}

// 1 / (1 + e⁻ˣ), as 2⁻³² / (2⁻³² + 2⁻³² e⁻ˣ) so that nothing overflows while the result underflows.
fn logistic_f32(given: f32) -> f32 {
    if (nan_of(given)) { return given; }
    let x = clamp(given, -80.0f, 60.0f);
    let n = round(x * -1.44269504f);
    let r = fma(n, 1.9046542e-9f, fma(n, -0.693147182f, -x));
    let em1 = fma(r * r, exp_rest(r), r);
    let power = real(u32(i32(n) + 95) << 23u);
    let small = 2.3283064365386963e-10f;
    let y = small / fma(em1, power, power + small);
    if (given >= -80.0f) { return y; }
    return exp_sum(given, 0.0f);
}

// t / (t + 1) with t = (e²ˣ - 1) / 2.
fn tanh_f32(given: f32) -> f32 {
    if (nan_of(given)) { return given; }
    let a = min(abs(given), 9.02f);
    let n = round(a * 2.88539008f);
    let r = 2.0f * fma(n, 9.523271e-10f, fma(n, -0.346573591f, a));
    let p = 0.5f * fma(r * r, exp_rest(r), r);
    let power = real(u32(i32(n) + 127) << 23u);
    let t = fma(p, power, fma(power, 0.5f, -0.5f));
    return signed_as(t / (t + 1.0f), given);
}

// log(1 + f) - f for 1 + f between √½ and √2.
fn log_rest(f: f32) -> f32 {
    var p = fma(7.0376836e-2f, f, -1.151461e-1f);
    p = fma(p, f, 1.1676999e-1f);
    p = fma(p, f, -1.2420141e-1f);
    p = fma(p, f, 1.4249323e-1f);
    p = fma(p, f, -1.6668058e-1f);
    p = fma(p, f, 2.0000715e-1f);
    p = fma(p, f, -2.4999994e-1f);
    p = fma(p, f, 3.333333e-1f);
    return f * f * fma(p, f, -0.5f);
}

// x = 2ᵉ (1 + f): f and e of a positive finite number. Subnormal ones are made whole numbers first.
fn log_parts(x: f32) -> vec2<f32> {
    let small = bits(x) < 0x00800000u;
    let b = select(bits(x), bits(f32(bits(x))), small);
    let e = i32(b - 0x3f3504f3u) >> 23u;
    let m = real(b - (u32(e) << 23u));
    return vec2<f32>(m - 1.0f, f32(e) - select(0.0f, 149.0f, small));
}

fn log_special(x: f32, y: f32) -> f32 {
    if ((bits(x) & 0x7fffffffu) == 0u) { return real(0xff800000u); }
    if (bits(x) > 0x7f800000u) { return real(0x7fc00000u); }
    if (bits(x) == 0x7f800000u) { return x; }
    return y;
}

fn log_f32(x: f32) -> f32 {
    let p = log_parts(x);
    let y = fma(p.y, -2.1219444e-4f, log_rest(p.x)) + p.x;
    return log_special(x, fma(p.y, 0.693359375f, y));
}

fn log2_f32(x: f32) -> f32 {
    let p = log_parts(x);
    let rest = log_rest(p.x);
    // log₂ e - 1, so that the ones are added exactly.
    let more = 0.44269504f;
    let a = fma(p.x, more, rest * more) + rest + p.x;
    return log_special(x, a + p.y);
}

// log x / log 10, both in two parts.
fn log10_f32(x: f32) -> f32 {
    let l = log_pair(x);
    let t = two_product(l.x, 0.434294492f);
    return log_special(x, t.x + (t.y + (l.x * -1.0103049e-8f + l.y * 0.434294492f)));
}

fn log1p_f32(x: f32) -> f32 {
    if (x > -0.29f && x < 0.41f) { return x + log_rest(x); }
    if (nan_of(x)) { return x; }
    return log_f32(1.0f + x);
}

fn rsqrt_f32(x: f32) -> f32 { return 1.0f / sqrt(x); }

fn mul_high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let middle = ah * bl + (low >> 16u);
    let other = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (other >> 16u);
}

// 2/π, from 32 bits before the point.
fn two_over_pi(k: u32) -> u32 {
    switch k {
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        case 7u: { return 0xfe5163abu; }
        case 8u: { return 0xdebbc561u; }
        default: { return 0u; }
    }
}

// |x| = n π/2 + r with |r| ≤ π/4: r, and the low bits of n. Large numbers by multiplying with the 96 bits of 2/π that matter.
fn quarter(x: f32) -> vec2<f32> {
    let a = abs(x);
    if (a <= 71476.0f) {
        let n = round(a * 0.636619747f);
        let r = fma(n, 1.7151245e-15f, fma(n, 4.371139e-8f, fma(n, -1.5707964f, a)));
        return vec2<f32>(r, f32(u32(n) & 3u));
    }
    let b = bits(a);
    let m = (b & 0x7fffffu) | 0x800000u;
    let at = (b >> 23u) - 120u;
    let k = at >> 5u;
    let by = at & 31u;
    var w = array<u32, 4>(two_over_pi(k), two_over_pi(k + 1u), two_over_pi(k + 2u), two_over_pi(k + 3u));
    if (by != 0u) {
        for (var i = 0u; i < 3u; i += 1u) { w[i] = (w[i] << by) | (w[i + 1u] >> (32u - by)); }
    }
    // The low 96 bits of m · w.
    let p2 = m * w[2];
    let h2 = mul_high(m, w[2]);
    let p1 = m * w[1] + h2;
    let h1 = mul_high(m, w[1]) + select(0u, 1u, p1 < h2);
    let p0 = m * w[0] + h1;
    var q = p0 >> 30u;
    var hi = (p0 << 2u) | (p1 >> 30u);
    var mid = (p1 << 2u) | (p2 >> 30u);
    var low = p2 << 2u;
    let negative = (hi & 0x80000000u) != 0u;
    if (negative) {
        q += 1u;
        hi = ~hi;
        mid = ~mid;
        low = ~low;
    }
    var zeros = 0;
    if (hi == 0u) {
        hi = mid;
        mid = low;
        zeros = 32;
    }
    let more = countLeadingZeros(hi | 1u);
    if (more > 0u) { hi = (hi << more) | (mid >> (32u - more)); }
    zeros += i32(more);
    let r = f32(hi) * real(u32(127 - 32 - zeros) << 23u) * 1.57079637f;
    return vec2<f32>(select(r, -r, negative), f32(q & 3u));
}

fn sin_poly(r: f32) -> f32 {
    let s = r * r;
    let p = fma(fma(-1.9515296e-4f, s, 8.332161e-3f), s, -1.6666655e-1f);
    return fma(p * s, r, r);
}

fn cos_poly(r: f32) -> f32 {
    let s = r * r;
    let p = fma(fma(fma(2.4433157e-5f, s, -1.3887316e-3f), s, 4.1666646e-2f), s, -0.5f);
    return fma(p, s, 1.0f);
}

fn sin_f32(x: f32) -> f32 {
    if (!finite_of(x)) { return real(0x7fc00000u); }
    let p = quarter(x);
    let q = u32(p.y);
    let y = select(sin_poly(p.x), cos_poly(p.x), (q & 1u) != 0u);
    return real(bits(y) ^ ((q & 2u) << 30u) ^ (bits(x) & 0x80000000u));
}

fn cos_f32(x: f32) -> f32 {
    if (!finite_of(x)) { return real(0x7fc00000u); }
    let p = quarter(x);
    let q = u32(p.y) + 1u;
    let y = select(sin_poly(p.x), cos_poly(p.x), (q & 1u) != 0u);
    return real(bits(y) ^ ((q & 2u) << 30u));
}

fn tan_f32(x: f32) -> f32 {
    if (!finite_of(x)) { return real(0x7fc00000u); }
    let p = quarter(x);
    let s = sin_poly(p.x);
    let c = cos_poly(p.x);
    let y = select(s / c, -c / s, (u32(p.y) & 1u) != 0u);
    return real(bits(y) ^ (bits(x) & 0x80000000u));
}

fn atan_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let a = abs(x);
    var t = a;
    var base = 0.0f;
    if (a > 2.41421356f) {
        t = -1.0f / a;
        base = 1.57079637f;
    } else if (a > 0.414213562f) {
        t = (a - 1.0f) / (a + 1.0f);
        base = 0.785398185f;
    }
    let z = t * t;
    let p = fma(fma(fma(8.05374449538e-2f, z, -1.38776856032e-1f), z, 1.99777106478e-1f), z, -3.33329491539e-1f);
    return signed_as(base + fma(p * z, t, t), x);
}

fn atan2_f32(y: f32, x: f32) -> f32 {
    if (nan_of(x) || nan_of(y)) { return real(0x7fc00000u); }
    let pi = 3.14159274f;
    let left = (bits(x) & 0x80000000u) != 0u;
    let a = abs(x);
    let b = abs(y);
    var r = 0.0f;
    if (b == 0.0f) {
        r = select(0.0f, pi, left);
    } else if (!finite_of(a) && !finite_of(b)) {
        r = select(0.785398185f, 2.3561945f, left);
    } else if (a == 0.0f || !finite_of(b)) {
        r = 1.57079637f;
    } else if (!finite_of(a)) {
        r = select(0.0f, pi, left);
    } else {
        // Of numbers whose quotient and reciprocal are normal.
        let s = select(1.0f, 5.9604645e-8f, max(a, b) > 1.0e18f);
        let u = select(1.0f, 1.6777216e7f, max(a, b) < 1.0e-18f);
        let t = atan_f32(min((b * s * u) / (a * s * u), 1.0e30f));
        r = select(t, pi - t, left);
    }
    return signed_as(r, y);
}

fn asin_poly(x: f32) -> f32 {
    let z = x * x;
    var p = fma(4.2163199048e-2f, z, 2.4181311049e-2f);
    p = fma(p, z, 4.5470025998e-2f);
    p = fma(p, z, 7.4953002686e-2f);
    p = fma(p, z, 1.6666752422e-1f);
    return fma(p * z, x, x);
}

fn asin_f32(x: f32) -> f32 {
    let a = abs(x);
    if (nan_of(x) || a > 1.0f) { return real(0x7fc00000u); }
    if (a <= 0.5f) { return asin_poly(x); }
    let y = 1.57079637f - 2.0f * asin_poly(sqrt(0.5f - 0.5f * a));
    return signed_as(y, x);
}

fn acos_f32(x: f32) -> f32 {
    let a = abs(x);
    if (nan_of(x) || a > 1.0f) { return real(0x7fc00000u); }
    if (a <= 0.5f) { return 1.57079637f - asin_poly(x); }
    let y = 2.0f * asin_poly(sqrt(0.5f - 0.5f * a));
    return select(y, 3.14159274f - y, x < 0.0f);
}

fn sinh_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let a = abs(x);
    if (a < 1.0f) {
        let z = x * x;
        let p = fma(fma(2.03721912945e-4f, z, 8.33028376239e-3f), z, 1.66667160211e-1f);
        return fma(p * z, x, x);
    }
    if (a > 80.0f) {
        let h = exp_sum(0.5f * a, 0.0f);
        return signed_as(0.5f * h * h, x);
    }
    let e = exp_sum(a, 0.0f);
    return signed_as(0.5f * e - 0.5f / e, x);
}

fn cosh_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let a = abs(x);
    if (a > 80.0f) {
        let h = exp_sum(0.5f * a, 0.0f);
        return 0.5f * h * h;
    }
    let e = exp_sum(a, 0.0f);
    return 0.5f * e + 0.5f / e;
}

fn asinh_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let a = abs(x);
    if (a > 1.0e9f) { return signed_as(log_f32(a) + 0.693147182f, x); }
    return signed_as(log1p_f32(a + a * a / (1.0f + sqrt(fma(a, a, 1.0f)))), x);
}

fn acosh_f32(x: f32) -> f32 {
    if (nan_of(x) || x < 1.0f) { return real(0x7fc00000u); }
    if (x > 1.0e9f) { return log_f32(x) + 0.693147182f; }
    let t = x - 1.0f;
    return log1p_f32(t + sqrt(t * (2.0f + t)));
}

fn atanh_f32(x: f32) -> f32 {
    let a = abs(x);
    if (nan_of(x) || a > 1.0f) { return real(0x7fc00000u); }
    if (a == 1.0f) { return signed_as(real(0x7f800000u), x); }
    return signed_as(0.5f * log1p_f32(2.0f * a / (1.0f - a)), x);
}

// x + x P(x²) near zero, 1 - exp(Q(|x|)) beyond.
fn erf_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let t = min(abs(x), 4.0f);
    let s = t * t;
    if (t <= 0.9277344f) {
        var p = fma(-5.967617e-4f, s, 4.9911942e-3f);
        p = fma(p, s, -2.6768135e-2f);
        p = fma(p, s, 1.12819925e-1f);
        p = fma(p, s, -3.7612534e-1f);
        p = fma(p, s, 1.2837917e-1f);
        return signed_as(fma(p, t, t), x);
    }
    var r = fma(t, -1.7285347e-5f, 3.8319713e-4f);
    r = fma(r, s, fma(t, -3.8839644e-3f, 2.4254622e-2f));
    r = fma(r, t, -1.0677788e-1f);
    r = fma(r, t, -6.348467e-1f);
    r = fma(r, t, -1.2871751e-1f);
    r = fma(r, t, -t);
    return signed_as(1.0f - exp_sum(r, 0.0f), x);
}

// exp(-x²)·t·P(t) with t = 1/(1 + |x|/2) right of 0, 2 less that left of it; the square in two parts.
fn erfc_f32(x: f32) -> f32 {
    if (nan_of(x)) { return x; }
    let a = min(abs(x), 10.6f);
    let t = 1.0f / fma(a, 0.5f, 1.0f);
    var p = fma(0.036898073f, t, -0.1976996f);
    p = fma(p, t, 0.39862013f);
    p = fma(p, t, -0.3151144f);
    p = fma(p, t, 0.0020944867f);
    p = fma(p, t, 0.020400332f);
    p = fma(p, t, 0.061134603f);
    p = fma(p, t, 0.18387794f);
    p = fma(p, t, 0.2454752f);
    p = fma(p, t, 0.2822235f);
    p = fma(p, t, 0.28208974f);
    let square = a * a;
    let y = exp_sum(-square, -fma(a, a, -square)) * p * t;
    return select(y, 2.0f - y, x < 0.0f);
}

// By Giles's polynomials in w = -log((1 - x)(1 + x)).
fn erf_inv_f32(x: f32) -> f32 {
    let a = abs(x);
    if (nan_of(x) || a > 1.0f) { return real(0x7fc00000u); }
    if (a == 1.0f) { return signed_as(real(0x7f800000u), x); }
    let w = -log_f32((a + 1.0f) * (1.0f - a));
    if (w < 5.0f) {
        let t = w - 2.5f;
        var p = fma(2.8102264e-8f, t, 3.4327394e-7f);
        p = fma(p, t, -3.5233877e-6f);
        p = fma(p, t, -4.3915065e-6f);
        p = fma(p, t, 0.00021858087f);
        p = fma(p, t, -0.001253725f);
        p = fma(p, t, -0.0041776816f);
        p = fma(p, t, 0.24664073f);
        return fma(p, t, 1.5014094f) * x;
    }
    let t = sqrt(w) - 3.0f;
    var p = fma(-0.00020021426f, t, 0.00010095056f);
    p = fma(p, t, 0.0013493432f);
    p = fma(p, t, -0.0036734284f);
    p = fma(p, t, 0.0057395077f);
    p = fma(p, t, -0.0076224613f);
    p = fma(p, t, 0.00943887f);
    p = fma(p, t, 1.001674f);
    return fma(p, t, 2.8329768f) * x;
}

// A product and what it leaves out, by halves of the factors: whether `fma` rounds once is up to the device.
fn two_product(a: f32, b: f32) -> vec2<f32> {
    let p = a * b;
    let ah = real(bits(a) & 0xfffff000u);
    let bh = real(bits(b) & 0xfffff000u);
    let al = a - ah;
    let bl = b - bh;
    return vec2<f32>(p, ((ah * bh - p) + ah * bl + al * bh) + al * bl);
}

// A number less its last bits. No compiler knows what it leaves of a sum, so that none takes a sum less its part for the other part.
fn upper(x: f32) -> f32 { return real(bits(x) & 0xfffffff0u); }

// log of a positive number in two parts: 2s + s z (2/3 + z Q(z)) with s = f / (2 + f) and z = s².
fn log_pair(a: f32) -> vec2<f32> {
    let parts = log_parts(a);
    let f = parts.x;
    let d = f + 2.0f;
    let s = upper(f / d);
    let sf = two_product(s, f);
    // What s and the others leave out counts too.
    let s_low = (((f - 2.0f * s) - sf.x) - sf.y) / d;
    let zz = two_product(s, s);
    let z = zz.x;
    let z_low = zz.y + 2.0f * s * s_low;
    let t = two_product(z, 0.666666687f);
    let t_low = t.y + (z * -1.98682149e-8f + z_low * 0.666666687f);
    var q = fma(0.15384616f, z, 0.18181819f);
    q = fma(q, z, 0.22222222f);
    q = fma(q, z, 0.2857143f);
    q = fma(q, z, 0.4f);
    let more = z * z * q;
    let p = upper(t.x + more);
    let p_low = ((t.x - p) + more) + t_low;
    let u = two_product(s, p);
    let twice = 2.0f * s;
    let h = upper(twice + u.x);
    let h_low = ((twice - h) + u.x) + (u.y + s * p_low + s_low * p) + 2.0f * s_low;
    // The first part of e log 2 is exact.
    let big = parts.y * 0.693359375f;
    let sum = upper(big + h);
    let low = ((big - sum) + h) + h_low + parts.y * -2.1219444e-4f;
    let hi = upper(sum + low);
    return vec2<f32>(hi, (sum - hi) + low);
}

// eˣ⁺ᵈ for a small d; what is rounded off before the last addition is less than half a unit.
fn exp_pair(x: f32, d: f32) -> f32 {
    let n = round(x * 1.44269504f);
    // log 2 in parts whose products with n are exact, and the rest.
    let near = x - n * 0.693359375f;
    let next = n * 0.00021219253540039062f;
    let r = upper(near + next);
    let off = ((near - r) + next) + n * 1.9046542e-9f + d;
    let sum = upper(1.0f + r);
    let left = (1.0f - sum) + r;
    let more = r * r * exp_rest(r);
    return scaled(sum + (more + (off * (sum + more) + left)), i32(n));
}

fn pow_f32(x: f32, y: f32) -> f32 {
    let inf = real(0x7f800000u);
    if (x == 1.0f || y == 0.0f) { return 1.0f; }
    if (nan_of(x) || nan_of(y)) { return real(0x7fc00000u); }
    let a = abs(x);
    var r = 0.0f;
    if (!finite_of(y)) {
        if (a == 1.0f) { return 1.0f; }
        return select(0.0f, inf, (a > 1.0f) == (y > 0.0f));
    }
    let whole = floor(y) == y;
    let odd = whole && floor(y * 0.5f) != y * 0.5f;
    if (a == 0.0f) {
        r = select(0.0f, inf, y < 0.0f);
    } else if (!finite_of(a)) {
        r = select(inf, 0.0f, y < 0.0f);
    } else {
        if (x < 0.0f && !whole) { return real(0x7fc00000u); }
        let l = log_pair(a);
        let p = two_product(y, l.x);
        if (p.x > 90.0f) {
            r = inf;
        } else if (p.x >= -105.0f) {
            r = exp_pair(p.x, p.y + y * l.y);
        }
    }
    return select(r, -r, odd && (bits(x) & 0x80000000u) != 0u);
}

fn sin_pi(x: f32) -> f32 {
    // The distance to the nearest whole number is exact.
    let d = abs(x - round(x));
    return sin_poly_wide(3.14159274f * d);
}

fn sin_poly_wide(r: f32) -> f32 { return select(sin_poly(r), cos_poly(1.57079637f - r), r > 0.785398f); }

fn lgamma_f32(x: f32) -> f32 {
    let inf = real(0x7f800000u);
    if (nan_of(x)) { return x; }
    if (!finite_of(x)) { return inf; }
    if (x <= 0.0f) {
        if (floor(x) == x) { return inf; }
        if (x > -1.0e-6f) { return -log_f32(-x); }
        return 1.14472989f - log_f32(sin_pi(x)) - lgamma_right(1.0f - x);
    }
    return lgamma_right(x);
}

fn lgamma_right(x: f32) -> f32 {
    if (x < 8.0f) {
        // To 1.5 .. 2.5 by factors.
        var t = x;
        var product = 1.0f;
        for (; t >= 2.5f;) {
            t -= 1.0f;
            product *= t;
        }
        var below = 1.0f;
        for (; t < 1.5f;) {
            below *= t;
            t += 1.0f;
        }
        let u = select(t - 2.0f, x - 1.0f, x < 1.5f && x >= 0.5f);
        var p = fma(0.00011500355f, u, -0.00025386186f);
        p = fma(p, u, 0.0005056574f);
        p = fma(p, u, -0.0011858377f);
        p = fma(p, u, 0.002890956f);
        p = fma(p, u, -0.0073861778f);
        p = fma(p, u, 0.020580789f);
        p = fma(p, u, -0.06735228f);
        p = fma(p, u, 0.32246703f);
        p = fma(p, u, 0.42278433f) * u;
        if (x < 1.5f && x >= 0.5f) { return p - log1p_f32(x - 1.0f); }
        return p + select(-log_f32(below), log_f32(product), x >= 2.5f);
    }
    let z = 1.0f / x;
    let s = fma(fma(7.9365079e-4f, z * z, -2.7777778e-3f), z * z, 8.3333333e-2f) * z;
    if (x > 1.0e8f) { return x * (log_f32(x) - 1.0f); }
    return fma(x - 0.5f, log_f32(x), 0.918938533f - x + s);
}

fn digamma_f32(given: f32) -> f32 {
    if (given == 0.0f) { return real(0xff800000u ^ (bits(given) & 0x80000000u)); }
    if (nan_of(given) || bits(given) == 0xff800000u) { return real(0x7fc00000u); }
    var x = given;
    var back = 0.0f;
    if (x < 0.0f) {
        if (floor(x) == x) { return real(0x7fc00000u); }
        back = 3.14159274f / tan_f32(3.14159274f * (x - round(x)));
        x = 1.0f - x;
    }
    var shift = 0.0f;
    for (; x < 6.0f;) {
        shift += 1.0f / x;
        x += 1.0f;
    }
    let z = 1.0f / (x * x);
    var s = fma(-0.0041666667f, z, 0.003968254f);
    s = fma(s, z, -0.0083333333f);
    s = fma(s, z, 0.083333333f) * z;
    return (log_f32(x) - 0.5f / x - s) - shift - back;
}

fn zeta_sum(s: f32, q: f32) -> f32 {
    if (!finite_of(s)) { return real(0x7fc00000u); }
    var sum = 0.0f;
    var a = q;
    for (; a < 9.0f;) {
        sum += pow_f32(a, -s);
        a += 1.0f;
    }
    let w = pow_f32(a, -s);
    sum += pow_f32(a, 1.0f - s) / (s - 1.0f) + 0.5f * w;
    var b = array<f32, 6>(0.083333333f, -1.3888889e-3f, 3.3068783e-5f, -8.2671958e-7f, 2.0876757e-8f, -5.2841901e-10f);
    var factor = s;
    var power = w / a;
    for (var k = 0u; k < 6u; k += 1u) {
        let term = b[k] * factor * power;
        if (!finite_of(term)) { break; }
        sum += term;
        if (abs(term) < 1.0e-9f * abs(sum)) { break; }
        let n = s + 2.0f * f32(k);
        factor *= (n + 1.0f) * (n + 2.0f);
        power /= a * a;
    }
    return sum;
}

fn zeta_f32(s: f32, q: f32) -> f32 {
    let nan = real(0x7fc00000u);
    let inf = real(0x7f800000u);
    if (nan_of(s) || nan_of(q) || s < 1.0f) { return nan; }
    if (s == 1.0f) { return inf; }
    if (bits(q) == 0x7f800000u) { return 0.0f; }
    if (q <= 0.0f) {
        if (!finite_of(q) || s != floor(s)) { return nan; }
        if (q == floor(q)) { return inf; }
        // What derivatives of lgamma and digamma need is reflected.
        if (s == 2.0f || s == 3.0f) {
            let over = 3.14159274f / sin_pi(q);
            if (s == 2.0f) { return over * over - zeta_sum(s, 1.0f - q); }
            let off = q - round(q);
            let turn = sin_poly_wide(3.14159274f * abs(0.5f - abs(off)));
            return signed_as(over * over * over * turn, off) + zeta_sum(s, 1.0f - q);
        }
        if (q < -10000.0f) { return nan; }
    }
    return zeta_sum(s, q);
}
