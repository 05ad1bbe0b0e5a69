//! Elementwise ops, comparisons and matrix products.

use super::{Tensor, operand_error};
use crate::amp;
use crate::intern::{self, composite};
use crate::operand::{Number, OperandRef, TensorOrScalar};
use crate::record::{Recorder, number_like, one, promote_and_broadcast, record_elementwise};
use ir::composites::activation;
use ir::ops::{Clamp, Dot, StopGradient};
use ir::{Binary, Compare, DType, DTypeDomain, InferError, Loc, Unary, Value};

pub(super) fn unary(t: &Tensor, op: Unary, at: Loc) -> Tensor {
    if let Some(made) = record_elementwise(&at, intern::unary(op), [t]) {
        return made;
    }
    one(&at, &[t], |b, v| {
        // Functions of real numbers convert integers to floats, but rounding functions leave integers unchanged.
        let dtype = b.ty(v[0]).dtype;
        if op.domain() == DTypeDomain::Float && !dtype.is_float() {
            return match op {
                Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => Ok(v[0]),
                Unary::IsFinite => b.full(&b.ty(v[0]).with_dtype(DType::Bool), ir::Scalar::bool(true)),
                _ => {
                    let x = b.cast(v[0], DType::F32)?;
                    b.unary(op, x)
                }
            };
        }
        let x = if matches!(op, Unary::Exp | Unary::Log | Unary::Log1p | Unary::Rsqrt) {
            amp::to_f32(b, v[0])?
        } else {
            v[0]
        };
        b.unary(op, x)
    })
}

pub(super) fn binary(x: &Tensor, y: &Tensor, op: Binary, at: Loc) -> Tensor {
    if let Some(made) = record_elementwise(&at, intern::binary(op), [x, y]) {
        return made;
    }
    aligned(x, y, at, |b, x, y| operate(b, op, x, y))
}

/// Applies a function to two tensors after promotion to a common dtype and broadcasting to a common shape.
pub(super) fn aligned(
    x: &Tensor,
    y: &Tensor,
    at: Loc,
    f: impl FnOnce(&mut dyn Recorder, Value, Value) -> ir::Result<Value>,
) -> Tensor {
    one(&at, &[x, y], |b, v| {
        let (x, y) = promote_and_broadcast(b, v[0], v[1])?;
        f(b, x, y)
    })
}

/// True division `x / y`; integers are converted to floats.
pub(super) fn divide(x: &Tensor, y: &Tensor, at: Loc) -> Tensor {
    if x.dtype().is_float()
        && let Some(made) = record_elementwise(&at, intern::binary(Binary::Div), [x, y])
    {
        return made;
    }
    aligned(x, y, at, true_divide)
}

/// An op on values with a common type; functions of real numbers convert integers to floats.
pub(super) fn operate(b: &mut dyn Recorder, op: Binary, x: Value, y: Value) -> ir::Result<Value> {
    let (x, y) = if op.domain() == DTypeDomain::Float { (to_float(b, x)?, to_float(b, y)?) } else { (x, y) };
    b.binary(op, x, y)
}

/// Converts integers and bools to f32.
fn to_float(b: &mut dyn Recorder, x: Value) -> ir::Result<Value> {
    if b.ty(x).dtype.is_float() { Ok(x) } else { b.cast(x, DType::F32) }
}

