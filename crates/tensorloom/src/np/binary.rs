//! Functions of two numbers.

use crate::record::{self, align, float_of};
use crate::{DType, Number, Operand, Tensor};
use ir::ops::{Clamp, StopGradient};
use ir::{Binary, Compare, GraphBuilder, Unary, Value};

/// Two operands as tensors; a number takes the dtype of the other.
#[track_caller]
pub(crate) fn pair(x: Operand, y: Operand) -> (Tensor, Tensor) {
    match (&x, &y) {
        (Operand::Tensor(a), _) => (a.clone(), y.to_tensor_like(a)),
        (_, Operand::Tensor(b)) => (x.to_tensor_like(b), b.clone()),
        _ => {
            let like = crate::zeros(&[]);
            (x.to_tensor_like(&like), y.to_tensor_like(&like))
        }
    }
}

#[track_caller]
fn two(
    op: &'static str,
    x: impl Into<Operand>,
    y: impl Into<Operand>,
    float: bool,
    f: impl FnOnce(&mut dyn GraphBuilder, Value, Value) -> ir::Result<Value>,
) -> Tensor {
    let (x, y) = pair(x.into(), y.into());
    record::one(&[&x, &y], |b, v| {
        let (mut x, mut y) = align(b, op, v[0], v[1])?;
        if float {
            let d = float_of(b.ty(x).dtype);
            (x, y) = (b.cast(x, d)?, b.cast(y, d)?);
        }
        f(b, x, y)
    })
}

/// What bools are to an op of two numbers.
enum Bools {
    /// Bools: what the op takes, or an error.
    Same,
    /// Operands of another op, of bools.
    By(Binary),
    /// Numbers of i8, as in NumPy.
    Numbers,
    /// Floats, as integers are.
    Floats,
}

/// Records an op of two operands of one dtype.
fn record(b: &mut dyn GraphBuilder, op: Binary, bools: &Bools, x: Value, y: Value) -> ir::Result<Value> {
    if b.ty(x).dtype != DType::Bool {
        return b.binary(op, x, y);
    }
    match bools {
        Bools::By(other) => b.binary(*other, x, y),
        Bools::Numbers => {
            let (x, y) = (b.cast(x, DType::I8)?, b.cast(y, DType::I8)?);
            b.binary(op, x, y)
        }
        Bools::Same | Bools::Floats => b.binary(op, x, y),
    }
}

macro_rules! binaries {
    ($bools:expr, $($(#[$doc:meta])* $name:ident $(| $alias:ident)* => $op:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
            let _here = crate::record::here();
            let float = matches!($bools, Bools::Floats);
            two(stringify!($name), x, y, float, |b, x, y| record(b, Binary::$op, &$bools, x, y))
        }
        $(pub use self::$name as $alias;)*
    )* };
}

binaries! { Bools::By(Binary::Or),
    /// `x + y`; of bools whether any is true.
    add => Add,
}

binaries! { Bools::By(Binary::And),
    /// `x · y`, elementwise; of bools whether both are true.
    multiply => Mul,
}

binaries! { Bools::Same,
    /// `x − y`.
    subtract => Sub,
    /// The larger; NaN if either is.
    maximum => Max,
    /// The smaller; NaN if either is.
    minimum => Min,
    /// Bitwise and.
    bitwise_and => And,
    /// Bitwise or.
    bitwise_or => Or,
    /// Bitwise exclusive or.
    bitwise_xor => Xor,
}

binaries! { Bools::Numbers,
    /// `xʸ`.
    power | pow => Pow,
    /// Remainder with the sign of `x`.
    fmod => Rem,
    /// `x · 2ʸ` for integers.
    left_shift | bitwise_left_shift => Shl,
    /// `x / 2ʸ` for integers, rounded down.
    right_shift | bitwise_right_shift => Shr,
}

binaries! { Bools::Floats,
    /// `x / y` as floats.
    divide | true_divide => Div,
    /// Angle of the point `(y, x)`.
    arctan2 | atan2 => Atan2,
    /// `xʸ` as floats.
    float_power => Pow,
}

macro_rules! compares {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
            let _here = crate::record::here();
            two(stringify!($name), x, y, false, |b, x, y| b.compare(Compare::$op, x, y))
        }
    )* };
}

compares! {
    /// `x == y`.
    equal => Eq,
    /// `x != y`.
    not_equal => Ne,
    /// `x < y`.
    less => Lt,
    /// `x <= y`.
    less_equal => Le,
    /// `x > y`.
    greater => Gt,
    /// `x >= y`.
    greater_equal => Ge,
}

