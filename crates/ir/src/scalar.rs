//! Scalars and their arithmetic, which defines the semantics of elementwise ops.
//!
//! Floats narrower than f64 are computed in f64 and rounded once; for `+ - * / sqrt` that equals the correctly rounded
//! native operation. Integers wrap. Division follows XLA: `x / 0 = -1`, `x % 0 = x`.

use crate::dtype::{DType, DTypeKind, f64_to_fp8, fp8_to_f64};
use crate::round;
use half::{bf16, f16};
use std::fmt;

/// A typed bit pattern. Two scalars are equal if type and bits are: `-0.0 != 0.0`, and NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Scalar {
    dtype: DType,
    bits: u64,
}

impl Scalar {
    /// A scalar from its raw bits; bits above the dtype's width are dropped.
    pub fn from_bits(dtype: DType, bits: u64) -> Scalar {
        let bits = match dtype {
            DType::Bool => (bits & 1 != 0) as u64,
            _ => bits & (u64::MAX >> (64 - dtype.bits())),
        };
        Scalar { dtype, bits }
    }

    /// Converts like `cast`: floats round to nearest even, integers saturate from floats, bool is `x != 0`.
    pub fn from_f64(dtype: DType, x: f64) -> Scalar {
        let bits = match dtype {
            DType::Bool => (x != 0.0) as u64,
            DType::I8 => x as i8 as u8 as u64,
            DType::I16 => x as i16 as u16 as u64,
            DType::I32 => x as i32 as u32 as u64,
            DType::I64 => x as i64 as u64,
            DType::U8 => x as u8 as u64,
            DType::U16 => x as u16 as u64,
            DType::U32 => x as u32 as u64,
            DType::U64 => x as u64,
            DType::F8E4M3 | DType::F8E5M2 => f64_to_fp8(x, dtype) as u64,
            DType::F16 => round::to_f16(x) as u64,
            DType::BF16 => round::to_bf16(x) as u64,
            DType::F32 => (x as f32).to_bits() as u64,
            DType::F64 => x.to_bits(),
        };
        Scalar { dtype, bits }
    }

    /// Converts an integer: integer types wrap, floats round to nearest.
    pub fn from_i64(dtype: DType, x: i64) -> Scalar {
        match dtype.kind() {
            DTypeKind::Float => Scalar::from_f64(dtype, int_to_f64_for(dtype, x as i128)),
            DTypeKind::Bool => Scalar { dtype, bits: (x != 0) as u64 },
            _ => Scalar::from_bits(dtype, x as u64),
        }
    }

    /// A boolean scalar.
    pub fn bool(x: bool) -> Scalar {
        Scalar { dtype: DType::Bool, bits: x as u64 }
    }

    /// The type.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The bit pattern, zero-extended.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// The value as f64; 64-bit integers may round.
    pub fn to_f64(self) -> f64 {
        match self.dtype {
            DType::F8E4M3 | DType::F8E5M2 => fp8_to_f64(self.bits as u8, self.dtype),
            DType::F16 => f16::from_bits(self.bits as u16).to_f64(),
            DType::BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            DType::F32 => f32::from_bits(self.bits as u32) as f64,
            DType::F64 => f64::from_bits(self.bits),
            DType::U64 => self.bits as f64,
            _ => self.to_i64() as f64,
        }
    }

    /// The value as i64; floats truncate, u64 wraps.
    pub fn to_i64(self) -> i64 {
        match self.dtype.kind() {
            DTypeKind::Signed => {
                let shift = 64 - self.dtype.bits();
                ((self.bits << shift) as i64) >> shift
            }
            DTypeKind::Bool | DTypeKind::Unsigned => self.bits as i64,
            DTypeKind::Float => self.to_f64() as i64,
        }
    }

    /// Whether the value is not zero.
    pub fn to_bool(self) -> bool {
        match self.dtype.kind() {
            DTypeKind::Float => self.to_f64() != 0.0,
            _ => self.bits != 0,
        }
    }

    /// Converts to another dtype, like JAX's `convert_element_type`.
    pub fn cast(self, to: DType) -> Scalar {
        match (self.dtype.kind(), to.kind()) {
            _ if self.dtype == to => self,
            (_, DTypeKind::Bool) => Scalar::bool(self.to_bool()),
            (DTypeKind::Float, _) => Scalar::from_f64(to, self.to_f64()),
            (_, DTypeKind::Float) if self.dtype == DType::U64 => {
                Scalar::from_f64(to, int_to_f64_for(to, self.bits as i128))
            }
            (_, DTypeKind::Float) => Scalar::from_f64(to, int_to_f64_for(to, self.to_i64() as i128)),
            _ => Scalar::from_bits(to, self.to_i64() as u64),
        }
    }