/// True division: the quotient of integers is a float, as in NumPy, PyTorch and JAX.
pub(super) fn true_divide(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<Value> {
    let (x, y) = (to_float(b, x)?, to_float(b, y)?);
    b.div(x, y)
}

/// The remainder with the sign of the divisor.
pub(super) fn modulo(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<Value> {
    let r = b.binary(Binary::Rem, x, y)?;
    let zero = b.full_like(r, 0.0)?;
    let (r_low, y_low) = (b.compare(Compare::Lt, r, zero)?, b.compare(Compare::Lt, y, zero)?);
    let (some, differ) = (b.compare(Compare::Ne, r, zero)?, b.binary(Binary::Xor, r_low, y_low)?);
    let fix = b.binary(Binary::And, some, differ)?;
    let moved = b.add(r, y)?;
    b.select(fix, moved, r)
}

/// The quotient rounded down.
pub(super) fn floor_div(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<Value> {
    let r = modulo(b, x, y)?;
    if b.ty(x).dtype.is_float() {
        let whole = b.sub(x, r)?;
        let q = b.div(whole, y)?;
        return b.unary(Unary::Round, q);
    }
    // The quotient is rounded towards zero, which is one too large if there is a remainder and the signs differ.
    let (q, rest) = (b.div(x, y)?, b.binary(Binary::Rem, x, y)?);
    let down = b.compare(Compare::Ne, r, rest)?;
    let less = b.offset(q, -1.0)?;
    b.select(down, less, q)
}

/// Applies a function to a tensor and an operand, which is a number or a tensor.
fn with_operand(
    x: &Tensor,
    y: &impl TensorOrScalar,
    at: Loc,
    f: impl FnOnce(&mut dyn Recorder, Value, Value) -> ir::Result<Value>,
) -> Tensor {
    match y.term() {
        OperandRef::Tensor(y) => aligned(x, y, at, f),
        OperandRef::Number(n) => with_number(x, n, at, f),
    }
}

fn compare(x: &Tensor, y: &impl TensorOrScalar, op: Compare, at: Loc) -> Tensor {
    match y.term() {
        OperandRef::Tensor(y) => aligned(x, y, at, |b, x, y| b.compare(op, x, y)),
        OperandRef::Number(n) => one(&at, &[x], |b, v| {
            // A number that the dtype can't represent is compared in a wider dtype.
            let dtype = b.ty(v[0]).dtype;
            let wide = match n {
                Number::Int(_) if n.to_scalar(dtype).is_none() && dtype != DType::U64 => DType::I64,
                _ => dtype,
            };
            let x = b.cast(v[0], wide)?;
            let n = number_like(b, wide, n)?;
            let (x, n) = promote_and_broadcast(b, x, n)?;
            b.compare(op, x, n)
        }),
    }
}

pub(super) fn with_number(
    t: &Tensor,
    n: Number,
    at: Loc,
    f: impl FnOnce(&mut dyn Recorder, Value, Value) -> ir::Result<Value>,
) -> Tensor {
    one(&at, &[t], |b, v| {
        let n = number_like(b, t.dtype(), n)?;
        let (x, n) = promote_and_broadcast(b, v[0], n)?;
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
    /// The absolute value `|x|`.
    abs => Abs,
    /// The sign: −1, 0 or 1.
    sign => Sign,
    /// Rounds down to an integer.
    floor => Floor,
    /// Rounds up to an integer.
    ceil => Ceil,
    /// Rounds to the nearest integer, ties to even.
    round => Round,
    /// Rounds towards zero to an integer.
    trunc => Trunc,
    /// The exponential `eˣ`.
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
    /// The reciprocal square root `1/√x`.
    rsqrt => Rsqrt,
    /// The reciprocal `1/x`.
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
    /// The complementary error function `1 − erf(x)`.
    erfc => Erfc,
    /// Inverse of `erf`.
    erf_inv => ErfInv,
    /// The logarithm of the gamma function, `log Γ(x)`.
    lgamma => Lgamma,
    /// The digamma function, the derivative of `log Γ(x)`.
    digamma => Digamma,
    /// The logistic function `1/(1 + e⁻ˣ)`.
    sigmoid => Logistic,
    /// Whether the element is neither infinite nor NaN.
    is_finite => IsFinite,
    /// Bitwise not of integers, logical not of bools.
    not => Not,
}

macro_rules! binaries {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl TensorOrScalar) -> Tensor {
                match other.term() {
                    OperandRef::Tensor(y) => binary(self, y, Binary::$op, Loc::caller()),
                    OperandRef::Number(n) => {
                        with_number(self, n, Loc::caller(), |b, x, n| operate(b, Binary::$op, x, n))
                    }
                }
            }
        )* }
    };
}

binaries! {
    /// The elementwise maximum; NaN if either operand is.
    maximum => Max,
    /// The elementwise minimum; NaN if either operand is.
    minimum => Min,
    /// The power `xʸ`.
    pow => Pow,
    /// The angle of the point `(other, self)`: `atan2(self, other)`.
    atan2 => Atan2,
    /// The remainder with the sign of the dividend.
    fmod => Rem,
    /// Bitwise and of integers, logical and of bools.
    and => And,
    /// Bitwise or of integers, logical or of bools.
    or => Or,
    /// Bitwise exclusive or of integers, logical exclusive or of bools.
    xor => Xor,
}

macro_rules! compares {
    ($($(#[$doc:meta])* $name:ident => $op:ident),* $(,)?) => {
        impl Tensor { $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl TensorOrScalar) -> Tensor {
                compare(self, &other, Compare::$op, Loc::caller())
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
    /// Raises to the power `n`, a number.
    #[track_caller]
    pub fn powf(&self, n: impl Into<Number>) -> Tensor {
        with_number(self, n.into(), Loc::caller(), |b, x, n| b.binary(Binary::Pow, x, n))
    }

    /// The square `x·x`.
    #[track_caller]
    pub fn square(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.mul(v[0], v[0]))
    }

    /// The rectified linear unit `max(x, 0)`.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| relu(b, v[0]))
    }

    /// Clamps every element to `low..=high`.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Number>, high: impl Into<Number>) -> Tensor {
        let (low, high) = (low.into(), high.into());
        one(&Loc::caller(), &[self], |b, v| {
            let low = number_like(b, self.dtype(), low)?;
            let (x, low) = promote_and_broadcast(b, v[0], low)?;
            let high = number_like(b, self.dtype(), high)?;
            let (x, high) = promote_and_broadcast(b, x, high)?;
            b.one(Clamp.into(), &[x, low, high])
        })
    }

    /// `if self { a } else { b }`, elementwise; `self` is bool, `a` and `b` are tensors or numbers.
    #[track_caller]
    pub fn select(&self, a: impl TensorOrScalar, b: impl TensorOrScalar) -> Tensor {
        let (a, b) = (a.term(), b.term());
        let given = |t: &OperandRef<'_>| match t {
            OperandRef::Tensor(t) => Some(t.dtype()),
            OperandRef::Number(_) => None,
        };
        // A number takes the dtype of the tensor operand. If both are numbers, the dtype is f32 if either is a float, else i64.
        let floats = [&a, &b].iter().any(|t| matches!(t, OperandRef::Number(Number::Float(_))));
        let like = given(&a).or(given(&b)).unwrap_or(if floats { DType::F32 } else { DType::I64 });
        let tensors = [&a, &b].into_iter().filter_map(|t| match t {
            OperandRef::Tensor(t) => Some(*t),
            OperandRef::Number(_) => None,
        });
        let args: Vec<&Tensor> = [self].into_iter().chain(tensors).collect();
        one(&Loc::caller(), &args, |g, v| {
            let mut rest = v[1..].iter();
            let mut value = |g: &mut dyn Recorder, t: &OperandRef<'_>| match t {
                OperandRef::Tensor(_) => Ok(*rest.next().expect("one for each tensor")),
                OperandRef::Number(n) => number_like(g, like, *n),
            };
            let (x, y) = (value(g, &a)?, value(g, &b)?);
            let (x, y) = promote_and_broadcast(g, x, y)?;
            let (x, c) = broadcast_together(g, x, v[0])?;
            let (y, c) = broadcast_together(g, y, c)?;
            g.select(c, x, y)
        })
    }

    /// The quotient rounded down; for integers it is an integer.
    ///
    /// ```ignore
    /// assert_eq!(tensor(&[7, -7], &[2]).floor_divide(2).to_vec::<i32>()?, [3, -4]);
    /// ```
    #[track_caller]
    pub fn floor_divide(&self, other: impl TensorOrScalar) -> Tensor {
        with_operand(self, &other, Loc::caller(), floor_div)
    }

    /// The remainder with the sign of the divisor, as the operator `%`.
    #[track_caller]
    pub fn remainder(&self, other: impl TensorOrScalar) -> Tensor {
        with_operand(self, &other, Loc::caller(), modulo)
    }

    /// Shifts integers left: `x·2ⁿ`, as the operator `<<`.
    #[track_caller]
    pub fn shl(&self, other: impl TensorOrScalar) -> Tensor {
        with_operand(self, &other, Loc::caller(), |b, x, y| b.binary(Binary::Shl, x, y))
    }

    /// Shifts integers right: `x/2ⁿ` rounded down, as the operator `>>`.
    #[track_caller]
    pub fn shr(&self, other: impl TensorOrScalar) -> Tensor {
        with_operand(self, &other, Loc::caller(), |b, x, y| b.binary(Binary::Shr, x, y))
    }

    /// Converts to f32.
    #[track_caller]
    pub fn float(&self) -> Tensor {
        self.cast_at(DType::F32, Loc::caller())
    }

    /// Converts to f64.
    #[track_caller]
    pub fn double(&self) -> Tensor {
        self.cast_at(DType::F64, Loc::caller())
    }

    /// Converts to f16.
    #[track_caller]
    pub fn half(&self) -> Tensor {
        self.cast_at(DType::F16, Loc::caller())
    }

    /// Converts to bf16.
    #[track_caller]
    pub fn bfloat16(&self) -> Tensor {
        self.cast_at(DType::BF16, Loc::caller())
    }

    /// Converts to i32; floats are truncated.
    #[track_caller]
    pub fn int(&self) -> Tensor {
        self.cast_at(DType::I32, Loc::caller())
    }

    /// Converts to i64; floats are truncated.
    #[track_caller]
    pub fn long(&self) -> Tensor {
        self.cast_at(DType::I64, Loc::caller())
    }

    /// Converts to bool: true for elements that are not zero.
    #[track_caller]
    pub fn bool(&self) -> Tensor {
        self.cast_at(DType::Bool, Loc::caller())
    }

    fn cast_at(&self, dtype: DType, at: Loc) -> Tensor {
        one(&at, &[self], |b, v| b.cast(v[0], dtype))
    }

    /// Converts the elements to another dtype.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.cast(v[0], dtype))
    }

    /// Returns the same value with the gradient stopped. Unlike `detach`, the result does not share memory.
    #[track_caller]
    pub fn stop_gradient(&self) -> Tensor {
        one(&Loc::caller(), &[self], |b, v| b.one(StopGradient.into(), &[v[0]]))
    }

    /// The matrix product with NumPy's rules: a vector is a row on the left and a column on the right, and leading axes
    /// broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        one(&Loc::caller(), &[self, other], |b, v| matmul(b, v[0], v[1]))
    }
}

