//! `take_along` and `put_along`: reading and adding along one axis at given indices. Each is the other's transpose.
//!
//! Indices out of bounds read zero, and additions there are dropped, so both are linear maps for all indices.

use super::elementwise::batch_map;
use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Scalar};

/// Checks that two types differ along one axis only, and that the second is an integer type.
fn check_along(axis: usize, data: &Type, index: &Type) -> std::result::Result<(), InferError> {
    check_axis(axis, data.rank())?;
    if !index.dtype.is_int() {
        return Err(InferError::DType { operand: 1, expected: "an integer dtype", got: index.dtype });
    }
    let fits = data.rank() == index.rank() && (0..data.rank()).all(|i| i == axis || data.shape[i] == index.shape[i]);
    if !fits {
        return Err(InferError::other(format!(
            "indices {index} must have the shape of {data}, except along axis {axis}"
        )));
    }
    Ok(())
}

/// The element of `wide` that the n-th element of `index` selects along `axis`.
fn place(axis: usize, wide: &Type, index: &Literal, n: usize) -> Option<usize> {
    let inner: usize = wide.shape[axis + 1..].iter().product();
    let size = index.ty().shape[axis];
    let (outer, within) = (n / (inner * size), n % inner);
    let i = match index.ty().dtype {
        DType::U64 => usize::try_from(index.get(n).bits()).ok()?,
        _ => usize::try_from(index.get(n).to_i64()).ok()?,
    };
    (i < wide.shape[axis]).then(|| (outer * wide.shape[axis] + i) * inner + within)
}

/// `take_along(x, i)`: the result at `j` along the axis is `x` at `i[j]`, or 0 if that is out of bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakeAlong {
    /// The axis of the indices.
    pub axis: usize,
}

impl Rules for TakeAlong {
    fn name(&self) -> &'static str {
        "take_along"
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        check_along(self.axis, &args[0], &args[1])?;
        Ok(vec![Type::checked(args[0].dtype, &args[1].shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let taken = dx[0].map(|d| cx.one(self.clone().into(), &[d, x[1]])).transpose()?;
        Ok(vec![taken])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        match (&args[0], &args[1]) {
            (TransposeArg::Linear(ty), TransposeArg::Known(index)) => {
                let put = PutAlong { axis: self.axis, size: ty.shape[self.axis] };
                Ok(vec![Some(cx.one(put.into(), &[c, *index])?), None])
            }
            _ => not_linear(self),
        }
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let wide = TakeAlong { axis: self.axis + 1 };
        batch_map(wide.into(), cx, x, batched, size)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Promote
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (x, index) = (&args[0], &args[1]);
        let ty = index.ty().with_dtype(x.ty().dtype);
        Ok(vec![Literal::from_fn(ty, |n| match place(self.axis, x.ty(), index, n) {
            Some(from) => x.get(from),
            None => Scalar::zero(x.ty().dtype),
        })])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<TakeAlong>> {
        (name == "take_along").then(|| Ok(TakeAlong { axis: attrs.usize("axis")? }))
    }
}

/// `put_along(x, i)`: zeros with each element `x[j]` added at `i[j]` along the axis; out-of-bounds elements are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PutAlong {
    /// The axis of the indices.
    pub axis: usize,
    /// The size of that axis in the result.
    pub size: usize,
}

impl Rules for PutAlong {
    fn name(&self) -> &'static str {
        "put_along"
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into()), ("size", self.size.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        check_along(self.axis, &args[0], &args[1])?;
        if args[0].shape != args[1].shape {
            return Err(InferError::Shapes(args[0].shape.clone(), args[1].shape.clone()));
        }
        if args[0].dtype == DType::Bool {
            return Err(InferError::DType { operand: 0, expected: "a number dtype (not bool)", got: DType::Bool });
        }
        let mut shape = args[0].shape.clone();
        shape[self.axis] = self.size;
        Ok(vec![Type::checked(args[0].dtype, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let put = dx[0].map(|d| cx.one(self.clone().into(), &[d, x[1]])).transpose()?;
        Ok(vec![put])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        match (&args[0], &args[1]) {
            (TransposeArg::Linear(_), TransposeArg::Known(index)) => {
                let take = TakeAlong { axis: self.axis };
                Ok(vec![Some(cx.one(take.into(), &[c, *index])?), None])
            }
            _ => not_linear(self),
        }
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let wide = PutAlong { axis: self.axis + 1, size: self.size };
        batch_map(wide.into(), cx, x, batched, size)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::inputs(&[1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (x, index) = (&args[0], &args[1]);
        let mut shape = x.ty().shape.clone();
        shape[self.axis] = self.size;
        let ty = x.ty().with_shape(&shape);
        // Floats are summed in f64 and rounded once, integers wrap in their own type.
        let sum_dtype = if ty.dtype.is_float() { DType::F64 } else { ty.dtype };
        let mut sums = vec![Scalar::zero(sum_dtype); ty.numel()];
        for n in 0..x.ty().numel() {
            if let Some(to) = place(self.axis, &ty, index, n) {
                sums[to] = Binary::Add.eval(sums[to], x.get(n).cast(sum_dtype));
            }
        }
        let dtype = ty.dtype;
        Ok(vec![Literal::from_fn(ty, |i| sums[i].cast(dtype))])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<PutAlong>> {
        (name == "put_along").then(|| Ok(PutAlong { axis: attrs.usize("axis")?, size: attrs.usize("size")? }))
    }
}
