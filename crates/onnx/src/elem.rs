//! ONNX's element types. Types without a dtype of ours are *emulated*: small integers in 8 bits, small floats in f32, with
//! exactly the values of the type.

use ir::DType;

/// Declares the types together with a list of them, so that the list is complete.
macro_rules! elements {
    ($($name:ident)*) => {
        /// An element type; its index, counted from 1, is its number in `TensorProto.DataType`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the names are ONNX's")]
        pub enum Elem {
            $($name),*
        }

        const ALL: &[Elem] = &[$(Elem::$name),*];
    };
}
elements! {
    Float Uint8 Int8 Uint16 Int16 Int32 Int64 String Bool Float16 Double Uint32 Uint64
    Complex64 Complex128 Bfloat16 Float8E4M3FN Float8E4M3FNUZ Float8E5M2 Float8E5M2FNUZ Uint4 Int4 Float4E2M1 Float8E8M0 Uint2 Int2
}

use Elem::*;

impl Elem {
    /// The type with this number in a file.
    pub fn from_number(n: i64) -> Option<Elem> {
        usize::try_from(n).ok().and_then(|n| ALL.get(n.checked_sub(1)?)).copied()
    }

    /// Its number in a file.
    pub fn number(self) -> i32 {
        self as i32 + 1
    }

    /// The type of a dtype.
    pub fn from_dtype(dtype: DType) -> Elem {
        match dtype {
            DType::Bool => Bool,
            DType::I8 => Int8,
            DType::I16 => Int16,
            DType::I32 => Int32,
            DType::I64 => Int64,
            DType::U8 => Uint8,
            DType::U16 => Uint16,
            DType::U32 => Uint32,
            DType::U64 => Uint64,
            DType::F8E4M3 => Float8E4M3FN,
            DType::F8E5M2 => Float8E5M2,
            DType::F16 => Float16,
            DType::BF16 => Bfloat16,
            DType::F32 => Float,
            DType::F64 => Double,
        }
    }

    /// The dtype that stores it: its own, or the one that emulates it. Strings and complex numbers have none.
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Float => DType::F32,
            Uint8 | Uint4 | Uint2 => DType::U8,
            Int8 | Int4 | Int2 => DType::I8,
            Uint16 => DType::U16,
            Int16 => DType::I16,
            Int32 => DType::I32,
            Int64 => DType::I64,
            Bool => DType::Bool,
            Float16 => DType::F16,
            Double => DType::F64,
            Uint32 => DType::U32,
            Uint64 => DType::U64,
            Bfloat16 => DType::BF16,
            Float8E4M3FN => DType::F8E4M3,
            Float8E5M2 => DType::F8E5M2,
            Float8E4M3FNUZ | Float8E5M2FNUZ | Float4E2M1 | Float8E8M0 => DType::F32,
            String | Complex64 | Complex128 => return None,
        })
    }

    /// Whether it is emulated.
    pub fn is_emulated(self) -> bool {
        self.dtype().is_none_or(|d| Elem::from_dtype(d) != self)
    }

    /// Bits of one element in a file.
    pub fn bits(self) -> usize {
        match self {
            Uint4 | Int4 | Float4E2M1 => 4,
            Uint2 | Int2 => 2,
            Float8E4M3FNUZ | Float8E5M2FNUZ | Float8E8M0 => 8,
            other => other.dtype().map_or(0, |d| d.size() * 8),
        }
    }

    /// The range of an emulated integer.
    pub fn small_range(self) -> Option<(i64, i64)> {
        match self {
            Uint4 => Some((0, 15)),
            Int4 => Some((-8, 7)),
            Uint2 => Some((0, 3)),
            Int2 => Some((-2, 1)),
            _ => None,
        }
    }

    /// The layout of an emulated signed float: bits of the fraction, bias of the exponent, largest number, whether there is a NaN.
    pub fn small_float(self) -> Option<SmallFloat> {
        match self {
            Float8E4M3FNUZ => Some(SmallFloat { fraction: 3, bias: 8, max: 240.0, nan: true }),
            Float8E5M2FNUZ => Some(SmallFloat { fraction: 2, bias: 16, max: 57344.0, nan: true }),
            Float4E2M1 => Some(SmallFloat { fraction: 1, bias: 1, max: 6.0, nan: false }),
            _ => None,
        }
    }

    /// ONNX's name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Float => "float",
            Uint8 => "uint8",
            Int8 => "int8",
            Uint16 => "uint16",
            Int16 => "int16",
            Int32 => "int32",
            Int64 => "int64",
            String => "string",
            Bool => "bool",
            Float16 => "float16",
            Double => "double",
            Uint32 => "uint32",
            Uint64 => "uint64",
            Complex64 => "complex64",
            Complex128 => "complex128",
            Bfloat16 => "bfloat16",
            Float8E4M3FN => "float8e4m3fn",
            Float8E4M3FNUZ => "float8e4m3fnuz",
            Float8E5M2 => "float8e5m2",
            Float8E5M2FNUZ => "float8e5m2fnuz",
            Uint4 => "uint4",
            Int4 => "int4",
            Float4E2M1 => "float4e2m1",
            Float8E8M0 => "float8e8m0",
            Uint2 => "uint2",
            Int2 => "int2",
        }
    }

    /// Decodes the bits of an emulated element in a file.
    pub(crate) fn decode(self, bits: u8) -> f64 {
        if let Some((lo, hi)) = self.small_range() {
            let x = i64::from(bits) & ((1 << self.bits()) - 1);
            return (if lo < 0 && x > hi { x - (1 << self.bits()) } else { x }) as f64;
        }
        if self == Float8E8M0 {
            return if bits == 0xff { f64::NAN } else { 2f64.powi(i32::from(bits) - 127) };
        }
        let Some(f) = self.small_float() else { return 0.0 };
        let sign_bit = 1u8 << (self.bits() - 1);
        if f.nan && bits == sign_bit {
            return f64::NAN;
        }
        let sign = if bits & sign_bit != 0 { -1.0 } else { 1.0 };
        let magnitude = bits & (sign_bit - 1);
        let (e, m) = (i32::from(magnitude >> f.fraction), f64::from(magnitude & ((1 << f.fraction) - 1)));
        let step = 2f64.powi(-(f.fraction as i32));
        sign * if e == 0 { m * step * 2f64.powi(1 - f.bias) } else { (1.0 + m * step) * 2f64.powi(e - f.bias) }
    }
}

/// A float of fewer than 16 bits without a dtype of ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmallFloat {
    /// Bits of the fraction.
    pub fraction: u32,
    /// The bias of the exponent.
    pub bias: i32,
    /// The largest number.
    pub max: f64,
    /// Whether there is a NaN; there are no infinities.
    pub nan: bool,
}
