//! Scalar functions at arguments with representable results: a backend must return exactly these numbers, in every float dtype
//! that it supports.
//!
//! The results are derived from integers, or from C's rules for special values (annex F), not from the reference.

use ir::{Binary, Builder, DType, Graph, GraphBuilder, Literal, Scalar, Type, Unary};

/// One function of one dtype at all its points.
pub struct ExactPoints {
    /// `op dtype`.
    pub name: String,
    /// The function of vectors.
    pub graph: Graph,
    /// The arguments.
    pub inputs: Vec<Literal>,
    /// The results.
    pub want: Literal,
}

/// The float dtypes.
const FLOATS: [DType; 6] = [DType::F64, DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2];

/// The arguments and the result.
type Point = ([f64; 2], f64);

/// A function of one or two numbers.
#[derive(Clone, Copy)]
enum Function {
    Unary(Unary),
    Binary(Binary),
}

/// All functions with such points, in all float dtypes.
pub fn exact_function_points() -> Vec<ExactPoints> {
    let mut all = Vec::new();
    for dtype in FLOATS {
        for (function, points) in functions(dtype) {
            all.extend(exact(function, dtype, &points));
        }
    }
    all
}

/// The points that are representable in a dtype, without subnormal numbers, which some devices flush to zero.
fn exact(function: Function, dtype: DType, points: &[Point]) -> Option<ExactPoints> {
    let smallest = smallest(dtype);
    let has = |x: f64| {
        let s = Scalar::from_f64(dtype, x);
        let same = s.to_f64() == x || (x.is_nan() && s.to_f64().is_nan());
        same && (x == 0.0 || !x.is_finite() || x.abs() >= smallest)
    };
    let (arity, name) = match function {
        Function::Unary(op) => (1, op.name()),
        Function::Binary(op) => (2, op.name()),
    };
    let points: Vec<Point> =
        points.iter().copied().filter(|(x, y)| x[..arity].iter().all(|&x| has(x)) && has(*y)).collect();
    if points.is_empty() {
        return None;
    }
    let ty = Type::new(dtype, &[points.len()]);
    let literal = |f: &dyn Fn(&Point) -> f64| Literal::from_fn(ty.clone(), |i| Scalar::from_f64(dtype, f(&points[i])));
    let mut b = Builder::new();
    let x = b.input(dtype, &[points.len()]);
    let y = match function {
        Function::Unary(op) => b.unary(op, x),
        Function::Binary(op) => {
            let y = b.input(dtype, &[points.len()]);
            b.binary(op, x, y)
        }
    };
    let y = y.expect("a function of floats");
    let inputs = (0..arity).map(|k| literal(&|p| p.0[k])).collect();
    Some(ExactPoints { name: format!("{name} {dtype}"), graph: b.finish(&[y]), inputs, want: literal(&|p| p.1) })
}

/// 2ᵏ, because `powi` flushes subnormal numbers to zero.
fn two_to(k: i32) -> f64 {
    2f64.powf(f64::from(k))
}

/// The smallest normal number.
fn smallest(dtype: DType) -> f64 {
    2f64.powi(match dtype {
        DType::F64 => -1022,
        DType::F32 | DType::BF16 => -126,
        DType::F16 | DType::F8E5M2 => -14,
        _ => -6,
    })
}