/// The quotient rounded down, and the remainder with the sign of `y`.
#[track_caller]
pub fn divmod(x: impl Into<Operand>, y: impl Into<Operand>) -> (Tensor, Tensor) {
    let _here = crate::record::here();
    let (x, y) = pair(x.into(), y.into());
    (floor_divide(&x, &y), remainder(&x, &y))
}

/// `x / y` rounded down.
#[track_caller]
pub fn floor_divide(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("floor_divide", x, y, false, |b, x, y| {
        let (x, y) = (counting(b, x)?, counting(b, y)?);
        let d = b.ty(x).dtype;
        if d.is_float() {
            // As NumPy has it: nothing divides an infinity, and by zero the quotient is that of `/`.
            let r = b.binary(Binary::Rem, x, y)?;
            let whole = b.sub(x, r)?;
            let q = b.div(whole, y)?;
            let down = signs_differ(b, r, y)?;
            let less = b.offset(q, -1.0)?;
            let q = b.select(down, less, q)?;
            let q = b.unary(Unary::Round, q)?;
            // Zeros have the sign of the quotient, which is all there is where `y` is zero.
            let (exact, zero) = (b.div(x, y)?, b.full_like(x, 0.0)?);
            let (none, by_zero) = (b.compare(Compare::Eq, q, zero)?, b.compare(Compare::Eq, y, zero)?);
            let minus = sign_bit(b, exact)?;
            let below = b.neg(zero)?;
            let signed = b.select(minus, below, zero)?;
            let q = b.select(none, signed, q)?;
            return b.select(by_zero, exact, q);
        }
        let q = b.div(x, y)?;
        if d.kind() != ir::DTypeKind::Signed {
            return Ok(q);
        }
        let r = b.binary(Binary::Rem, x, y)?;
        let zero = b.full_like(r, 0.0)?;
        let (some, sr, sy) = (b.compare(Compare::Ne, r, zero)?, b.unary(Unary::Sign, r)?, b.unary(Unary::Sign, y)?);
        let differ = b.compare(Compare::Ne, sr, sy)?;
        let down = b.binary(Binary::And, some, differ)?;
        let less = b.offset(q, -1.0)?;
        b.select(down, less, q)
    })
}

/// Bools as numbers of i8, as NumPy divides them.
fn counting(b: &mut dyn GraphBuilder, x: Value) -> ir::Result<Value> {
    if b.ty(x).dtype == DType::Bool { b.cast(x, DType::I8) } else { Ok(x) }
}

/// Whether a remainder is other than zero and has another sign than the divisor.
fn signs_differ(b: &mut dyn GraphBuilder, r: Value, y: Value) -> ir::Result<Value> {
    let zero = b.full_like(r, 0.0)?;
    let (r_low, y_low) = (b.compare(Compare::Lt, r, zero)?, b.compare(Compare::Lt, y, zero)?);
    let (some, differ) = (b.compare(Compare::Ne, r, zero)?, b.binary(Binary::Xor, r_low, y_low)?);
    b.binary(Binary::And, some, differ)
}

/// The remainder with the divisor's sign; a zero has it too.
fn modulo(b: &mut dyn GraphBuilder, x: Value, y: Value) -> ir::Result<Value> {
    let (x, y) = (counting(b, x)?, counting(b, y)?);
    let r = b.binary(Binary::Rem, x, y)?;
    let fix = signs_differ(b, r, y)?;
    let moved = b.add(r, y)?;
    let fixed = b.select(fix, moved, r)?;
    if !b.ty(x).dtype.is_float() {
        return Ok(fixed);
    }
    let zero = b.full_like(r, 0.0)?;
    let (none, minus, below) = (b.compare(Compare::Eq, r, zero)?, sign_bit(b, y)?, sign_bit(b, r)?);
    // Only where it is wrong: elsewhere zeros keep their derivative.
    let differs = b.binary(Binary::Xor, minus, below)?;
    let wrong = b.binary(Binary::And, none, differs)?;
    let negative = b.neg(zero)?;
    let signed = b.select(minus, negative, zero)?;
    b.select(wrong, signed, fixed)
}

/// The remainder with the sign of `y`.
#[track_caller]
pub fn remainder(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("remainder", x, y, false, modulo)
}

/// `√(x² + y²)` without overflow.
#[track_caller]
pub fn hypot(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("hypot", x, y, true, |b, x, y| {
        let d = b.ty(x).dtype;
        let wide = if d.bits() < 32 { DType::F32 } else { d };
        let (x, y) = (b.cast(x, wide)?, b.cast(y, wide)?);
        let r = length(b, x, y)?;
        b.cast(r, d)
    })
}

