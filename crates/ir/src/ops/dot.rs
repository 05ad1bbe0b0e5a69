//! `dot`: tensor contraction over any batch and contraction axes.

use super::*;
use crate::dtype::DType;

/// `dot(a, b)`: a contraction. Result axes are the batch axes, then the free axes of the left operand, then those of the right, each in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dot {
    /// The batch axes of the left operand.
    pub lhs_batch: Shape,
    /// The batch axes of the right operand, in the same order.
    pub rhs_batch: Shape,
    /// The contracted axes of the left operand.
    pub lhs_contract: Shape,
    /// The contracted axes of the right operand, in the same order.
    pub rhs_contract: Shape,
    /// The accumulator dtype.
    pub acc: DType,
    /// The dtype of the result.
    pub out: DType,
}

impl Dot {
    /// `[m, k] · [k, n]`.
    pub fn matmul(dtype: DType) -> Dot {
        Dot::batched_matmul(dtype, 0)
    }

    /// `[batch.., m, k] · [batch.., k, n]` with this many batch axes.
    pub fn batched_matmul(dtype: DType, batch: usize) -> Dot {
        let axes: Shape = (0..batch).collect();
        Dot {
            lhs_batch: axes.clone(),
            rhs_batch: axes,
            lhs_contract: [batch + 1].into_iter().collect(),
            rhs_contract: [batch].into_iter().collect(),
            acc: dtype.accumulator(),
            out: dtype,
        }
    }

    /// `[.., k] · [n, k]`ᵀ: contracts the last axis of each, no batch.
    pub fn last_axes(dtype: DType, lhs_rank: usize, rhs_rank: usize) -> Dot {
        Dot {
            lhs_batch: Shape::new(),
            rhs_batch: Shape::new(),
            lhs_contract: [lhs_rank - 1].into_iter().collect(),
            rhs_contract: [rhs_rank - 1].into_iter().collect(),
            acc: dtype.accumulator(),
            out: dtype,
        }
    }

    /// Axes of the left operand that are neither batch nor contracted.
    pub fn lhs_free(&self, rank: usize) -> Shape {
        free(rank, &self.lhs_batch, &self.lhs_contract)
    }

    /// Axes of the right operand that are neither batch nor contracted.
    pub fn rhs_free(&self, rank: usize) -> Shape {
        free(rank, &self.rhs_batch, &self.rhs_contract)
    }

    fn shifted(&self) -> Dot {
        let up = |s: &Shape| -> Shape { s.iter().map(|a| a + 1).collect() };
        Dot {
            lhs_batch: up(&self.lhs_batch),
            rhs_batch: up(&self.rhs_batch),
            lhs_contract: up(&self.lhs_contract),
            rhs_contract: up(&self.rhs_contract),
            ..self.clone()
        }
    }

    /// The same contraction with the operands exchanged.
    fn swapped(self) -> Dot {
        Dot {
            lhs_batch: self.rhs_batch,
            rhs_batch: self.lhs_batch,
            lhs_contract: self.rhs_contract,
            rhs_contract: self.lhs_contract,
            ..self
        }
    }

    /// The cotangent of one operand: contracts `ct` with the other operand over the other's free axes, and permutes the
    /// axes to the operand's order.
    fn transpose_side(
        &self,
        cx: &mut dyn GraphTransforms,
        ct: Value,
        other: Value,
        of: &Type,
        left: bool,
    ) -> Result<Value> {
        let (batch, contract, other_batch, other_contract) = if left {
            (&self.lhs_batch, &self.lhs_contract, &self.rhs_batch, &self.rhs_contract)
        } else {
            (&self.rhs_batch, &self.rhs_contract, &self.lhs_batch, &self.lhs_contract)
        };
        let other_rank = cx.ty(other).rank();
        let my_free = free(of.rank(), batch, contract);
        let other_free = free(other_rank, other_batch, other_contract);
        let nb = batch.len();
        let other_at = if left { nb + my_free.len() } else { nb };
        let back = Dot {
            lhs_batch: (0..nb).collect(),
            rhs_batch: other_batch.clone(),
            lhs_contract: (other_at..other_at + other_free.len()).collect(),
            rhs_contract: other_free,
            acc: self.acc,
            out: of.dtype,
        };
        // If the product is computed in the operand's axis order, it needs no permutation.
        let contract_first = match (contract.iter().max(), my_free.iter().min()) {
            (Some(last), Some(first)) => last < first,
            _ => false,
        };
        let v = match contract_first {
            true => cx.one(back.swapped().into(), &[other, ct])?,
            false => cx.one(back.into(), &[ct, other])?,
        };
        // The axes of `v`: batch, then this operand's free axes and the contracted axes in increasing order, in one order or the
        // other.
        let (free_at, contract_at) = match contract_first {
            true => (nb + contract.len(), nb),
            false => (nb, nb + my_free.len()),
        };
        let mut order: Vec<usize> = (0..contract.len()).collect();
        order.sort_by_key(|&i| other_contract[i]);
        let mut position = vec![0; of.rank()];
        for (i, &a) in batch.iter().enumerate() {
            position[a] = i;
        }
        for (i, &a) in my_free.iter().enumerate() {
            position[a] = free_at + i;
        }
        for (i, &k) in order.iter().enumerate() {
            position[contract[k]] = contract_at + i;
        }
        cx.permute(v, &position)
    }
}