fn functions(dtype: DType) -> Vec<(Function, Vec<Point>)> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let one = |points: Vec<(f64, f64)>| points.into_iter().map(|(x, y)| ([x, 0.0], y)).collect::<Vec<Point>>();
    // Functions that give 0 at 0, with its sign.
    let mut all: Vec<(Function, Vec<Point>)> = [
        Unary::Sin,
        Unary::Tan,
        Unary::Asin,
        Unary::Atan,
        Unary::Sinh,
        Unary::Tanh,
        Unary::Asinh,
        Unary::Atanh,
        Unary::Expm1,
        Unary::Log1p,
        Unary::Erf,
        Unary::ErfInv,
        Unary::Sqrt,
    ]
    .into_iter()
    .map(|f| (Function::Unary(f), one(vec![(0.0, 0.0), (-0.0, -0.0), (nan, nan)])))
    .collect();
    let powers: Vec<(f64, f64)> = (-1074..=1023).map(|k| (f64::from(k), two_to(k))).collect();
    let turned = |p: &[(f64, f64)]| p.iter().map(|&(k, p)| (p, k)).collect::<Vec<_>>();
    all.push((
        Function::Unary(Unary::Exp2),
        one([&powers[..], &[(inf, inf), (-inf, 0.0), (nan, nan), (-0.0, 1.0)]].concat()),
    ));
    all.push((
        Function::Unary(Unary::Log2),
        one([&turned(&powers)[..], &[(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan)]].concat()),
    ));
    all.push((Function::Unary(Unary::Exp), one(vec![(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (nan, nan)])));
    all.push((
        Function::Unary(Unary::Log),
        one(vec![(1.0, 0.0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan)]),
    ));
    all.push((Function::Unary(Unary::Log10), one(tens(dtype))));
    let squares = (1..3000).map(|n| f64::from(n * n)).zip((1..3000).map(f64::from));
    let wide =
        (0..3000u64).map(|i| (i * 22_369 + 1) as f64 + 67_000_000.0 * (i % 2) as f64).filter(|n| *n < 94_000_000.0);
    let squares = squares.chain(wide.map(|n| (n * n, n)));
    all.push((Function::Unary(Unary::Sqrt), one(squares.chain([(inf, inf), (-1.0, nan), (-inf, nan)]).collect())));
    let halves = powers.iter().map(|&(k, p)| (4f64.powf(k), 1.0 / p)).filter(|(x, _)| x.is_normal());
    all.push((Function::Unary(Unary::Rsqrt), one(halves.chain([(inf, 0.0), (0.0, inf), (-1.0, nan)]).collect())));
    let inverse = powers.iter().map(|&(_, p)| (p, 1.0 / p));
    all.push((
        Function::Unary(Unary::Reciprocal),
        one(inverse.chain([(inf, 0.0), (-inf, -0.0), (0.0, inf), (-0.0, -inf)]).collect()),
    ));
    all.push((Function::Unary(Unary::Cos), one(vec![(0.0, 1.0), (-0.0, 1.0), (nan, nan)])));
    all.push((Function::Unary(Unary::Cosh), one(vec![(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, inf), (nan, nan)])));
    all.push((Function::Unary(Unary::Acos), one(vec![(1.0, 0.0), (nan, nan)])));
    all.push((Function::Unary(Unary::Acosh), one(vec![(1.0, 0.0), (inf, inf), (0.5, nan), (-inf, nan)])));
    all.push((Function::Unary(Unary::Logistic), one(vec![(0.0, 0.5), (inf, 1.0), (-inf, 0.0), (nan, nan)])));
    all.push((Function::Unary(Unary::Erfc), one(vec![(0.0, 1.0), (inf, 0.0), (-inf, 2.0), (nan, nan)])));
    all.push((Function::Unary(Unary::Lgamma), one(vec![(inf, inf), (-inf, inf), (0.0, inf), (-3.0, inf), (nan, nan)])));
    all.push((Function::Binary(Binary::Pow), whole_powers(dtype)));
    all.push((Function::Binary(Binary::Pow), roots()));
    all.push((Function::Binary(Binary::Pow), special_powers()));
    all.push((Function::Binary(Binary::Atan2), special_angles()));
    all.push((Function::Binary(Binary::Rem), remainders()));
    all
}

/// Powers of ten, or the nearest representable numbers: their logarithm also rounds to the exponent, except for a few with large
/// fractions.
fn tens(dtype: DType) -> Vec<(f64, f64)> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut all = vec![(0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (1.0, 0.0)];
    for k in -307..=308 {
        let ten: f64 = format!("1e{k}").parse().expect("a number");
        let near = Scalar::from_f64(dtype, ten).to_f64();
        // The distance of the logarithm from k must be less than a quarter ulp.
        let off = (near - ten) / ten / 10f64.ln();
        let unit = 2f64.powi(f64::from(k).abs().log2().floor() as i32) * epsilon(dtype);
        if k != 0 && near.is_finite() && near > 0.0 && (off.abs() < unit / 4.0) {
            all.push((near, f64::from(k)));
        }
    }
    all
}

fn epsilon(dtype: DType) -> f64 {
    2f64.powi(match dtype {
        DType::F64 => -52,
        DType::F32 => -23,
        DType::F16 => -10,
        DType::BF16 => -7,
        DType::F8E4M3 => -3,
        _ => -2,
    })
}

