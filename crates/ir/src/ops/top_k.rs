//! `top_k`: the largest elements along an axis, and their indices.

use super::sort::{compare, for_each_line};
use super::*;
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The `k` largest elements along an axis in descending order, then their indices as i32.
///
/// Equal elements are in the order of their indices, and NaN is above every number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TopK {
    /// The number of elements; at most the size of the axis.
    pub k: usize,
    /// The axis.
    pub axis: usize,
}

impl Rules for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn attrs(&self) -> Attrs {
        vec![("k", self.k.into()), ("axis", self.axis.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let x = &args[0];
        check_axis(self.axis, x.rank())?;
        if self.k > x.shape[self.axis] {
            return Err(InferError::other(format!("k = {} exceeds the size of axis {} of {x}", self.k, self.axis)));
        }
        let mut shape = x.shape.clone();
        shape[self.axis] = self.k;
        Ok(vec![x.with_shape(&shape), Type::checked(DType::I32, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let take = TakeAlong { axis: self.axis };
        let taken = dx[0].map(|d| cx.one(take.into(), &[d, y[1]])).transpose()?;
        Ok(vec![taken, None])
    }

    split_whole!();
    never_linear!();

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let wide = TopK { k: self.k, axis: self.axis + 1 };
        Ok(cx.emit(wide.into(), x)?.into_iter().map(|v| (v, true)).collect())
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::outputs(&[1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let x = &args[0];
        let types = self.infer(&[x.ty().clone()]).map_err(|p| Error::Run(format!("top_k: {p}")))?;
        let mut best: Vec<Vec<(usize, usize)>> = Vec::new();
        for_each_line(x.ty(), self.axis, |line| {
            let mut order: Vec<(usize, usize)> = line.iter().copied().enumerate().collect();
            order.sort_by(|a, b| compare(x.get(b.1), x.get(a.1)));
            order.truncate(self.k);
            best.push(order);
        });
        let mut picked = vec![(0, 0); types[0].numel()];
        let mut lines = best.into_iter();
        for_each_line(&types[0], self.axis, |line| {
            for (&to, from) in line.iter().zip(lines.next().unwrap_or_default()) {
                picked[to] = from;
            }
        });
        Ok(vec![
            Literal::from_fn(types[0].clone(), |i| x.get(picked[i].1)),
            Literal::from_fn(types[1].clone(), |i| Scalar::from_i64(DType::I32, picked[i].0 as i64)),
        ])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<TopK>> {
        (name == "top_k").then(|| Ok(TopK { k: attrs.usize("k")?, axis: attrs.usize("axis")? }))
    }
}
