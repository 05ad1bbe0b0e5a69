//! Elementwise ops, comparisons, products, and the operators on `&Tensor`.

use super::{Tensor, misfit};
use crate::amp;
use crate::intern::{self, composite};
use crate::record::{Number, Record, align, number_like, one, plain};
use ir::composites::activation;
use ir::ops::{Clamp, Dot, StopGradient};
use ir::{Binary, Compare, DType, Loc, Problem, Unary, Value};
use std::ops;

fn unary(t: &Tensor, op: Unary, at: Loc) -> Tensor {
    if let Some(made) = plain(&at, intern::unary(op), [t]) {
        return made;
    }
    one(&at, &[t], |b, v| {
        let x = if matches!(op, Unary::Exp | Unary::Log | Unary::Log1p | Unary::Rsqrt) {
            amp::wide(b, v[0])?
        } else {
            v[0]
        };
        b.unary(op, x)
    })
}

fn binary(x: &Tensor, y: &Tensor, op: Binary, at: Loc) -> Tensor {
    if let Some(made) = plain(&at, intern::binary(op), [x, y]) {
        return made;
    }
    one(&at, &[x, y], |b, v| {
        let (x, y) = align(b, v[0], v[1])?;
        b.binary(op, x, y)
    })
}

fn with_number(
    t: &Tensor,
    n: Number,
    at: Loc,
    f: impl FnOnce(&mut dyn Record, Value, Value) -> ir::Result<Value>,
) -> Tensor {
    one(&at, &[t], |b, v| {
        let n = number_like(b, t.dtype(), n)?;
        let (x, n) = align(b, v[0], n)?;
        f(b, x, n)
    })
}

macro_rules! unaries {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                unary(self, Unary::$op, Loc::caller())
            }
        )* }
    };
}

unaries! {
    /// `|x|`.
    abs => Abs,
    /// −1, 0 or 1.
    sign => Sign,
    /// Largest integer not above.
    floor => Floor,
    /// Smallest integer not below.
    ceil => Ceil,
    /// Nearest integer, ties to even.
    round => Round,
    /// The integer part.
    trunc => Trunc,
    /// `eˣ`.
    exp => Exp,
    /// `2ˣ`.
    exp2 => Exp2,
    /// `eˣ − 1`.
    expm1 => Expm1,
    /// Natural logarithm.
    log => Log,
    /// Logarithm to base 2.
    log2 => Log2,
    /// `log(1 + x)`.
    log1p => Log1p,
    /// Square root.
    sqrt => Sqrt,
    /// `1/√x`.
    rsqrt => Rsqrt,
    /// `1/x`.
    reciprocal => Reciprocal,
    /// Sine.
    sin => Sin,
    /// Cosine.
    cos => Cos,
    /// Tangent.
    tan => Tan,
    /// Arc sine.
    asin => Asin,
    /// Arc cosine.
    acos => Acos,
    /// Arc tangent.
    atan => Atan,
    /// Hyperbolic sine.
    sinh => Sinh,
    /// Hyperbolic cosine.
    cosh => Cosh,
    /// Hyperbolic tangent.
    tanh => Tanh,
    /// Inverse hyperbolic sine.
    asinh => Asinh,
    /// Inverse hyperbolic cosine.
    acosh => Acosh,
    /// Inverse hyperbolic tangent.
    atanh => Atanh,
    /// The error function.
    erf => Erf,
    /// `1 − erf(x)`.
    erfc => Erfc,
    /// Inverse of `erf`.
    erf_inv => ErfInv,
    /// `log Γ(x)`.
    lgamma => Lgamma,
    /// Derivative of `log Γ`.
    digamma => Digamma,
    /// `1/(1 + e⁻ˣ)`.
    sigmoid => Logistic,
    /// Whether neither infinite nor NaN.
    is_finite => IsFinite,
    /// Bitwise or logical not.
    not => Not,
}

macro_rules! binaries {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Tensor {
                binary(self, other, Binary::$op, Loc::caller())
            }
        )* }
    };
}