/// `max(x, 0)` with gradient 0 at 0, as in PyTorch; NaN stays NaN.
pub(super) fn relu(b: &mut dyn Recorder, x: Value) -> ir::Result<Value> {
    let ty = b.ty(x);
    if !ty.dtype.is_float() {
        let zero = b.full_like(x, 0.0)?;
        return b.binary(Binary::Max, x, zero);
    }
    let op = composite("relu", std::slice::from_ref(&ty), &[], || activation::relu(&ty))?;
    Ok(b.emit(op.into(), &[x])?[0])
}

/// Broadcasts two values to a common shape; their dtypes may differ.
fn broadcast_together(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<(Value, Value)> {
    let (tx, ty) = (b.ty(x), b.ty(y));
    match crate::record::broadcast_shapes(&tx.shape, &ty.shape) {
        Some(s) => Ok((b.broadcast_to(x, &s)?, b.broadcast_to(y, &s)?)),
        None => Ok((x, y)),
    }
}

fn matmul(b: &mut dyn Recorder, x: Value, y: Value) -> ir::Result<Value> {
    let (mut x, mut y) = (amp::to_autocast_dtype(b, x)?, amp::to_autocast_dtype(b, y)?);
    let (tx, ty) = (b.ty(x), b.ty(y));
    let bad = |why: String| operand_error("matmul", &[&tx, &ty], InferError::other(why));
    if tx.rank() == 0 || ty.rank() == 0 {
        return Err(bad("a scalar has no matrix product; use `*`".into()));
    }
    let Some(common) = tx.dtype.promote(ty.dtype) else {
        return Err(operand_error("matmul", &[&tx, &ty], InferError::DTypes(tx.dtype, ty.dtype)));
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
        return Err(bad(format!(
            "the last axis of the left operand has {k} elements, but the right operand has {k2} rows"
        )));
    }
    let z = if by.is_empty() {
        // [.., m, k] · [k, n]: the leading axes are flattened into rows.
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