/// Multiplies by a power of two first where a square would overflow or vanish, and by its reciprocal last.
fn length(b: &mut dyn GraphBuilder, x: Value, y: Value) -> ir::Result<Value> {
    // Numbers above `high` times `down`, and numbers below `low` times `up`, have squares in the middle of the range.
    let [high, down, low, up] = match b.ty(x).dtype {
        DType::F64 => [510, -514, -400, 600],
        _ => [60, -66, -40, 100],
    }
    .map(|e| 2f64.powi(e));
    let (x, y) = (b.unary(Unary::Abs, x)?, b.unary(Unary::Abs, y)?);
    let (inf, zero, one) = (b.full_like(x, f64::INFINITY)?, b.full_like(x, 0.0)?, b.full_like(x, 1.0)?);
    let larger = b.binary(Binary::Max, x, y)?;
    // Infinite if either is, whatever the other.
    let (x_inf, y_inf) = (b.compare(Compare::Eq, x, inf)?, b.compare(Compare::Eq, y, inf)?);
    let infinite = b.binary(Binary::Or, x_inf, y_inf)?;
    let none = b.compare(Compare::Eq, larger, zero)?;
    let special = b.binary(Binary::Or, infinite, none)?;
    let (x, y) = (b.select(special, one, x)?, b.select(special, one, y)?);
    let (most, least) = (b.full_like(x, high)?, b.full_like(x, low)?);
    let (large, small) = (b.compare(Compare::Gt, larger, most)?, b.compare(Compare::Lt, larger, least)?);
    let mut by = |down: f64, up: f64| {
        let (down, up) = (b.full_like(x, down)?, b.full_like(x, up)?);
        let factor = b.select(small, up, one)?;
        b.select(large, down, factor)
    };
    let (there, back) = (by(down, up)?, by(1.0 / down, 1.0 / up)?);
    let (x, y) = (b.mul(x, there)?, b.mul(y, there)?);
    let (xx, yy) = (b.mul(x, x)?, b.mul(y, y)?);
    let sum = b.add(xx, yy)?;
    let root = b.unary(Unary::Sqrt, sum)?;
    let usual = b.mul(root, back)?;
    let end = b.select(infinite, inf, larger)?;
    b.select(special, end, usual)
}

/// `log(eˣ + eʸ)` for the base of `power`, whose logarithm is `ln`.
///
/// Its value is that of `max + log1p(e^−|x−y|)`, which keeps small digits but has a corner where `x = y`; derivatives of all
/// orders are those of `m + log(eˣ⁻ᵐ + eʸ⁻ᵐ)` for a constant `m`, which has none.
fn log_sum(b: &mut dyn GraphBuilder, x: Value, y: Value, power: Unary, ln: f64) -> ir::Result<Value> {
    let larger = b.binary(Binary::Max, x, y)?;
    let top = b.one(StopGradient.into(), &[larger])?;
    // NaN goes through all of it, and so into the derivatives.
    let (inf, zero) = (b.full_like(top, f64::INFINITY)?, b.full_like(top, 0.0)?);
    let size = b.unary(Unary::Abs, top)?;
    let finite = b.compare(Compare::Ne, size, inf)?;
    let mut safe = |v: Value| b.select(finite, v, zero);
    let (x, y, m) = (safe(x)?, safe(y)?, safe(top)?);
    let mut term = |v: Value| {
        let d = b.sub(v, m)?;
        b.unary(power, d)
    };
    let (ex, ey) = (term(x)?, term(y)?);
    let sum = b.add(ex, ey)?;
    let smooth = b.unary(Unary::Log, sum)?;
    let less = b.binary(Binary::Min, ex, ey)?;
    let exact = b.unary(Unary::Log1p, less)?;
    let fix = b.sub(exact, smooth)?;
    let fix = b.one(StopGradient.into(), &[fix])?;
    let rest = b.add(smooth, fix)?;
    let rest = b.scale(rest, 1.0 / ln)?;
    let sum = b.add(m, rest)?;
    // An infinite number is its own answer.
    b.select(finite, sum, larger)
}

/// `log(eˣ + eʸ)` without overflow.
#[track_caller]
pub fn logaddexp(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("logaddexp", x, y, true, |b, x, y| log_sum(b, x, y, Unary::Exp, 1.0))
}

/// `log₂(2ˣ + 2ʸ)` without overflow.
#[track_caller]
pub fn logaddexp2(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("logaddexp2", x, y, true, |b, x, y| log_sum(b, x, y, Unary::Exp2, std::f64::consts::LN_2))
}

/// The larger of the numbers; NaN only if both are.
#[track_caller]
pub fn fmax(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("fmax", x, y, false, |b, x, y| prefer(b, x, y, Compare::Gt))
}

/// The smaller of the numbers; NaN only if both are.
#[track_caller]
pub fn fmin(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("fmin", x, y, false, |b, x, y| prefer(b, x, y, Compare::Lt))
}

