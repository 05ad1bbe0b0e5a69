//! What may be combined with a tensor: numbers of any type, and tensors.

use crate::record::{Recorder, number_like, record};
use crate::tensor::Tensor;
use ir::{DType, DTypeKind, Loc, Scalar, Values};

/// A number in the program text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A float.
    Float(f64),
    /// An integer.
    Int(i64),
    /// An integer above all of `i64`.
    Unsigned(u64),
}

impl Number {
    /// The dtype that it is promoted to next to a tensor of dtype `like`: that, or one that can hold it.
    pub fn promote_with(self, like: DType) -> DType {
        match self {
            Number::Float(_) if !like.is_float() => DType::F32,
            Number::Int(_) if like == DType::Bool => DType::I64,
            Number::Unsigned(_) if like == DType::Bool => DType::U64,
            _ => like,
        }
    }

    /// As a scalar; `None` if it is an integer that the dtype has no place for.
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

/// A number or a tensor, where either may stand.
#[derive(Clone, Debug)]
pub enum Operand {
    /// A number of the program text.
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

    /// As a tensor to combine with another: a number takes its dtype, or one that can hold it.
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

/// An [`Operand`] that is looked at.
pub enum OperandRef<'a> {
    /// A number of the program text.
    Number(Number),
    /// A tensor.
    Tensor(&'a Tensor),
}

/// What may stand at the right of an operator: tensors, numbers of any type, and references to them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be combined with a tensor by an operator",
    note = "operands must be tensors, references to tensors, or numbers"
)]
pub trait TensorOrScalar {
    /// What it is.
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
