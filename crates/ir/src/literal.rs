//! Dense tensor data: constants in a Graph, inputs and outputs of the interpreter.

use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::types::Type;
use std::fmt;
use std::sync::Arc;

/// A dense row-major tensor. Cloning shares the data.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Literal {
    ty: Type,
    bytes: Arc<[u8]>,
}

impl serde::Serialize for Literal {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        (&self.ty, &*self.bytes).serialize(s)
    }
}

impl<'de> serde::Deserialize<'de> for Literal {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Literal, D::Error> {
        let (ty, bytes) = <(Type, Vec<u8>)>::deserialize(d)?;
        let fault = || serde::de::Error::custom("data that doesn't fill its type");
        let ty = Type::checked(ty.dtype, &ty.shape).map_err(|_| fault())?;
        Literal::from_bytes(ty, &bytes).ok_or_else(fault)
    }
}

/// Rust types that correspond to a dtype.
pub trait Element: Copy + 'static {
    /// The dtype.
    const DTYPE: DType;
    /// Converts to a scalar.
    fn to_scalar(self) -> Scalar;
    /// Converts from a scalar of this dtype.
    fn from_scalar(s: Scalar) -> Self;
}

macro_rules! element {
    ($($t:ty, $d:ident, $to:expr, $from:expr;)*) => { $(
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            fn to_scalar(self) -> Scalar {
                let to: fn($t) -> u64 = $to;
                Scalar::from_bits(DType::$d, to(self))
            }
            fn from_scalar(s: Scalar) -> $t {
                let from: fn(u64) -> $t = $from;
                from(s.bits())
            }
        }
    )* };
}

element! {
    f32, F32, |x| x.to_bits() as u64, |b| f32::from_bits(b as u32);
    f64, F64, |x| x.to_bits(), f64::from_bits;
    half::f16, F16, |x| x.to_bits() as u64, |b| half::f16::from_bits(b as u16);
    half::bf16, BF16, |x| x.to_bits() as u64, |b| half::bf16::from_bits(b as u16);
    i8, I8, |x| x as u64, |b| b as i8;
    i16, I16, |x| x as u64, |b| b as i16;
    i32, I32, |x| x as u64, |b| b as i32;
    i64, I64, |x| x as u64, |b| b as i64;
    u8, U8, |x| x as u64, |b| b as u8;
    u16, U16, |x| x as u64, |b| b as u16;
    u32, U32, |x| x as u64, |b| b as u32;
    u64, U64, |x| x, |b| b;
    bool, Bool, |x| x as u64, |b| b != 0;
}

impl Literal {
    /// Builds a literal element by element, in row-major order.
    pub fn from_fn(ty: Type, mut f: impl FnMut(usize) -> Scalar) -> Literal {
        let size = ty.dtype.size();
        let n = ty.numel();
        let mut bytes = Vec::with_capacity(n * size);
        for i in 0..n {
            let s = f(i);
            debug_assert_eq!(s.dtype(), ty.dtype);
            bytes.extend_from_slice(&s.bits().to_le_bytes()[..size]);
        }
        Literal { ty, bytes: bytes.into() }
    }

    /// A literal from little-endian bytes; `None` if their number does not fit the type.
    pub fn from_bytes(ty: Type, bytes: &[u8]) -> Option<Literal> {
        (bytes.len() == ty.bytes()).then(|| Literal { ty, bytes: bytes.into() })
    }

    /// A literal from elements; panics if their number does not fit the shape.
    pub fn new<T: Element>(shape: &[usize], data: &[T]) -> Literal {
        let ty = Type::new(T::DTYPE, shape);
        assert_eq!(ty.numel(), data.len(), "literal data must fill its shape");
        Literal::from_fn(ty, |i| data[i].to_scalar())
    }

    /// A rank-0 literal.
    pub fn scalar(s: Scalar) -> Literal {
        Literal::from_fn(Type::scalar(s.dtype()), |_| s)
    }

    /// A literal whose elements are all equal.
    pub fn full(shape: &[usize], s: Scalar) -> Literal {
        Literal::from_fn(Type::new(s.dtype(), shape), |_| s)
    }

    /// A literal of zeros.
    pub fn zeros(ty: Type) -> Literal {
        let bytes = vec![0; ty.bytes()].into();
        Literal { ty, bytes }
    }

    /// The type.
    pub fn ty(&self) -> &Type {
        &self.ty
    }

    /// The raw little-endian bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The n-th element in row-major order.
    pub fn get(&self, i: usize) -> Scalar {
        let size = self.ty.dtype.size();
        let mut raw = [0u8; 8];
        raw[..size].copy_from_slice(&self.bytes[i * size..(i + 1) * size]);
        Scalar::from_bits(self.ty.dtype, u64::from_le_bytes(raw))
    }

    /// All elements as a Rust vector, converted with `cast` if the dtype differs.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        (0..self.ty.numel()).map(|i| T::from_scalar(self.get(i).cast(T::DTYPE))).collect()
    }

    /// All elements in row-major order.
    pub fn scalars(&self) -> impl Iterator<Item = Scalar> + '_ {
        (0..self.ty.numel()).map(|i| self.get(i))
    }

    /// The same data under another shape of equal size.
    pub fn reshaped(&self, shape: &[usize]) -> Literal {
        let ty = self.ty.with_shape(shape);
        debug_assert_eq!(ty.numel(), self.ty.numel());
        Literal { ty, bytes: self.bytes.clone() }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty)?;
        f.debug_list().entries(self.scalars().take(32).map(|s| s.to_string())).finish()
    }
}
