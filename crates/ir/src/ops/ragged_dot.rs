//! `ragged_dot(lhs, rhs, offsets)`: one matrix product for each group of rows, with dynamic group sizes.
//!
//! Group `i` is the rows `offsets[i]..offsets[i + 1]`. Offsets are clamped to the number of rows and made ascending, so that all
//! values are safe. Rows in no group are ignored: they are zero in a result of rows, and are not read.

use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Scalar};
use crate::types::{for_each_index, offset};

/// The grouped axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RaggedMode {
    /// `[m, k] · [g, k, n]`: each row of the left operand times its group's matrix, to `[m, n]`.
    Rows,
    /// `[r, m]ᵀ · [r, n]`: the contracted rows, one sum for each group, to `[g, m, n]`.
    Contract,
}

impl RaggedMode {
    fn name(self) -> &'static str {
        match self {
            RaggedMode::Rows => "rows",
            RaggedMode::Contract => "contract",
        }
    }
}

/// A grouped matrix product. The two modes are closed under transposition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RaggedDot {
    /// The grouped axis.
    pub mode: RaggedMode,
    /// The number of leading batch axes, which all operands and the result share.
    pub batch: usize,
    /// The accumulator dtype.
    pub acc: DType,
    /// The dtype of the result.
    pub out: DType,
}

impl RaggedDot {
    /// `[m, k] · [g, k, n]` with grouped rows.
    pub fn rows(dtype: DType) -> RaggedDot {
        RaggedDot { mode: RaggedMode::Rows, batch: 0, acc: dtype.accumulator(), out: dtype }
    }

    fn with(&self, mode: RaggedMode, out: DType) -> Op {
        RaggedDot { mode, out, ..self.clone() }.into()
    }
}

/// Ascending offsets within the rows.
fn monotonic_offsets(offsets: impl Iterator<Item = Scalar>, rows: usize) -> Vec<usize> {
    let mut last = 0;
    offsets
        .map(|o| {
            last = o.to_i64().clamp(last, rows as i64);
            last as usize
        })
        .collect()
}

/// Transposes the last two axes.
fn transpose_last(cx: &mut dyn GraphTransforms, x: Value) -> Result<Value> {
    let rank = cx.ty(x).rank();
    cx.move_axis(x, rank - 1, rank - 2)
}