    /// Like `cast`, but a value beyond the target's finite range becomes its largest finite value; NaN stays NaN
    /// (integers: 0).
    pub fn quantize(self, to: DType) -> Scalar {
        if !to.is_float() || !self.dtype.is_float() {
            return self.cast(to);
        }
        let x = self.to_f64();
        let max = finite_max(to);
        Scalar::from_f64(to, if x.is_nan() { x } else { x.clamp(-max, max) })
    }

    /// Zero of a dtype.
    pub fn zero(dtype: DType) -> Scalar {
        Scalar { dtype, bits: 0 }
    }

    /// One of a dtype.
    pub fn one(dtype: DType) -> Scalar {
        Scalar::from_i64(dtype, 1)
    }

    /// The identity of `max`: -inf, or the smallest integer, or false.
    pub fn lowest(dtype: DType) -> Scalar {
        match dtype {
            DType::F8E4M3 => Scalar::from_f64(dtype, -448.0),
            d if d.is_float() => Scalar::from_f64(d, f64::NEG_INFINITY),
            d => Scalar::from_i64(d, d.int_min()),
        }
    }

    /// The identity of `min`: inf, or the largest integer, or true.
    pub fn highest(dtype: DType) -> Scalar {
        match dtype {
            DType::F8E4M3 => Scalar::from_f64(dtype, 448.0),
            d if d.is_float() => Scalar::from_f64(d, f64::INFINITY),
            d => Scalar::from_bits(d, d.int_max()),
        }
    }
}

/// The largest finite value of a float type.
pub fn finite_max(dtype: DType) -> f64 {
    match dtype {
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57344.0,
        DType::F16 => 65504.0,
        DType::BF16 => bf16::MAX.to_f64(),
        DType::F32 => f32::MAX as f64,
        _ => f64::MAX,
    }
}

/// Converts an integer to f64 such that the later conversion to a float dtype rounds once.
fn int_to_f64_for(to: DType, x: i128) -> f64 {
    match to {
        DType::F64 => x as f64,
        DType::F32 => x as f32 as f64,
        _ => round::round_to_odd_f64(x),
    }
}

impl fmt::Display for Scalar {
    /// Decimal if that round-trips, `0x…` bits for NaNs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype.kind() {
            DTypeKind::Bool => write!(f, "{}", self.bits != 0),
            DTypeKind::Signed => write!(f, "{}", self.to_i64()),
            DTypeKind::Unsigned => write!(f, "{}", self.bits),
            DTypeKind::Float => {
                let x = self.to_f64();
                if x.is_nan() {
                    write!(f, "0x{:x}", self.bits)
                } else if self.dtype == DType::F64 {
                    write!(f, "{x:?}")
                } else {
                    write!(f, "{:?}", x as f32)
                }
            }
        }
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", self.dtype)
    }
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[expect(missing_docs, reason = "the names are the documentation")]
        pub enum $name { $($variant),* }

        impl $name {
            /// Every kind, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The name in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// The kind with this name.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Scalar functions of one argument. `Round` rounds to nearest, ties to even.
    Unary {
        Neg = "neg", Abs = "abs", Sign = "sign", Floor = "floor", Ceil = "ceil", Round = "round", Trunc = "trunc",
        Exp = "exp", Exp2 = "exp2", Expm1 = "expm1", Log = "log", Log2 = "log2", Log10 = "log10", Log1p = "log1p",
        Sqrt = "sqrt", Rsqrt = "rsqrt", Reciprocal = "reciprocal",
        Sin = "sin", Cos = "cos", Tan = "tan", Asin = "asin", Acos = "acos", Atan = "atan",
        Sinh = "sinh", Cosh = "cosh", Tanh = "tanh", Asinh = "asinh", Acosh = "acosh", Atanh = "atanh",
        Erf = "erf", Erfc = "erfc", ErfInv = "erf_inv", Lgamma = "lgamma", Digamma = "digamma",
        Logistic = "logistic", Not = "not", IsFinite = "is_finite", PopulationCount = "population_count",
    }
}