fn free(rank: usize, batch: &Shape, contract: &Shape) -> Shape {
    (0..rank).filter(|a| !batch.contains(a) && !contract.contains(a)).collect()
}

impl Rules for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("lhs_batch", self.lhs_batch.as_slice().into()),
            ("rhs_batch", self.rhs_batch.as_slice().into()),
            ("lhs_contract", self.lhs_contract.as_slice().into()),
            ("rhs_contract", self.rhs_contract.as_slice().into()),
            ("acc", self.acc.into()),
            ("out", self.out.into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let (a, b) = (&args[0], &args[1]);
        if a.dtype != b.dtype {
            return Err(InferError::DTypes(a.dtype, b.dtype));
        }
        if a.dtype == DType::Bool {
            return Err(InferError::DType { operand: 0, expected: "a number dtype (not bool)", got: a.dtype });
        }
        if self.acc.is_float() != a.dtype.is_float() || self.out.is_float() != a.dtype.is_float() {
            return Err(InferError::other(format!(
                "operands of {} cannot be accumulated in {} with results in {}",
                a.dtype, self.acc, self.out
            )));
        }
        let left: Shape = self.lhs_batch.iter().chain(&self.lhs_contract).copied().collect();
        let right: Shape = self.rhs_batch.iter().chain(&self.rhs_contract).copied().collect();
        check_axes(&left, a.rank())?;
        check_axes(&right, b.rank())?;
        if self.lhs_batch.len() != self.rhs_batch.len() || self.lhs_contract.len() != self.rhs_contract.len() {
            return Err(InferError::other("both operands must name as many batch and contraction axes"));
        }
        for (&i, &j) in left.iter().zip(&right) {
            if a.shape[i] != b.shape[j] {
                return Err(InferError::other(format!(
                    "axis {i} of {a} has size {}, but axis {j} of {b}, which is contracted with it, has size {}",
                    a.shape[i], b.shape[j]
                )));
            }
        }
        let shape: Shape = (self.lhs_batch.iter().map(|&i| a.shape[i]))
            .chain(self.lhs_free(a.rank()).iter().map(|&i| a.shape[i]))
            .chain(self.rhs_free(b.rank()).iter().map(|&j| b.shape[j]))
            .collect();
        Ok(vec![Type::checked(self.out, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        if !cx.ty(y[0]).dtype.is_float() {
            return Ok(vec![None]);
        }
        let op: Op = self.clone().into();
        let a = dx[0].map(|d| cx.one(op.clone(), &[d, x[1]])).transpose()?;
        let b = dx[1].map(|d| cx.one(op.clone(), &[x[0], d])).transpose()?;
        Ok(vec![cx.add_optional(a, b)?])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        match (&args[0], &args[1]) {
            (TransposeArg::Linear(ty), TransposeArg::Known(b)) => {
                let c = cx.cast(c, ty.dtype)?;
                Ok(vec![Some(self.transpose_side(cx, c, *b, ty, true)?), None])
            }
            (TransposeArg::Known(a), TransposeArg::Linear(ty)) => {
                let c = cx.cast(c, ty.dtype)?;
                Ok(vec![None, Some(self.transpose_side(cx, c, *a, ty, false)?)])
            }
            _ => not_linear(self),
        }
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        _: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let mut dot = self.clone();
        let at = match (batched[0], batched[1]) {
            (true, true) => {
                dot = dot.shifted();
                dot.lhs_batch.insert(0, 0);
                dot.rhs_batch.insert(0, 0);
                0
            }
            (true, false) => {
                let s = dot.shifted();
                dot = Dot { lhs_batch: s.lhs_batch, lhs_contract: s.lhs_contract, ..dot };
                self.lhs_batch.len()
            }
            _ => {
                let s = dot.shifted();
                dot = Dot { rhs_batch: s.rhs_batch, rhs_contract: s.rhs_contract, ..dot };
                self.lhs_batch.len() + self.lhs_free(cx.ty(x[0]).rank()).len()
            }
        };
        let v = cx.one(dot.into(), x)?;
        Ok(vec![(cx.move_axis(v, at, 0)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::bilinear(&[0, 1])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::LowPrecision
    }

    fn semantics(&self) -> Semantics {
        Semantics::DotGeneral(self.clone())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Dot>> {
        (name == "dot").then(|| {
            Ok(Dot {
                lhs_batch: attrs.usizes("lhs_batch")?,
                rhs_batch: attrs.usizes("rhs_batch")?,
                lhs_contract: attrs.usizes("lhs_contract")?,
                rhs_contract: attrs.usizes("rhs_contract")?,
                acc: attrs.dtype("acc")?,
                out: attrs.dtype("out")?,
            })
        })
    }
}