fn prefer(b: &mut dyn GraphBuilder, x: Value, y: Value, by: Compare) -> ir::Result<Value> {
    let (better, y_nan) = (b.compare(by, x, y)?, b.compare(Compare::Ne, y, y)?);
    let first = b.binary(Binary::Or, better, y_nan)?;
    b.select(first, x, y)
}

/// The size of `x` with the sign of `y`.
#[track_caller]
pub fn copysign(x: impl Into<Operand>, y: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("copysign", x, y, true, |b, x, y| {
        let minus = sign_bit(b, y)?;
        let own = sign_bit(b, x)?;
        let flip = b.binary(Binary::Xor, minus, own)?;
        let n = b.neg(x)?;
        b.select(flip, n, x)
    })
}

/// Whether the sign bit of a float is set.
pub(super) fn sign_bit(b: &mut dyn GraphBuilder, x: Value) -> ir::Result<Value> {
    let d = match b.ty(x).dtype.bits() {
        64 => DType::I64,
        32 => DType::I32,
        16 => DType::I16,
        _ => DType::I8,
    };
    let bits = b.one(ir::ops::Bitcast(d).into(), &[x])?;
    let zero = b.full_like(bits, 0.0)?;
    b.compare(Compare::Lt, bits, zero)
}

/// Whether the sign is minus, of −0 and NaN too.
#[track_caller]
pub fn signbit(x: &Tensor) -> Tensor {
    let _here = crate::record::here();
    record::one(&[x], |b, v| {
        if b.ty(v[0]).dtype.is_float() {
            return sign_bit(b, v[0]);
        }
        let zero = b.full_like(v[0], 0.0)?;
        b.compare(Compare::Lt, v[0], zero)
    })
}

/// 0 below 0, `at_zero` at 0, 1 above.
#[track_caller]
pub fn heaviside(x: impl Into<Operand>, at_zero: impl Into<Operand>) -> Tensor {
    let _here = crate::record::here();
    two("heaviside", x, at_zero, true, |b, x, h| {
        let (zero, one) = (b.full_like(x, 0.0)?, b.full_like(x, 1.0)?);
        let (low, at) = (b.compare(Compare::Lt, x, zero)?, b.compare(Compare::Eq, x, zero)?);
        let y = b.select(low, zero, one)?;
        let y = b.select(at, h, y)?;
        let nan = b.compare(Compare::Ne, x, x)?;
        b.select(nan, x, y)
    })
}

/// `x · 2ⁿ`.
#[track_caller]
pub fn ldexp(x: &Tensor, n: &Tensor) -> Tensor {
    let _here = crate::record::here();
    let d = float_of(x.dtype());
    let wide = if d.bits() < 32 { DType::F32 } else { d };
    // The largest power, the smallest, and the smallest whose product with a number of full precision is exact.
    let (most, least, step) = if wide == DType::F64 { (1023.0, -1022.0, -969.0) } else { (127.0, -126.0, -102.0) };
    let (mut y, mut left) = (x.cast(wide), n.cast(wide).clamp(3.0 * least, 3.0 * most));
    // Powers beyond the range in three factors, of which only the last can round.
    for _ in 0..2 {
        let under = less(&left, least);
        let part = super::where_(&under, step, &left.clamp(least, most));
        let beyond = under.or(&greater(&left, most));
        let part = super::where_(&beyond, &part, 0.0);
        y = y * part.exp2();
        left = left - part;
    }
    (y * left.clamp(least, most).exp2()).cast(d)
}

/// Moves every element into `low..=high`; either bound may be missing.
#[track_caller]
pub fn clip(x: &Tensor, low: Option<Operand>, high: Option<Operand>) -> Tensor {
    let _here = crate::record::here();
    // Bounds that the dtype has no place for are compared in a dtype that has.
    let fits = |n: &Number| match (x.error(), n) {
        (Some(_), _) => true,
        (None, Number::Float(n)) => x.dtype().is_float() || (x.dtype() != DType::Bool && n.fract() == 0.0),
        (None, n) => x.dtype() != DType::Bool && n.to_scalar(x.dtype()).is_some(),
    };
    match (low, high) {
        (Some(Operand::Number(l)), Some(Operand::Number(h))) if fits(&l) && fits(&h) => record::one(&[x], |b, v| {
            let d = b.ty(v[0]).dtype;
            let ty = b.ty(v[0]);
            let (l, h) =
                (b.full(&ty, record::scalar_of("clip", d, l)?)?, b.full(&ty, record::scalar_of("clip", d, h)?)?);
            b.one(Clamp.into(), &[v[0], l, h])
        }),
        (low, high) => {
            let x = low.map_or(x.clone(), |l| maximum(x, l));
            high.map_or(x.clone(), |h| minimum(&x, h))
        }
    }
}
