//! Operands of a tensor op: numbers of any type, and tensors.

use crate::record::{Recorder, number_like, record};
use crate::tensor::Tensor;
use ir::{DType, DTypeKind, Loc, Scalar, Values};

/// A number literal in the program text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
    /// An integer larger than `i64::MAX`.
    Unsigned(u64),
}

impl Number {
    /// The dtype that the number gets next to a tensor of dtype `like`: `like` if it can represent the number, else a wider one.
    pub fn promote_with(self, like: DType) -> DType {
        match self {
            Number::Float(_) if !like.is_float() => DType::F32,
            Number::Int(_) if like == DType::Bool => DType::I64,
            Number::Unsigned(_) if like == DType::Bool => DType::U64,
            _ => like,
        }
    }

    /// Converts to a scalar; `None` for an integer that the dtype can't represent.
    pub fn to_scalar(self, dtype: DType) -> Option<Scalar> {
        match self {
            Number::Float(x) => Some(Scalar::from_f64(dtype, x)),
            Number::Int(x) => {
                let s = Scalar::from_i64(dtype, x);
                let same = match dtype.kind() {
                    DTypeKind::Signed => s.cast(DType::I64).bits() == x as u64,
                    DTypeKind::Unsigned => x >= 0 && s.cast(DType::U64).bits() == x as u64,
                    DTypeKind::Bool | DTypeKind::Float => true,
                };
                same.then_some(s)
            }
            Number::Unsigned(x) => match dtype.kind() {
                DTypeKind::Float => Some(Scalar::from_f64(dtype, x as f64)),
                DTypeKind::Bool => Some(Scalar::bool(true)),
                _ => (dtype == DType::U64).then(|| Scalar::from_bits(dtype, x)),
            },
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Float(x) => write!(f, "{x:?}"),
            Number::Int(x) => write!(f, "{x}"),
            Number::Unsigned(x) => write!(f, "{x}"),
        }
    }
}

/// An owned operand: a number or a tensor.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A number literal.
    Number(Number),
    /// A tensor.
    Tensor(Tensor),
}

impl Operand {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&Tensor> {
        match self {
            Operand::Tensor(t) => Some(t),
            Operand::Number(_) => None,
        }
    }

    /// Converts to a tensor to combine with `other`: a number gets its dtype, or a wider one that can represent the number.
    #[track_caller]
    pub fn to_tensor_like(&self, like: &Tensor) -> Tensor {
        match self {
            Operand::Tensor(t) => t.clone(),
            Operand::Number(_) if like.error().is_some() => like.clone(),
            Operand::Number(n) => {
                let f = |b: &mut dyn Recorder, _: &[ir::Value]| {
                    let v = number_like(b, like.dtype(), *n)?;
                    Ok(Values::from_elem(v, 1))
                };
                record(&Loc::caller(), 1, like.engine(), &[], f).swap_remove(0)
            }
        }
    }
}

/// A borrowed [`Operand`].
pub enum OperandRef<'a> {
    /// A number literal.
    Number(Number),
    /// A tensor.
    Tensor(&'a Tensor),
}

/// A right operand of an operator: a tensor, a number of any type, or a reference to one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with a tensor by an operator",
    note = "operands must be tensors, references to tensors, or numbers"
)]
pub trait TensorOrScalar {
    /// Borrows the operand.
    fn term(&self) -> OperandRef<'_>;
}

impl TensorOrScalar for Tensor {
    fn term(&self) -> OperandRef<'_> {
        OperandRef::Tensor(self)
    }
}

impl<T: TensorOrScalar + ?Sized> TensorOrScalar for &T {
    fn term(&self) -> OperandRef<'_> {
        (**self).term()
    }
}

impl TensorOrScalar for Number {
    fn term(&self) -> OperandRef<'_> {
        OperandRef::Number(*self)
    }
}

impl TensorOrScalar for Operand {
    fn term(&self) -> OperandRef<'_> {
        match self {
            Operand::Number(n) => OperandRef::Number(*n),
            Operand::Tensor(t) => OperandRef::Tensor(t),
        }
    }
}

impl From<&Tensor> for Operand {
    fn from(t: &Tensor) -> Operand {
        Operand::Tensor(t.clone())
    }
}

impl From<&&Tensor> for Operand {
    fn from(t: &&Tensor) -> Operand {
        Operand::Tensor((*t).clone())
    }
}

impl From<Tensor> for Operand {
    fn from(t: Tensor) -> Operand {
        Operand::Tensor(t)
    }
}

impl From<Number> for Operand {
    fn from(n: Number) -> Operand {
        Operand::Number(n)
    }
}

macro_rules! numbers {
    ($($t:ty => |$x:ident| $number:expr),* $(,)?) => { $(
        impl From<$t> for Number {
            fn from($x: $t) -> Number {
                $number
            }
        }

        impl From<$t> for Operand {
            fn from(x: $t) -> Operand {
                Operand::Number(x.into())
            }
        }

        impl TensorOrScalar for $t {
            fn term(&self) -> OperandRef<'_> {
                OperandRef::Number((*self).into())
            }
        }
    )* };
}

fn unsigned(x: u64) -> Number {
    i64::try_from(x).map_or(Number::Unsigned(x), Number::Int)
}

numbers! {
    f64 => |x| Number::Float(x),
    f32 => |x| Number::Float(x.into()),
    half::f16 => |x| Number::Float(x.into()),
    half::bf16 => |x| Number::Float(x.into()),
    i8 => |x| Number::Int(x.into()),
    i16 => |x| Number::Int(x.into()),
    i32 => |x| Number::Int(x.into()),
    i64 => |x| Number::Int(x),
    isize => |x| Number::Int(x as i64),
    u8 => |x| Number::Int(x.into()),
    u16 => |x| Number::Int(x.into()),
    u32 => |x| Number::Int(x.into()),
    u64 => |x| unsigned(x),
    usize => |x| unsigned(x as u64),
}
