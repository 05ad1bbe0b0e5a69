//! Element types, their promotion lattice (JAX's) and the bit formats of fp8.

use std::fmt;
use std::str::FromStr;

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    /// 1-4-3 bits, no infinities, largest finite 448 (OCP `E4M3`, JAX `float8_e4m3fn`).
    F8E4M3,
    /// 1-5-2 bits with infinities, largest finite 57344.
    F8E5M2,
    F16,
    BF16,
    F32,
    F64,
}

/// The kind of a dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum DTypeKind {
    Bool,
    Signed,
    Unsigned,
    Float,
}

use DType::*;

impl DType {
    /// Every dtype, in the order of declaration.
    pub const ALL: [DType; 15] = [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F8E4M3, F8E5M2, F16, BF16, F32, F64];

    /// The size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Bool | I8 | U8 | F8E4M3 | F8E5M2 => 1,
            I16 | U16 | F16 | BF16 => 2,
            I32 | U32 | F32 => 4,
            I64 | U64 | F64 => 8,
        }
    }

    /// The kind of this dtype.
    pub const fn kind(self) -> DTypeKind {
        match self {
            Bool => DTypeKind::Bool,
            I8 | I16 | I32 | I64 => DTypeKind::Signed,
            U8 | U16 | U32 | U64 => DTypeKind::Unsigned,
            F8E4M3 | F8E5M2 | F16 | BF16 | F32 | F64 => DTypeKind::Float,
        }
    }

    /// Whether this is a floating-point type, and therefore differentiable.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), DTypeKind::Float)
    }

    /// Whether this is a signed or unsigned integer type.
    pub const fn is_int(self) -> bool {
        matches!(self.kind(), DTypeKind::Signed | DTypeKind::Unsigned)
    }

    /// Number of bits of one element.
    pub const fn bits(self) -> u32 {
        self.size() as u32 * 8
    }

    /// The name in the text form and in error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F8E4M3 => "fp8_e4m3",
            F8E5M2 => "fp8_e5m2",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// The smallest value of an integer type (0 for bool).
    pub const fn int_min(self) -> i64 {
        match self.kind() {
            DTypeKind::Signed => i64::MIN >> (64 - self.bits()),
            _ => 0,
        }
    }

    /// The largest value of an integer type, as unsigned bits (1 for bool).
    pub const fn int_max(self) -> u64 {
        match self.kind() {
            DTypeKind::Bool => 1,
            DTypeKind::Signed => (u64::MAX >> (64 - self.bits())) >> 1,
            _ => u64::MAX >> (64 - self.bits()),
        }
    }

    /// The type in which reductions and products of this type are accumulated unless the user says otherwise.
    pub const fn accumulator(self) -> DType {
        match self {
            F8E4M3 | F8E5M2 | F16 | BF16 => F32,
            other => other,
        }
    }

    /// The smallest type that both operands convert to, by JAX's lattice (64-bit types enabled).
    ///
    /// The lattice is bool → u8, i8; each integer width to the next; u64 and i64 to the floats; bf16 and f16 as unrelated
    /// types below f32; the two fp8 formats have no common type with each other or with bf16 and f16.
    pub fn promote(self, other: DType) -> Option<DType> {
        fn above(d: DType) -> &'static [DType] {
            match d {
                Bool => &[I8, U8],
                U8 => &[I16, U16],
                U16 => &[I32, U32],
                U32 => &[I64, U64],
                I8 => &[I16],
                I16 => &[I32],
                I32 => &[I64],
                U64 | I64 => &[F8E4M3, F8E5M2, F16, BF16],
                F8E4M3 | F8E5M2 => &[],
                F16 | BF16 => &[F32],
                F32 => &[F64],
                F64 => &[],
            }
        }
        fn reaches(from: DType, to: DType) -> bool {
            from == to || above(from).iter().any(|&d| reaches(d, to))
        }
        if reaches(self, other) {
            return Some(other);
        }
        if reaches(other, self) {
            return Some(self);
        }
        // JAX has a weak-typed float between the integers and the floats; u64 with a signed type promotes to it, which
        // for strongly typed operands is the default float: f64 if 64-bit types are enabled.
        if self.is_int() && other.is_int() && (self == U64 || other == U64) {
            return Some(F64);
        }
        let mut joins = Self::ALL.into_iter().filter(|&d| reaches(self, d) && reaches(other, d));
        let first = joins.next()?;
        joins.all(|d| reaches(first, d)).then_some(first)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();
    fn from_str(s: &str) -> Result<DType, ()> {
        DType::ALL.into_iter().find(|d| d.name() == s).ok_or(())
    }
}

