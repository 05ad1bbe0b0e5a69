//! Elementwise ops: the unary, binary and comparison families, select, clamp, fma and the conversions.
//!
//! Operands have equal shapes; broadcasting is a separate view op.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, DTypeDomain, Scalar, Unary};
use std::f64::consts::{LN_2, LN_10, PI};

fn check_domain(args: &[Type], operand: usize, domain: DTypeDomain) -> std::result::Result<(), InferError> {
    let got = args[operand].dtype;
    if domain.contains(got) { Ok(()) } else { Err(InferError::DType { operand, expected: domain.describe(), got }) }
}

fn same_types(a: &Type, b: &Type) -> std::result::Result<(), InferError> {
    if a.dtype != b.dtype {
        return Err(InferError::DTypes(a.dtype, b.dtype));
    }
    same_shapes(a, b)
}

fn same_shapes(a: &Type, b: &Type) -> std::result::Result<(), InferError> {
    if a.shape != b.shape {
        return Err(InferError::Shapes(a.shape.clone(), b.shape.clone()));
    }
    Ok(())
}

/// Batches every elementwise op: unbatched operands are broadcast, which is a free view.
pub(crate) fn batch_map(
    op: Op,
    cx: &mut dyn GraphTransforms,
    x: &[Value],
    batched: &[bool],
    size: usize,
) -> Result<Vec<(Value, bool)>> {
    let mut args = Vec::with_capacity(x.len());
    for (&v, &b) in x.iter().zip(batched) {
        args.push(if b { v } else { cx.broadcast_leading(v, size)? });
    }
    Ok(cx.emit(op, &args)?.into_iter().map(|v| (v, true)).collect())
}

macro_rules! batch_elementwise {
    () => {
        fn batch(
            &self,
            cx: &mut dyn GraphTransforms,
            x: &[Value],
            batched: &[bool],
            size: usize,
        ) -> Result<Vec<(Value, bool)>> {
            batch_map(self.clone().into(), cx, x, batched, size)
        }
    };
}