/// Integers and fractions to integer powers.
fn whole_powers(dtype: DType) -> Vec<Point> {
    let limit = if dtype == DType::F64 { 1u128 << 53 } else { 1 << 24 };
    let mut all = Vec::new();
    for base in (1..2000u128).chain((0..400).map(|i| i * 237_449 + 2001)) {
        let mut power = 1u128;
        for k in 0..400 {
            // The odd part of the power determines whether it is representable.
            let twos = power.trailing_zeros();
            if power >> twos > limit || twos > 70 {
                break;
            }
            for shift in [0i32, -3, 5] {
                let scale = 2f64.powi(shift);
                let (x, y) = (base as f64 * scale, power as f64 * two_to(shift * k));
                let odd = if k % 2 == 1 { -y } else { y };
                all.extend([([x, f64::from(k)], y), ([-x, f64::from(k)], odd)]);
                if power.is_power_of_two() && y.is_normal() {
                    all.extend([([x, f64::from(-k)], 1.0 / y), ([-x, f64::from(-k)], 1.0 / odd)]);
                }
            }
            let Some(next) = power.checked_mul(base) else { break };
            power = next;
        }
    }
    all.extend((-1074..=1023).map(|k| ([2.0, f64::from(k)], two_to(k))));
    all.extend((-1074..=1023).map(|k| ([0.5, f64::from(-k)], two_to(k))));
    // Any number to the first power.
    all.extend((0..4000).map(|i| f64::from(i) * 1.37e-3 * 10f64.powi(i % 600 - 300)).map(|x| {
        let x = Scalar::from_f64(dtype, x).to_f64();
        ([x, 1.0], x)
    }));
    all
}

/// Powers with exponents that are multiples of a half, a quarter or an eighth.
fn roots() -> Vec<Point> {
    let mut all = Vec::new();
    for n in 1..1500u64 {
        for (root, whole) in [(2u32, 1u32), (2, 3), (4, 1), (4, 3), (8, 1), (8, 5)] {
            let (Some(x), Some(y)) = (n.checked_pow(root), n.checked_pow(whole)) else { continue };
            if x < 1 << 53 && y < 1 << 53 {
                all.push(([x as f64, f64::from(whole) / f64::from(root)], y as f64));
            }
        }
    }
    all
}

fn special_powers() -> Vec<Point> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut all: Vec<Point> = Vec::new();
    for x in [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, -3.0, inf, -inf, nan] {
        all.extend([([x, 0.0], 1.0), ([x, -0.0], 1.0), ([1.0, x], 1.0)]);
    }
    for (size, up) in [(0.5, false), (2.0, true), (0.0, false), (inf, true)] {
        for x in [size, -size] {
            all.push(([x, inf], if up { inf } else { 0.0 }));
            all.push(([x, -inf], if up { 0.0 } else { inf }));
        }
    }
    all.extend([
        ([-1.0, inf], 1.0),
        ([-1.0, -inf], 1.0),
        ([-2.0, 0.5], nan),
        ([-0.5, -2.5], nan),
        ([nan, 1.0], nan),
        ([2.0, nan], nan),
    ]);
    for (y, odd) in [(1.0, true), (3.0, true), (2.0, false), (0.5, false), (2.5, false), (12.0, false)] {
        let sign = |v: f64| if odd { -v } else { v };
        all.extend([([0.0, y], 0.0), ([-0.0, y], sign(0.0)), ([0.0, -y], inf), ([-0.0, -y], sign(inf))]);
        all.extend([([inf, y], inf), ([-inf, y], sign(inf)), ([inf, -y], 0.0), ([-inf, -y], sign(0.0))]);
    }
    all
}

fn special_angles() -> Vec<Point> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut all: Vec<Point> = vec![([nan, 1.0], nan), ([1.0, nan], nan), ([nan, inf], nan), ([0.0, nan], nan)];
    for y in [0.0, -0.0] {
        all.extend([0.0, 1.0, 3.0, 0.5, inf].map(|x| ([y, x], y)));
    }
    for y in [1.0, -1.0, 2.5, 128.0] {
        all.push(([y, inf], 0f64.copysign(y)));
    }
    all
}

fn remainders() -> Vec<Point> {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut all: Vec<Point> =
        vec![([inf, 1.0], nan), ([1.0, 0.0], nan), ([nan, 1.0], nan), ([1.0, nan], nan), ([0.0, 0.0], nan)];
    all.extend([([0.0, 3.0], 0.0), ([-0.0, 3.0], -0.0), ([1.0, inf], 1.0), ([-2.0, -inf], -2.0)]);
    for x in -60i64..60 {
        for y in 1i64..40 {
            let r = ((x % y) as f64).copysign(x as f64);
            let r = if x == 0 { 0.0 } else { r };
            all.extend([
                ([x as f64, y as f64], r),
                ([x as f64, -y as f64], r),
                ([x as f64 * 0.25, y as f64 * 0.25], r * 0.25),
            ]);
        }
    }
    all
}