binaries! {
    /// The larger, elementwise; NaN if either is.
    maximum => Max,
    /// The smaller, elementwise; NaN if either is.
    minimum => Min,
    /// `xʸ`.
    pow => Pow,
    /// Angle of the point `(other, self)`.
    atan2 => Atan2,
    /// Remainder with the dividend's sign.
    rem => Rem,
    /// Bitwise or logical and.
    and => And,
    /// Bitwise or logical or.
    or => Or,
    /// Bitwise or logical exclusive or.
    xor => Xor,
}

macro_rules! compares {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: &Tensor) -> Tensor {
                one(&Loc::caller(), &[self, other], |b, v| {
                    let (x, y) = align(b, v[0], v[1])?;
                    b.compare(Compare::$op, x, y)
                })
            }
        )* }
    };
}

compares! {
    /// Elementwise `==`.
    eq => Eq,
    /// Elementwise `!=`.
    ne => Ne,
    /// Elementwise `<`.
    lt => Lt,
    /// Elementwise `<=`.
    le => Le,
    /// Elementwise `>`.
    gt => Gt,
    /// Elementwise `>=`.
    ge => Ge,
}

impl Tensor {
    /// `xⁿ` for a number.
    #[track_caller]
    pub fn powf(&self, n: impl Into<Number>) -> Tensor {
        with_number(self, n.into(), Loc::caller(), |b, x, n| b.binary(Binary::Pow, x, n))
    }

    /// `x·x`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.mul(v[0], v[0]))
    }

    /// `max(x, 0)`.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| relu(b, v[0]))
    }

    /// Moves every element into `low..=high`.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Number>, high: impl Into<Number>) -> Tensor {
        let (low, high) = (low.into(), high.into());
        one(&Loc::caller(), &[self], |b, v| {
            let low = number_like(b, self.dtype(), low)?;
            let (x, low) = align(b, v[0], low)?;
            let high = number_like(b, self.dtype(), high)?;
            let (x, high) = align(b, x, high)?;
            b.one(Clamp.into(), &[x, low, high])
        })
    }

    /// `if self { a } else { b }`, elementwise; `self` is bool.
    #[track_caller]
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, a, b], |g, v| {
            let (x, y) = align(g, v[1], v[2])?;
            let (x, c) = spread(g, x, v[0])?;
            let (y, c) = spread(g, y, c)?;
            g.select(c, x, y)
        })
    }

    /// Converts the elements.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.cast(v[0], dtype))
    }

    /// The same value, through which no gradient flows. Unlike `detach`, memory is not shared.
    #[track_caller]
    pub fn stop_gradient(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.one(StopGradient.into(), &[v[0]]))
    }

    /// The matrix product, with NumPy's rules: vectors are rows on the left and columns on the right, leading axes
    /// broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, other], |b, v| matmul(b, v[0], v[1]))
    }
}

/// `max(x, 0)` with gradient 0 at 0, as PyTorch has it; a NaN stays one.
pub(super) fn relu(b: &mut dyn Record, x: Value) -> ir::Result<Value> {
    let ty = b.ty(x);
    if !ty.dtype.is_float() {
        let zero = b.full_like(x, 0.0)?;
        return b.binary(Binary::Max, x, zero);
    }
    let op = composite("relu", std::slice::from_ref(&ty), &[], || activation::relu(&ty))?;
    Ok(b.emit(op.into(), &[x])?[0])
}

/// Broadcasts two values to a common shape, whatever their dtypes.
fn spread(b: &mut dyn Record, x: Value, y: Value) -> ir::Result<(Value, Value)> {
    let (tx, ty) = (b.ty(x), b.ty(y));
    match crate::record::broadcast_shapes(&tx.shape, &ty.shape) {
        Some(s) => Ok((b.broadcast_to(x, &s)?, b.broadcast_to(y, &s)?)),
        None => Ok((x, y)),
    }
}

