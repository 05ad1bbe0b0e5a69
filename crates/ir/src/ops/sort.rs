//! `sort`: sorts several operands by the first few of them, along one axis.

use super::elementwise::batch_map;
use super::*;
use crate::build::{Builder, GraphBuilder};
use crate::dtype::{DType, DTypeKind};
use crate::scalar::Scalar;
use std::cmp::Ordering;

/// Sorts operands of one shape together; equal keys keep their order.
///
/// NaN is above every number and −0 equals 0, as in JAX; so NaN comes last, and first in descending order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The sorted axis.
    pub axis: usize,
    /// The number of leading operands that are keys.
    pub num_keys: usize,
    /// Whether the order is descending.
    pub descending: bool,
}

impl Sort {
    /// The indices along the axis that a sort by these keys takes its elements from, as i32.
    pub fn permutation<B: GraphBuilder + ?Sized>(&self, b: &mut B, keys: &[Value]) -> Result<Value> {
        let ty = match keys.first() {
            Some(&k) => b.ty(k),
            None => return Err(Error::Invalid("a sort needs a key".into())),
        };
        let iota = b.iota(DType::I32, &ty.shape, self.axis)?;
        let mut args = keys.to_vec();
        args.push(iota);
        let sort = Sort { num_keys: keys.len(), ..self.clone() };
        Ok(b.emit(sort.into(), &args)?[keys.len()])
    }

    /// The same function as a permutation, which has no derivative, followed by `take_along`.
    fn as_reads(&self, args: &[Type]) -> Result<Graph> {
        let mut b = Builder::new();
        let x: Vec<Value> = args.iter().map(|t| b.graph.input(t.clone())).collect();
        let mut keys = Vec::new();
        for &k in &x[..self.num_keys] {
            keys.push(b.one(StopGradient.into(), &[k])?);
        }
        let order = self.permutation(&mut b, &keys)?;
        let mut outs = Vec::new();
        for v in x {
            outs.push(b.one(TakeAlong { axis: self.axis }.into(), &[v, order])?);
        }
        Ok(b.finish(&outs))
    }
}

/// The sort order: NaN above all numbers, −0 equal to 0.
pub(crate) fn compare(a: Scalar, b: Scalar) -> Ordering {
    match a.dtype().kind() {
        DTypeKind::Float => {
            let (x, y) = (a.to_f64(), b.to_f64());
            x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
        }
        DTypeKind::Signed => a.to_i64().cmp(&b.to_i64()),
        DTypeKind::Bool | DTypeKind::Unsigned => a.bits().cmp(&b.bits()),
    }
}

/// Calls `f` with the offsets of the elements of each line along an axis.
pub(crate) fn for_each_line(ty: &Type, axis: usize, mut f: impl FnMut(&[usize])) {
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let outer: usize = ty.shape[..axis].iter().product();
    let size = ty.shape[axis];
    for o in 0..outer {
        for i in 0..inner {
            let line: Vec<usize> = (0..size).map(|k| (o * size + k) * inner + i).collect();
            f(&line);
        }
    }
}

impl Rules for Sort {
    fn name(&self) -> &'static str {
        "sort"
    }

    fn attrs(&self) -> Attrs {
        vec![("axis", self.axis.into()), ("num_keys", self.num_keys.into()), ("descending", self.descending.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        let Some(first) = args.first() else {
            return Err(InferError::Arity { expected: "at least 1".into(), got: 0 });
        };
        check_axis(self.axis, first.rank())?;
        if self.num_keys == 0 || self.num_keys > args.len() {
            return Err(InferError::other(format!(
                "num_keys is {}, but there are {} operands to compare by",
                self.num_keys,
                args.len()
            )));
        }
        if let Some(other) = args.iter().find(|t| t.shape != first.shape) {
            return Err(InferError::Shapes(first.shape.clone(), other.shape.clone()));
        }
        Ok(args.to_vec())
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let types: Vec<Type> = x.iter().map(|&v| cx.ty(v)).collect();
        control::jvp_body(&self.as_reads(&types)?, cx, x, dx, |g| Call::new(g).into())
    }

    /// One sort computes both the values and the permutation that the tangents need.
    fn differentiate_as(&self, args: &[Type]) -> Result<Option<Graph>> {
        self.as_reads(args).map(Some)
    }

    split_whole!();
    never_linear!();

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let wide = Sort { axis: self.axis + 1, ..self.clone() };
        batch_map(wide.into(), cx, x, batched, size)
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
        let mut from: Vec<usize> = (0..args[0].ty().numel()).collect();
        for_each_line(args[0].ty(), self.axis, |line| {
            let mut order = line.to_vec();
            order.sort_by(|&i, &j| {
                let keys = args[..self.num_keys].iter();
                let by_keys = keys.map(|k| compare(k.get(i), k.get(j))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
                if self.descending { by_keys.reverse() } else { by_keys }
            });
            for (&to, i) in line.iter().zip(order) {
                from[to] = i;
            }
        });
        Ok(args.iter().map(|x| Literal::from_fn(x.ty().clone(), |i| x.get(from[i]))).collect())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Sort>> {
        (name == "sort").then(|| {
            Ok(Sort {
                axis: attrs.usize("axis")?,
                num_keys: attrs.usize("num_keys")?,
                descending: attrs.bool("descending")?,
            })
        })
    }
}
