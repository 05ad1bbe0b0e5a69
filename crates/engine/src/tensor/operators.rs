//! Operators on tensors and numbers.
//!
//! The right operand is any [`TensorOrScalar`]. On the left, Rust needs a literal of one known type, so numbers are `f64` or
//! `i64`; a number of another type is written as `Number::from(n) - &x`.

use super::Tensor;
use super::arith::{binary, divide, modulo, operate, unary, with_number};
use crate::operand::{Number, OperandRef, TensorOrScalar};
use ir::{Binary, Loc, Unary};
use std::ops;

/// `x op y` for ops without special promotion rules.
fn apply(x: &Tensor, y: &impl TensorOrScalar, op: Binary, at: Loc) -> Tensor {
    match y.term() {
        OperandRef::Tensor(y) => binary(x, y, op, at),
        OperandRef::Number(n) => with_number(x, n, at, |b, x, n| operate(b, op, x, n)),
    }
}

/// `n op x`, with a number on the left.
fn reversed(n: Number, x: &Tensor, op: Binary, at: Loc) -> Tensor {
    with_number(x, n, at, |b, x, n| operate(b, op, n, x))
}

fn quotient(x: &Tensor, y: &impl TensorOrScalar, at: Loc) -> Tensor {
    match y.term() {
        OperandRef::Tensor(y) => divide(x, y, at),
        OperandRef::Number(n) => with_number(x, n, at, super::arith::true_divide),
    }
}

fn remainder(x: &Tensor, y: &impl TensorOrScalar, at: Loc) -> Tensor {
    match y.term() {
        OperandRef::Tensor(y) => super::arith::aligned(x, y, at, modulo),
        OperandRef::Number(n) => with_number(x, n, at, modulo),
    }
}

// One generic impl for all operands, so that the type of `x + 1.0` is known before the type of its literal.
macro_rules! operator {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $in_place:ident
        |$x:ident, $y:ident, $at:ident| $forward:expr; |$n:ident, $z:ident| $back:expr);* $(;)?) => { $(
        impl<T: TensorOrScalar> ops::$trait<T> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                let ($x, $y, $at) = (self, &other, Loc::caller());
                $forward
            }
        }

        impl<T: TensorOrScalar> ops::$trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                let ($x, $y, $at) = (&self, &other, Loc::caller());
                $forward
            }
        }

        operator!(@left $trait $method |$n, $z, $at| $back; f64 i64 Number);

        /// Updates in place, as in NumPy and PyTorch: views and clones see the change. An error makes the tensor invalid.
        impl<T: TensorOrScalar> ops::$assign<T> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, other: T) {
                let done = self.$in_place(&other);
                if done.error().is_some() {
                    *self = done;
                }
            }
        }
    )* };
    (@left $trait:ident $method:ident |$n:ident, $z:ident, $at:ident| $back:expr; $($t:ty)*) => { $(
        impl ops::$trait<&Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, t: &Tensor) -> Tensor {
                let ($n, $z, $at) = (Number::from(self), t, Loc::caller());
                $back
            }
        }

        impl ops::$trait<Tensor> for $t {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, t: Tensor) -> Tensor {
                let ($n, $z, $at) = (Number::from(self), &t, Loc::caller());
                $back
            }
        }
    )* };
}

operator! {
    Add add AddAssign add_assign add_ |x, y, at| apply(x, y, Binary::Add, at); |n, x| reversed(n, x, Binary::Add, at);
    Sub sub SubAssign sub_assign sub_ |x, y, at| apply(x, y, Binary::Sub, at); |n, x| reversed(n, x, Binary::Sub, at);
    Mul mul MulAssign mul_assign mul_ |x, y, at| apply(x, y, Binary::Mul, at); |n, x| reversed(n, x, Binary::Mul, at);
    Div div DivAssign div_assign div_ |x, y, at| quotient(x, y, at);
        |n, x| with_number(x, n, at, |b, x, n| super::arith::true_divide(b, n, x));
    Rem rem RemAssign rem_assign remainder_ |x, y, at| remainder(x, y, at);
        |n, x| with_number(x, n, at, |b, x, n| modulo(b, n, x));
    BitAnd bitand BitAndAssign bitand_assign and_ |x, y, at| apply(x, y, Binary::And, at);
        |n, x| reversed(n, x, Binary::And, at);
    BitOr bitor BitOrAssign bitor_assign or_ |x, y, at| apply(x, y, Binary::Or, at);
        |n, x| reversed(n, x, Binary::Or, at);
    BitXor bitxor BitXorAssign bitxor_assign xor_ |x, y, at| apply(x, y, Binary::Xor, at);
        |n, x| reversed(n, x, Binary::Xor, at);
    Shl shl ShlAssign shl_assign shl_ |x, y, at| apply(x, y, Binary::Shl, at);
        |n, x| reversed(n, x, Binary::Shl, at);
    Shr shr ShrAssign shr_assign shr_ |x, y, at| apply(x, y, Binary::Shr, at);
        |n, x| reversed(n, x, Binary::Shr, at);
}

macro_rules! prefix {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl ops::$trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                unary(self, Unary::$op, Loc::caller())
            }
        }

        impl ops::$trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self) -> Tensor {
                unary(&self, Unary::$op, Loc::caller())
            }
        }
    )* };
}
prefix!(Neg neg Neg, Not not Not);