impl Rules for Unary {
    fn name(&self) -> &'static str {
        Unary::name(*self)
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        check_domain(args, 0, self.domain())?;
        Ok(vec![args[0].with_dtype(self.result(args[0].dtype))])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        let slope = unary_slope(*self, cx, x[0], y[0])?;
        Ok(vec![match slope {
            Slope::Zero => None,
            Slope::Minus => Some(cx.neg(d)?),
            Slope::Times(s) => Some(cx.mul(d, s)?),
            Slope::Over(s) => Some(cx.div(d, s)?),
        }])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, _: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        match (self, ct[0]) {
            (Unary::Neg, Some(c)) => Ok(vec![Some(cx.neg(c)?)]),
            (Unary::Neg, None) => Ok(vec![None]),
            _ => not_linear(self),
        }
    }

    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        use Unary::*;
        match self {
            Neg | Sign | Floor | Ceil | Round | Trunc | Not | IsFinite | PopulationCount => SavedForBackward::none(),
            Exp | Exp2 | Expm1 | Sqrt | Rsqrt | Reciprocal | Tan | Tanh | ErfInv | Logistic => {
                SavedForBackward::outputs(&[0])
            }
            Abs | Log | Log2 | Log10 | Log1p | Sin | Cos | Asin | Acos | Atan | Sinh | Cosh | Asinh | Acosh | Atanh
            | Erf | Erfc | Lgamma | Digamma => SavedForBackward::inputs(&[0]),
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        use Unary::*;
        match self {
            Neg | Abs | Sign => AutocastRule::Promote,
            Floor | Ceil | Round | Trunc | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sqrt | Rsqrt
            | Reciprocal | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Erf
            | Erfc | ErfInv | Lgamma | Digamma | Logistic | Not | IsFinite | PopulationCount => AutocastRule::Fp32,
        }
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Unary(*self, Expr::arg(0)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Unary>> {
        Unary::from_name(name).map(Ok)
    }
}

enum Slope {
    Zero,
    Minus,
    Times(Value),
    Over(Value),
}

/// f'(x), expressed with the result `y` if that is cheaper or more precise.
fn unary_slope(op: Unary, cx: &mut dyn GraphTransforms, x: Value, y: Value) -> Result<Slope> {
    use Slope::{Over, Times};
    use Unary::*;
    Ok(match op {
        Neg => Slope::Minus,
        Sign | Floor | Ceil | Round | Trunc | Not | IsFinite | PopulationCount => Slope::Zero,
        Abs => Times(cx.unary(Sign, x)?),
        Exp => Times(y),
        Exp2 => Times(cx.scale(y, LN_2)?),
        Expm1 => Times(cx.offset(y, 1.0)?),
        Log => Over(x),
        Log2 => Over(cx.scale(x, LN_2)?),
        Log10 => Over(cx.scale(x, LN_10)?),
        Log1p => Over(cx.offset(x, 1.0)?),
        Sqrt => Over(cx.scale(y, 2.0)?),
        Rsqrt => {
            let half = cx.scale(y, -0.5)?;
            Times(cx.div(half, x)?)
        }
        Reciprocal => {
            let sq = cx.mul(y, y)?;
            Times(cx.neg(sq)?)
        }
        Sin => Times(cx.unary(Cos, x)?),
        Cos => {
            let s = cx.unary(Sin, x)?;
            Times(cx.neg(s)?)
        }
        Tan => {
            let sq = cx.mul(y, y)?;
            Times(cx.offset(sq, 1.0)?)
        }
        Asin | Acos => {
            // (1 - x)(1 + x) is precise near ±1, where 1 - x² loses digits.
            let n = cx.neg(x)?;
            let (a, b) = (cx.offset(n, 1.0)?, cx.offset(x, 1.0)?);
            let p = cx.mul(a, b)?;
            let r = cx.unary(Rsqrt, p)?;
            Times(if op == Asin { r } else { cx.neg(r)? })
        }
        Atan => {
            let sq = cx.mul(x, x)?;
            Over(cx.offset(sq, 1.0)?)
        }
        Sinh => Times(cx.unary(Cosh, x)?),
        Cosh => Times(cx.unary(Sinh, x)?),
        Tanh => {
            let sq = cx.mul(y, y)?;
            let n = cx.neg(sq)?;
            Times(cx.offset(n, 1.0)?)
        }
        Asinh => {
            let sq = cx.mul(x, x)?;
            let p = cx.offset(sq, 1.0)?;
            Times(cx.unary(Rsqrt, p)?)
        }
        Acosh => {
            let (a, b) = (cx.offset(x, -1.0)?, cx.offset(x, 1.0)?);
            let p = cx.mul(a, b)?;
            Times(cx.unary(Rsqrt, p)?)
        }
        Atanh => {
            let n = cx.neg(x)?;
            let (a, b) = (cx.offset(n, 1.0)?, cx.offset(x, 1.0)?);
            Over(cx.mul(a, b)?)
        }
        Erf | Erfc => {
            let sq = cx.mul(x, x)?;
            let n = cx.neg(sq)?;
            let e = cx.unary(Exp, n)?;
            let c = 2.0 / PI.sqrt();
            Times(cx.scale(e, if op == Erf { c } else { -c })?)
        }
        ErfInv => {
            let sq = cx.mul(y, y)?;
            let e = cx.unary(Exp, sq)?;
            Times(cx.scale(e, PI.sqrt() / 2.0)?)
        }
        Lgamma => Times(cx.unary(Digamma, x)?),
        Digamma => {
            let two = cx.full_like(x, 2.0)?;
            Times(cx.binary(Binary::Zeta, two, x)?)
        }
        Logistic => {
            let n = cx.neg(y)?;
            let one_minus = cx.offset(n, 1.0)?;
            Times(cx.mul(y, one_minus)?)
        }
    })
}

impl Rules for Binary {
    fn name(&self) -> &'static str {
        Binary::name(*self)
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        same_types(&args[0], &args[1])?;
        check_domain(args, 0, self.domain())?;
        Ok(vec![args[0].clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let (a, b, y) = (x[0], x[1], y[0]);
        if !cx.ty(y).dtype.is_float() {
            return Ok(vec![None]);
        }
        let da = match dx[0] {
            Some(d) => Some(binary_tangent_left(*self, cx, a, b, y, d)?),
            None => None,
        };
        let db = match dx[1] {
            Some(d) => Some(binary_tangent_right(*self, cx, a, b, y, d)?),
            None => None,
        };
        Ok(vec![cx.add_optional(da, db)?])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        Ok(match (self, &args[0], &args[1]) {
            (Binary::Add, a, b) => vec![a.is_linear().then_some(c), b.is_linear().then_some(c)],
            (Binary::Sub, a, b) => {
                let right = if b.is_linear() { Some(cx.neg(c)?) } else { None };
                vec![a.is_linear().then_some(c), right]
            }
            (Binary::Mul, TransposeArg::Linear(_), TransposeArg::Known(k)) => vec![Some(cx.mul(c, *k)?), None],
            (Binary::Mul, TransposeArg::Known(k), TransposeArg::Linear(_)) => vec![None, Some(cx.mul(*k, c)?)],
            (Binary::Div, TransposeArg::Linear(_), TransposeArg::Known(k)) => vec![Some(cx.div(c, *k)?), None],
            _ => return not_linear(self),
        })
    }

    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        use Binary::*;
        match self {
            Mul => SavedForBackward::bilinear(&[0, 1]),
            Div => SavedForBackward { when: SavePolicy::Quotient, ..SavedForBackward::inputs(&[0, 1]) },
            Rem | Max | Min | Atan2 | Zeta => SavedForBackward::inputs(&[0, 1]),
            Pow => SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0, 1]) },
            Add | Sub | And | Or | Xor | Shl | Shr => SavedForBackward::none(),
        }
    }

    fn autocast_rule(&self) -> AutocastRule {
        use Binary::*;
        match self {
            Add | Sub | Mul | Max | Min => AutocastRule::Promote,
            Div | Rem | Pow | Atan2 | Zeta | And | Or | Xor | Shl | Shr => AutocastRule::Fp32,
        }
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Binary(*self, Expr::arg(0), Expr::arg(1)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Binary>> {
        Binary::from_name(name).map(Ok)
    }
}

fn binary_tangent_left(
    op: Binary,
    cx: &mut dyn GraphTransforms,
    a: Value,
    b: Value,
    y: Value,
    d: Value,
) -> Result<Value> {
    use Binary::*;
    Ok(match op {
        Add | Sub | Rem => d,
        Mul => cx.mul(d, b)?,
        Div => cx.div(d, b)?,
        Pow => {
            // y·x^(y-1), and 0 if the exponent is 0, for every x.
            let zero = cx.full_like(b, 0.0)?;
            let one = cx.full_like(b, 1.0)?;
            let is_zero = cx.compare(Compare::Eq, b, zero)?;
            let less = cx.sub(b, one)?;
            // x⁰ is 1 for every x, so that 0 times it is 0.
            let exponent = cx.select(is_zero, zero, less)?;
            let p = cx.binary(Pow, a, exponent)?;
            let slope = cx.mul(b, p)?;
            cx.mul(d, slope)?
        }
        Max => split_on_tie(cx, Compare::Gt, a, b, d)?,
        Min => split_on_tie(cx, Compare::Lt, a, b, d)?,
        Atan2 => {
            let norm = sum_of_squares(cx, a, b)?;
            let s = cx.div(b, norm)?;
            cx.mul(d, s)?
        }
        Zeta => {
            return Err(Error::no_rule("zeta", "jvp", "it is differentiable in its second operand only"));
        }
        And | Or | Xor | Shl | Shr => y,
    })
}

fn binary_tangent_right(
    op: Binary,
    cx: &mut dyn GraphTransforms,
    a: Value,
    b: Value,
    y: Value,
    d: Value,
) -> Result<Value> {
    use Binary::*;
    Ok(match op {
        Add => d,
        Sub => cx.neg(d)?,
        Mul => cx.mul(a, d)?,
        Div => {
            let s = cx.div(y, b)?;
            let n = cx.neg(s)?;
            cx.mul(d, n)?
        }
        Rem => {
            let q = cx.div(a, b)?;
            let t = cx.unary(Unary::Trunc, q)?;
            let n = cx.neg(t)?;
            cx.mul(d, n)?
        }
        Pow => {
            // x^y·log x; 0 for x = 0 with an exponent that is not negative. Negative powers of 0 are infinite.
            let zero = cx.full_like(a, 0.0)?;
            let one = cx.full_like(a, 1.0)?;
            let is_zero = cx.compare(Compare::Eq, a, zero)?;
            let finite = cx.compare(Compare::Ge, b, zero)?;
            let flat = cx.binary(And, is_zero, finite)?;
            let safe = cx.select(flat, one, a)?;
            let log = cx.unary(Unary::Log, safe)?;
            let s = cx.mul(y, log)?;
            cx.mul(d, s)?
        }
        Max => split_on_tie(cx, Compare::Gt, b, a, d)?,
        Min => split_on_tie(cx, Compare::Lt, b, a, d)?,
        Atan2 => {
            let norm = sum_of_squares(cx, a, b)?;
            let s = cx.div(a, norm)?;
            let n = cx.neg(s)?;
            cx.mul(d, n)?
        }
        Zeta => {
            let s1 = cx.offset(a, 1.0)?;
            let z = cx.binary(Zeta, s1, b)?;
            let s = cx.mul(a, z)?;
            let n = cx.neg(s)?;
            cx.mul(d, n)?
        }
        And | Or | Xor | Shl | Shr => y,
    })
}

/// `d` where `this` is selected, half of it where both are equal.
fn split_on_tie(cx: &mut dyn GraphTransforms, wins: Compare, this: Value, other: Value, d: Value) -> Result<Value> {
    let (zero, half, one) = (cx.full_like(d, 0.0)?, cx.full_like(d, 0.5)?, cx.full_like(d, 1.0)?);
    let win = cx.compare(wins, this, other)?;
    let tie = cx.compare(Compare::Eq, this, other)?;
    let rest = cx.select(tie, half, zero)?;
    let weight = cx.select(win, one, rest)?;
    cx.mul(d, weight)
}

fn sum_of_squares(cx: &mut dyn GraphTransforms, a: Value, b: Value) -> Result<Value> {
    let (aa, bb) = (cx.mul(a, a)?, cx.mul(b, b)?);
    cx.add(aa, bb)
}

impl Rules for Compare {
    fn name(&self) -> &'static str {
        Compare::name(*self)
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        same_types(&args[0], &args[1])?;
        Ok(vec![args[0].with_dtype(DType::Bool)])
    }

    no_tangent!();
    split_whole!();
    never_linear!();
    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Compare(*self, Expr::arg(0), Expr::arg(1)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Compare>> {
        Compare::from_name(name).map(Ok)
    }
}

/// `select(c, a, b)`: `a` where `c` is true, else `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Select;

impl Rules for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 3)?;
        if args[0].dtype != DType::Bool {
            return Err(InferError::DType { operand: 0, expected: "bool", got: args[0].dtype });
        }
        same_types(&args[1], &args[2])?;
        same_shapes(&args[0], &args[1])?;
        Ok(vec![args[1].clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let (a, b) = match (dx[1], dx[2]) {
            (None, None) => return Ok(vec![None]),
            (Some(a), Some(b)) => (a, b),
            (Some(a), None) => (a, cx.full_like(a, 0.0)?),
            (None, Some(b)) => (cx.full_like(b, 0.0)?, b),
        };
        Ok(vec![Some(cx.select(x[0], a, b)?)])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let (Some(c), TransposeArg::Known(cond)) = (ct[0], &args[0]) else {
            return if ct[0].is_none() { Ok(vec![None; 3]) } else { not_linear(self) };
        };
        let zero = cx.full_like(c, 0.0)?;
        let a = if args[1].is_linear() { Some(cx.select(*cond, c, zero)?) } else { None };
        let b = if args[2].is_linear() { Some(cx.select(*cond, zero, c)?) } else { None };
        Ok(vec![None, a, b])
    }

    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Select(Expr::arg(0), Expr::arg(1), Expr::arg(2)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Select>> {
        (name == "select").then_some(Ok(Select))
    }
}

/// `clamp(x, lo, hi)` = `min(max(x, lo), hi)`. The gradient goes to `x` strictly inside the bounds, as in PyTorch (with
/// numbers for bounds) and JAX; at a bound and beyond it goes to the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Clamp;

impl Rules for Clamp {
    fn name(&self) -> &'static str {
        "clamp"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 3)?;
        same_types(&args[0], &args[1])?;
        same_types(&args[0], &args[2])?;
        check_domain(args, 0, DTypeDomain::Number)?;
        Ok(vec![args[0].clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let (v, lo, hi) = (x[0], x[1], x[2]);
        let mut total = None;
        if let Some(d) = dx[0] {
            let above = cx.compare(Compare::Gt, v, lo)?;
            let below = cx.compare(Compare::Lt, v, hi)?;
            let inside = cx.binary(Binary::And, above, below)?;
            total = Some(cx.zero_unless(inside, d)?);
        }
        if let Some(d) = dx[1] {
            let under = cx.compare(Compare::Le, v, lo)?;
            let fits = cx.compare(Compare::Lt, lo, hi)?;
            let at_low = cx.binary(Binary::And, under, fits)?;
            let t = cx.zero_unless(at_low, d)?;
            total = cx.add_optional(total, Some(t))?;
        }
        if let Some(d) = dx[2] {
            let over = cx.compare(Compare::Ge, v, hi)?;
            let empty = cx.compare(Compare::Ge, lo, hi)?;
            let at_high = cx.binary(Binary::Or, over, empty)?;
            let t = cx.zero_unless(at_high, d)?;
            total = cx.add_optional(total, Some(t))?;
        }
        Ok(vec![total])
    }

    split_whole!();
    never_linear!();
    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0, 1, 2])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        let low = Expr::Binary(Binary::Max, Expr::arg(0), Expr::arg(1));
        Semantics::Elementwise(Expr::Binary(Binary::Min, Box::new(low), Expr::arg(2)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Clamp>> {
        (name == "clamp").then_some(Ok(Clamp))
    }
}

/// `fma(a, b, c)` = `a · b + c`, rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fma;

impl Rules for Fma {
    fn name(&self) -> &'static str {
        "fma"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 3)?;
        same_types(&args[0], &args[1])?;
        same_types(&args[0], &args[2])?;
        check_domain(args, 0, DTypeDomain::Number)?;
        Ok(vec![args[0].clone()])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        if !cx.ty(y[0]).dtype.is_float() {
            return Ok(vec![None]);
        }
        let a = dx[0].map(|d| cx.mul(d, x[1])).transpose()?;
        let b = dx[1].map(|d| cx.mul(x[0], d)).transpose()?;
        let ab = cx.add_optional(a, b)?;
        Ok(vec![cx.add_optional(ab, dx[2])?])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None; 3]) };
        let sum = args[2].is_linear().then_some(c);
        Ok(match (&args[0], &args[1]) {
            (TransposeArg::Known(_), TransposeArg::Known(_)) => vec![None, None, sum],
            (TransposeArg::Linear(_), TransposeArg::Known(b)) => vec![Some(cx.mul(c, *b)?), None, sum],
            (TransposeArg::Known(a), TransposeArg::Linear(_)) => vec![None, Some(cx.mul(*a, c)?), sum],
            _ => return not_linear(self),
        })
    }

    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0, 1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Fma(Expr::arg(0), Expr::arg(1), Expr::arg(2)))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Fma>> {
        (name == "fma").then_some(Ok(Fma))
    }
}