kinds! {
    /// Scalar functions of two arguments of one type.
    ///
    /// `Div` of integers truncates, `Rem` has the dividend's sign, `Max` and `Min` propagate NaN, shifts by the width
    /// or more give 0 (or the sign for a signed `Shr`), `Zeta` is Hurwitz's ζ(s, q).
    Binary {
        Add = "add", Sub = "sub", Mul = "mul", Div = "div", Rem = "rem", Pow = "pow", Max = "max", Min = "min",
        Atan2 = "atan2", And = "and", Or = "or", Xor = "xor", Shl = "shl", Shr = "shr", Zeta = "zeta",
    }
}

kinds! {
    /// Comparisons; with a NaN all are false except `Ne`.
    Compare { Eq = "eq", Ne = "ne", Lt = "lt", Le = "le", Gt = "gt", Ge = "ge" }
}

/// The kinds of dtypes that an op accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeDomain {
    /// Only floats.
    Float,
    /// Floats and integers.
    Number,
    /// Floats and signed integers.
    Signed,
    /// Only integers.
    Int,
    /// Integers and bool.
    Bits,
    /// All dtypes.
    Any,
}

impl DTypeDomain {
    /// Whether the dtype belongs to the domain.
    pub fn contains(self, d: DType) -> bool {
        let c = d.kind();
        match self {
            DTypeDomain::Float => c == DTypeKind::Float,
            DTypeDomain::Number => c != DTypeKind::Bool,
            DTypeDomain::Signed => matches!(c, DTypeKind::Float | DTypeKind::Signed),
            DTypeDomain::Int => d.is_int(),
            DTypeDomain::Bits => c != DTypeKind::Float,
            DTypeDomain::Any => true,
        }
    }

    /// The description for error messages.
    pub fn describe(self) -> &'static str {
        match self {
            DTypeDomain::Float => "a float dtype",
            DTypeDomain::Number => "a number dtype (not bool)",
            DTypeDomain::Signed => "a float or signed integer dtype",
            DTypeDomain::Int => "an integer dtype",
            DTypeDomain::Bits => "an integer dtype or bool",
            DTypeDomain::Any => "any dtype",
        }
    }
}

impl Unary {
    /// The dtypes that it accepts.
    pub fn domain(self) -> DTypeDomain {
        use Unary::*;
        match self {
            Neg | Abs | Sign => DTypeDomain::Number,
            Not => DTypeDomain::Bits,
            PopulationCount => DTypeDomain::Int,
            _ => DTypeDomain::Float,
        }
    }

    /// The approximate number of machine operations.
    pub fn cost(self) -> u32 {
        use Unary::*;
        match self {
            Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Not | IsFinite => 1,
            Sqrt | Rsqrt | Reciprocal => 6,
            PopulationCount => 10,
            Exp | Exp2 | Log | Log2 | Log10 => 14,
            Tanh | Logistic | Erf | Erfc | Expm1 | Log1p | Sin | Cos => 22,
            Tan | Asin | Acos | Atan | Sinh | Cosh | Asinh | Acosh | Atanh | ErfInv | Lgamma | Digamma => 60,
        }
    }

    /// The dtype of its result for an argument of dtype `d`.
    pub fn result(self, d: DType) -> DType {
        if self == Unary::IsFinite { DType::Bool } else { d }
    }

    /// Applies it to a scalar whose dtype is in its domain.
    pub fn eval(self, x: Scalar) -> Scalar {
        use Unary::*;
        let d = x.dtype();
        match d.kind() {
            DTypeKind::Float => {
                let v = x.to_f64();
                if self == IsFinite {
                    return Scalar::bool(v.is_finite());
                }
                Scalar::from_f64(d, crate::special::unary_f64(self, v))
            }
            DTypeKind::Bool => Scalar::bool(!x.to_bool()),
            class => {
                let v = x.to_i64();
                let r = match self {
                    Neg => v.wrapping_neg(),
                    Abs if class == DTypeKind::Unsigned => v,
                    Abs => v.wrapping_abs(),
                    Sign if class == DTypeKind::Unsigned => (v != 0) as i64,
                    Sign => v.signum(),
                    Not => !v,
                    PopulationCount => x.bits().count_ones() as i64,
                    _ => v,
                };
                Scalar::from_bits(d, r as u64)
            }
        }
    }
}

impl Binary {
    /// The dtypes that it accepts.
    pub fn domain(self) -> DTypeDomain {
        use Binary::*;
        match self {
            Add | Sub | Mul | Div | Rem | Pow => DTypeDomain::Number,
            Max | Min => DTypeDomain::Any,
            Atan2 | Zeta => DTypeDomain::Float,
            And | Or | Xor => DTypeDomain::Bits,
            Shl | Shr => DTypeDomain::Int,
        }
    }