fn matmul(b: &mut dyn Record, x: Value, y: Value) -> ir::Result<Value> {
    let (mut x, mut y) = (amp::narrow(b, x)?, amp::narrow(b, y)?);
    let (tx, ty) = (b.ty(x), b.ty(y));
    let bad = |why: String| misfit("matmul", &[&tx, &ty], Problem::other(why));
    if tx.rank() == 0 || ty.rank() == 0 {
        return Err(bad("a scalar has no matrix product; use *".into()));
    }
    let Some(common) = tx.dtype.promote(ty.dtype) else {
        return Err(misfit("matmul", &[&tx, &ty], Problem::DTypes(tx.dtype, ty.dtype)));
    };
    (x, y) = (b.cast(x, common)?, b.cast(y, common)?);
    let (row, column) = (tx.rank() == 1, ty.rank() == 1);
    if row {
        x = b.reshape(x, &[1, tx.shape[0]])?;
    }
    if column {
        y = b.reshape(y, &[ty.shape[0], 1])?;
    }
    let (sx, sy) = (b.ty(x).shape, b.ty(y).shape);
    let (bx, by) = (&sx[..sx.len() - 2], &sy[..sy.len() - 2]);
    let (k, k2) = (sx[sx.len() - 1], sy[sy.len() - 2]);
    if k != k2 {
        return Err(bad(format!("the last axis of the left has {k} elements, the rows of the right {k2}")));
    }
    let z = if by.is_empty() {
        // [.., m, k] · [k, n]: all leading axes are rows.
        b.one(Dot { lhs_contract: [sx.len() - 1].into_iter().collect(), ..Dot::matmul(common) }.into(), &[x, y])?
    } else {
        let Some(batch) = crate::record::broadcast_shapes(bx, by) else {
            return Err(bad(format!("leading axes {bx:?} and {by:?} don't broadcast")));
        };
        let wide = |s: &[usize]| [&batch, &s[s.len() - 2..]].concat();
        x = b.broadcast_to(x, &wide(&sx))?;
        y = b.broadcast_to(y, &wide(&sy))?;
        b.one(Dot::batched_matmul(common, batch.len()).into(), &[x, y])?
    };
    let mut shape = b.ty(z).shape;
    let n = shape.len();
    if column {
        shape.remove(n - 1);
    }
    if row {
        shape.remove(n - 2);
    }
    b.reshape(z, &shape)
}

// One float and one integer type, so that a literal has one meaning.
macro_rules! operator {
    ($($trait:ident $method:ident $op:ident),*) => { $(
        impl ops::$trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                binary(self, other, Binary::$op, Loc::caller())
            }
        }
        impl ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                binary(self, &other, Binary::$op, Loc::caller())
            }
        }
        impl ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                binary(&self, other, Binary::$op, Loc::caller())
            }
        }
        impl ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                binary(&self, &other, Binary::$op, Loc::caller())
            }
        }
        operator!(@numbers $trait $method $op f64 i64);
    )* };
    (@numbers $trait:ident $method:ident $op:ident $($n:ty)*) => { $(
        impl ops::$trait<$n> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, n: $n) -> Tensor {
                with_number(self, n.into(), Loc::caller(), |b, x, n| b.binary(Binary::$op, x, n))
            }
        }
        impl ops::$trait<$n> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, n: $n) -> Tensor {
                with_number(&self, n.into(), Loc::caller(), |b, x, n| b.binary(Binary::$op, x, n))
            }
        }
        impl ops::$trait<&Tensor> for $n {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, t: &Tensor) -> Tensor {
                with_number(t, self.into(), Loc::caller(), |b, x, n| b.binary(Binary::$op, n, x))
            }
        }
        impl ops::$trait<Tensor> for $n {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, t: Tensor) -> Tensor {
                with_number(&t, self.into(), Loc::caller(), |b, x, n| b.binary(Binary::$op, n, x))
            }
        }
    )* };
}
operator!(Add add Add, Sub sub Sub, Mul mul Mul, Div div Div);

impl ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        unary(self, Unary::Neg, Loc::caller())
    }
}

impl ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        unary(&self, Unary::Neg, Loc::caller())
    }
}