/// Rounds to `E4M3` or `E5M2` bits, ties to even. Overflow gives NaN (`E4M3`) or infinity (`E5M2`), like JAX's cast.
pub(crate) fn f64_to_fp8(x: f64, dtype: DType) -> u8 {
    let (mant, bias, max_finite) = match dtype {
        F8E4M3 => (3i32, 7i32, 448.0),
        _ => (2, 15, 57344.0),
    };
    let sign = if x.is_sign_negative() { 0x80u8 } else { 0 };
    let nan = sign | 0x7f;
    let inf = if dtype == F8E4M3 { nan } else { sign | 0x7c };
    if x.is_nan() {
        return if dtype == F8E4M3 { nan } else { sign | 0x7e };
    }
    if x.is_infinite() {
        return inf;
    }
    let a = x.abs();
    if a == 0.0 {
        return sign;
    }
    // The spacing of representable numbers around `a`, never below the subnormal spacing.
    let exponent = (libm::ilogb(a)).max(1 - bias);
    let quantum = libm::ldexp(1.0, exponent - mant);
    let rounded = libm::rint(a / quantum) * quantum;
    if rounded > max_finite {
        return inf;
    }
    if rounded == 0.0 {
        return sign;
    }
    let e = libm::ilogb(rounded);
    if e < 1 - bias {
        return sign | (rounded / libm::ldexp(1.0, 1 - bias - mant)) as u8;
    }
    let m = (rounded / libm::ldexp(1.0, e - mant)) as u8 & ((1 << mant) - 1);
    sign | (((e + bias) as u8) << mant) | m
}

/// The value of an fp8 bit pattern.
pub(crate) fn fp8_to_f64(bits: u8, dtype: DType) -> f64 {
    let (mant, bias) = if dtype == F8E4M3 { (3i32, 7i32) } else { (2, 15) };
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let e = ((bits & 0x7f) >> mant) as i32;
    let m = (bits & ((1 << mant) - 1)) as i32;
    // A NaN keeps its sign, so that its bits survive a round trip.
    if dtype == F8E4M3 && bits & 0x7f == 0x7f {
        return f64::NAN.copysign(sign);
    }
    if dtype == F8E5M2 && e == 31 {
        return if m == 0 { sign * f64::INFINITY } else { f64::NAN.copysign(sign) };
    }
    let magnitude = if e == 0 {
        libm::ldexp(m as f64, 1 - bias - mant)
    } else {
        libm::ldexp((m + (1 << mant)) as f64, e - bias - mant)
    };
    sign * magnitude
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for d in DType::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        assert!("float".parse::<DType>().is_err());
    }

    #[test]
    fn fp8_bits_round_trip_and_overflow_as_in_jax() {
        for dtype in [F8E4M3, F8E5M2] {
            for bits in 0..=255u8 {
                let x = fp8_to_f64(bits, dtype);
                if !x.is_nan() {
                    assert_eq!(f64_to_fp8(x, dtype), bits, "{dtype} {x}");
                }
            }
        }
        assert!(fp8_to_f64(f64_to_fp8(1000.0, F8E4M3), F8E4M3).is_nan());
        assert!(fp8_to_f64(f64_to_fp8(1e6, F8E5M2), F8E5M2).is_infinite());
        assert_eq!(fp8_to_f64(f64_to_fp8(449.0, F8E4M3), F8E4M3), 448.0);
    }

    #[test]
    fn promotion_follows_jax() {
        let rows = [
            (I32, F16, F16),
            (F16, BF16, F32),
            (U8, I8, I16),
            (U32, I32, I64),
            (Bool, F32, F32),
            (I64, BF16, BF16),
            (U64, I64, F64),
            (F32, F64, F64),
        ];
        for (a, b, expected) in rows {
            assert_eq!(a.promote(b), Some(expected), "{a} {b}");
            assert_eq!(b.promote(a), Some(expected), "{b} {a}");
        }
        assert_eq!(F8E4M3.promote(F8E5M2), None);
        assert_eq!(F8E4M3.promote(F16), None);
    }
}