    /// The approximate number of machine operations.
    pub fn cost(self) -> u32 {
        use Binary::*;
        match self {
            Add | Sub | Mul | Max | Min | And | Or | Xor | Shl | Shr => 1,
            Div | Rem => 6,
            Pow | Atan2 | Zeta => 60,
        }
    }

    /// Applies it to two scalars of one dtype in its domain.
    pub fn eval(self, a: Scalar, b: Scalar) -> Scalar {
        use Binary::*;
        let d = a.dtype();
        match d.kind() {
            DTypeKind::Float => {
                let (x, y) = (a.to_f64(), b.to_f64());
                let r = match self {
                    Add => x + y,
                    Sub => x - y,
                    Mul => x * y,
                    Div => x / y,
                    Rem => x % y,
                    Pow => x.powf(y),
                    Max => {
                        if x.is_nan() || x > y {
                            x
                        } else {
                            y
                        }
                    }
                    Min => {
                        if x.is_nan() || x < y {
                            x
                        } else {
                            y
                        }
                    }
                    Atan2 => x.atan2(y),
                    Zeta => crate::special::zeta(x, y),
                    And | Or | Xor | Shl | Shr => f64::NAN,
                };
                Scalar::from_f64(d, r)
            }
            DTypeKind::Bool => {
                let (x, y) = (a.to_bool(), b.to_bool());
                Scalar::bool(match self {
                    And | Min | Mul => x & y,
                    Xor => x ^ y,
                    _ => x | y,
                })
            }
            DTypeKind::Signed => Scalar::from_bits(d, int_binary(self, d, a.to_i64(), b.to_i64()) as u64),
            DTypeKind::Unsigned => Scalar::from_bits(d, uint_binary(self, d, a.bits(), b.bits())),
        }
    }
}

fn int_binary(op: Binary, d: DType, x: i64, y: i64) -> i64 {
    use Binary::*;
    let width = d.bits() as i64;
    match op {
        Add => x.wrapping_add(y),
        Sub => x.wrapping_sub(y),
        Mul => x.wrapping_mul(y),
        Div if y == 0 => -1,
        Div => x.wrapping_div(y),
        Rem if y == 0 => x,
        Rem => x.wrapping_rem(y),
        Pow if y < 0 => match x {
            1 => 1,
            -1 => 1 - 2 * (y & 1).abs(),
            _ => 0,
        },
        Pow => wrapping_pow(x as u64, y as u64) as i64,
        Max => x.max(y),
        Min => x.min(y),
        And => x & y,
        Or => x | y,
        Xor => x ^ y,
        Shl if !(0..width).contains(&y) => 0,
        Shl => x << y,
        Shr if !(0..width).contains(&y) => x >> 63,
        Shr => x >> y,
        Atan2 | Zeta => 0,
    }
}

fn uint_binary(op: Binary, d: DType, x: u64, y: u64) -> u64 {
    use Binary::*;
    let width = d.bits() as u64;
    match op {
        Add => x.wrapping_add(y),
        Sub => x.wrapping_sub(y),
        Mul => x.wrapping_mul(y),
        Div => x.checked_div(y).unwrap_or(u64::MAX),
        Rem => x.checked_rem(y).unwrap_or(x),
        Pow => wrapping_pow(x, y),
        Max => x.max(y),
        Min => x.min(y),
        And => x & y,
        Or => x | y,
        Xor => x ^ y,
        Shl if y >= width => 0,
        Shl => x << y,
        Shr if y >= width => 0,
        Shr => x >> y,
        Atan2 | Zeta => 0,
    }
}

fn wrapping_pow(mut base: u64, mut exp: u64) -> u64 {
    let mut r = 1u64;
    while exp > 0 {
        if exp & 1 == 1 {
            r = r.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exp >>= 1;
    }
    r
}

impl Compare {
    /// Applies it to two scalars of one dtype.
    pub fn eval(self, a: Scalar, b: Scalar) -> bool {
        use std::cmp::Ordering;
        let order = match a.dtype().kind() {
            DTypeKind::Float => a.to_f64().partial_cmp(&b.to_f64()),
            DTypeKind::Signed => Some(a.to_i64().cmp(&b.to_i64())),
            _ => Some(a.bits().cmp(&b.bits())),
        };
        match self {
            Compare::Eq => order == Some(Ordering::Equal),
            Compare::Ne => order != Some(Ordering::Equal),
            Compare::Lt => order == Some(Ordering::Less),
            Compare::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Compare::Gt => order == Some(Ordering::Greater),
            Compare::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}
