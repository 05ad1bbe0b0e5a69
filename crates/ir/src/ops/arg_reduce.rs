//! `argmax` and `argmin`: the index of the extremum along an axis.

use super::window_gather::is_better;
use super::*;
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The index of the first extremum along an axis, which is removed; the first NaN comes before all numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    /// Whether it finds the largest element; otherwise the smallest.
    pub max: bool,
    /// The axis.
    pub axis: usize,
    /// The dtype of the result: i32 or i64.
    pub index: DType,
}

impl Rules for ArgReduce {
    fn name(&self) -> &'static str {
        if self.max { "argmax" } else { "argmin" }
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into()), ("index", self.index.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let x = &args[0];
        check_axis(self.axis, x.rank())?;
        let n = x.shape[self.axis];
        if n == 0 {
            return Err(InferError::other(format!("axis {} of {x} is empty and has no extremum", self.axis)));
        }
        if !matches!(self.index, DType::I32 | DType::I64) || (n as u64 - 1) > self.index.int_max() {
            return Err(InferError::other(format!(
                "{} cannot index axis {} of {x}; use i32 or i64 indices",
                self.index, self.axis
            )));
        }
        let mut shape = x.shape.clone();
        shape.remove(self.axis);
        Ok(vec![Type::checked(self.index, &shape)?])
    }

    no_tangent!();
    split_whole!();
    never_linear!();

    fn batch(&self, cx: &mut dyn GraphTransforms, x: &[Value], _: &[bool], _: usize) -> Result<Vec<(Value, bool)>> {
        let wide = ArgReduce { axis: self.axis + 1, ..self.clone() };
        Ok(vec![(cx.one(wide.into(), x)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let ty = eval_types(self, args)?.remove(0);
        let x = &args[0];
        let n = x.ty().shape[self.axis];
        let inner: usize = x.ty().shape[self.axis + 1..].iter().product();
        Ok(vec![Literal::from_fn(ty, |line| {
            let at = |k: usize| x.get(line / inner * inner * n + line % inner + k * inner);
            let best = (1..n).fold(0, |best, k| if is_better(self.max, at(k), at(best)) { k } else { best });
            Scalar::from_i64(self.index, best as i64)
        })])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<ArgReduce>> {
        let max = match name {
            "argmax" => true,
            "argmin" => false,
            _ => return None,
        };
        Some((|| Ok(ArgReduce { max, axis: attrs.usize("axis")?, index: attrs.dtype("index")? }))())
    }
}