impl Rules for RaggedDot {
    fn name(&self) -> &'static str {
        "ragged_dot"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("mode", self.mode.name().into()),
            ("batch", self.batch.into()),
            ("acc", self.acc.into()),
            ("out", self.out.into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 3)?;
        let (a, b, offsets) = (&args[0], &args[1], &args[2]);
        if a.dtype != b.dtype {
            return Err(InferError::DTypes(a.dtype, b.dtype));
        }
        if !a.dtype.is_float() || !self.acc.is_float() || !self.out.is_float() {
            return Err(InferError::DType {
                operand: 0,
                expected: "a float dtype, accumulated and given as floats",
                got: a.dtype,
            });
        }
        if !matches!(offsets.dtype, DType::I32 | DType::I64) {
            return Err(InferError::DType { operand: 2, expected: "i32 or i64", got: offsets.dtype });
        }
        let n = self.batch;
        let matrices = match self.mode {
            RaggedMode::Rows => 3,
            RaggedMode::Contract => 2,
        };
        let ranks = [a.rank(), b.rank(), offsets.rank()];
        let fits = [2, matrices, 1].iter().zip(ranks).all(|(r, have)| n.checked_add(*r) == Some(have))
            && a.shape[..n] == b.shape[..n]
            && a.shape[..n] == offsets.shape[..n];
        let (batch, groups) = match (fits, offsets.shape.last()) {
            (true, Some(&o)) if o > 0 => (&a.shape[..n], o - 1),
            _ => {
                return Err(InferError::other(format!(
                    "{a}, {b} and offsets {offsets} don't go together for {} groups under {n} batch axes",
                    self.mode.name()
                )));
            }
        };
        let (p, q) = (&a.shape[n..], &b.shape[n..]);
        let (fits, tail) = match self.mode {
            RaggedMode::Rows => (q[0] == groups && q[1] == p[1], vec![p[0], q[2]]),
            RaggedMode::Contract => (q[0] == p[0], vec![groups, p[1], q[1]]),
        };
        if !fits {
            return Err(InferError::other(format!(
                "{a} by {b} in {groups} groups: {}",
                match self.mode {
                    RaggedMode::Rows => "needs [m, k] by [groups, k, n]",
                    RaggedMode::Contract => "needs [rows, m] by [rows, n]",
                }
            )));
        }
        let shape: Shape = batch.iter().copied().chain(tail).collect();
        Ok(vec![Type::checked(self.out, &shape)?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let op: Op = self.clone().into();
        let a = dx[0].map(|d| cx.one(op.clone(), &[d, x[1], x[2]])).transpose()?;
        let b = dx[1].map(|d| cx.one(op.clone(), &[x[0], d, x[2]])).transpose()?;
        Ok(vec![cx.add_optional(a, b)?])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None; 3]) };
        let TransposeArg::Known(offsets) = args[2] else {
            return not_linear(self);
        };
        Ok(match (&args[0], &args[1]) {
            (TransposeArg::Linear(ty), TransposeArg::Known(b)) => {
                let c = cx.cast(c, ty.dtype)?;
                let rows = self.with(RaggedMode::Rows, ty.dtype);
                let v = match self.mode {
                    // ∂lhs = ct · rhsᵀ, group by group.
                    RaggedMode::Rows => {
                        let bt = transpose_last(cx, *b)?;
                        cx.one(rows, &[c, bt, offsets])?
                    }
                    // ∂lhs = rhs · ctᵀ: every row times its group's matrix.
                    RaggedMode::Contract => {
                        let t = transpose_last(cx, c)?;
                        cx.one(rows, &[*b, t, offsets])?
                    }
                };
                vec![Some(v), None, None]
            }
            (TransposeArg::Known(a), TransposeArg::Linear(ty)) => {
                let c = cx.cast(c, ty.dtype)?;
                let mode = match self.mode {
                    RaggedMode::Rows => RaggedMode::Contract,
                    RaggedMode::Contract => RaggedMode::Rows,
                };
                vec![None, Some(cx.one(self.with(mode, ty.dtype), &[*a, c, offsets])?), None]
            }
            _ => return not_linear(self),
        })
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let mut args = Vec::with_capacity(x.len());
        for (&v, &b) in x.iter().zip(batched) {
            args.push(if b { v } else { cx.broadcast_leading(v, size)? });
        }
        let wide = RaggedDot { batch: self.batch + 1, ..self.clone() };
        Ok(vec![(cx.one(wide.into(), &args)?, true)])
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::bilinear(&[0, 1, 2])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::LowPrecision
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let (a, b, offsets) = (&args[0], &args[1], &args[2]);
        let ty = eval_types(self, args)?.remove(0);
        let (sa, sb) = (a.ty().strides(), b.ty().strides());
        let n = self.batch;
        let (rows, inner) = (a.ty().shape[n], a.ty().shape[n + 1]);
        let bounds = offsets.ty().shape[n];
        let mut items = Vec::with_capacity(ty.numel());
        for_each_index(&ty.shape, |i| {
            let (batch, at) = i.split_at(n);
            let (base_a, base_b) = (offset(batch, &sa), offset(batch, &sb));
            let first = offset(batch, &offsets.ty().strides());
            let risen = monotonic_offsets((first..first + bounds).map(|k| offsets.get(k)), rows);
            let product = |p: usize, q: usize| {
                let (x, y) = (a.get(base_a + p).to_f64(), b.get(base_b + q).to_f64());
                Scalar::from_f64(DType::F64, x * y)
            };
            let sum = |terms: &mut dyn Iterator<Item = Scalar>| {
                terms.fold(Scalar::zero(DType::F64), |s, t| Binary::Add.eval(s, t))
            };
            let (sa, sb) = (&sa[n..], &sb[n..]);
            let total = match self.mode {
                RaggedMode::Rows => {
                    let group = risen.windows(2).position(|w| (w[0]..w[1]).contains(&at[0]));
                    match group {
                        Some(g) => sum(&mut (0..inner)
                            .map(|k| product(at[0] * sa[0] + k * sa[1], g * sb[0] + k * sb[1] + at[1] * sb[2]))),
                        None => Scalar::zero(DType::F64),
                    }
                }
                RaggedMode::Contract => sum(&mut (risen[at[0]]..risen[at[0] + 1])
                    .map(|r| product(r * sa[0] + at[1] * sa[1], r * sb[0] + at[2] * sb[1]))),
            };
            items.push(total.cast(ty.dtype));
        });
        Ok(vec![Literal::from_fn(ty, |i| items[i])])
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<RaggedDot>> {
        (name == "ragged_dot").then(|| {
            Ok(RaggedDot {
                mode: attrs
                    .word("mode", |w| [RaggedMode::Rows, RaggedMode::Contract].into_iter().find(|m| m.name() == w))?,
                batch: attrs.usize("batch")?,
                acc: attrs.dtype("acc")?,
                out: attrs.dtype("out")?,
            })
        })
    }
}