/// Conversion to another dtype, as in JAX: to nearest even; integers saturate from floats and wrap from integers; overflow of fp8
/// gives NaN or infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cast(pub DType);

impl Rules for Cast {
    fn name(&self) -> &'static str {
        "cast"
    }

    fn attrs(&self) -> Attrs {
        vec![("dtype", self.0.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        Ok(vec![Type::checked(self.0, &args[0].shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        match dx[0] {
            Some(d) if self.0.is_float() => Ok(vec![Some(cx.cast(d, self.0)?)]),
            _ => Ok(vec![None]),
        }
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        match (ct[0], &args[0]) {
            (Some(c), TransposeArg::Linear(ty)) => Ok(vec![Some(cx.cast(c, ty.dtype)?)]),
            _ => Ok(vec![None]),
        }
    }

    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Cast(self.0, Expr::arg(0)))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Cast>> {
        (name == "cast").then(|| attrs.dtype("dtype").map(Cast))
    }
}

/// Saturating conversion: values beyond the target's finite range become its largest finite value. The gradient is passed inside
/// the range and is zero outside, like a clamp's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quantize(pub DType);

impl Rules for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn attrs(&self) -> Attrs {
        vec![("dtype", self.0.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        check_domain(args, 0, DTypeDomain::Float)?;
        Ok(vec![Type::checked(self.0, &args[0].shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0].filter(|_| self.0.is_float()) else {
            return Ok(vec![None]);
        };
        let limit = Scalar::from_f64(cx.ty(x[0]).dtype, crate::scalar::finite_max(self.0));
        let ty = cx.ty(x[0]);
        let limit = cx.full(&ty, limit)?;
        let size = cx.unary(Unary::Abs, x[0])?;
        let inside = cx.compare(Compare::Le, size, limit)?;
        let kept = cx.zero_unless(inside, d)?;
        Ok(vec![Some(cx.cast(kept, self.0)?)])
    }

    split_whole!();
    never_linear!();
    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[0])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Quantize(self.0, Expr::arg(0)))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Quantize>> {
        (name == "quantize").then(|| attrs.dtype("dtype").map(Quantize))
    }
}

/// Reinterprets the bits as another dtype of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bitcast(pub DType);

impl Rules for Bitcast {
    fn name(&self) -> &'static str {
        "bitcast"
    }

    fn attrs(&self) -> Attrs {
        vec![("dtype", self.0.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let from = args[0].dtype;
        if from.size() != self.0.size() {
            return Err(InferError::other(format!("{from} and {} differ in size", self.0)));
        }
        if self.0 == DType::Bool && from != DType::Bool {
            return Err(InferError::other(format!(
                "not every bit pattern of {from} is a bool; compare with 0 instead"
            )));
        }
        Ok(vec![args[0].with_dtype(self.0)])
    }

    no_tangent!();
    split_whole!();
    never_linear!();
    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Bitcast(self.0, Expr::arg(0)))
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Bitcast>> {
        (name == "bitcast").then(|| attrs.dtype("dtype").map(Bitcast))
    }
}

/// The identity, with no derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StopGradient;

impl Rules for StopGradient {
    fn name(&self) -> &'static str {
        "stop_gradient"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        Ok(vec![args[0].clone()])
    }

    no_tangent!();
    split_whole!();
    never_linear!();
    batch_elementwise!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Elementwise(Expr::Arg(0))
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<StopGradient>> {
        (name == "stop_gradient").then_some(Ok(StopGradient))
    }
}
