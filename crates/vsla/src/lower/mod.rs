//! Lowers ops to graphs. Promotion is a `pad` view that fusion turns into index arithmetic, so no zeros are written for it.
//!
//! All ops lower to maps, views, reductions and matrix products, which compile to kernels, so a run never calls a routine that
//! allocates. Reductions, norms, softmax, convolutions and Fourier transforms are computed in f64 (§15).

mod attention;
pub(crate) mod conv;
mod structure;

use crate::error::Result;
use crate::infer::ValueSignature;
use crate::op::{GeluForm, Op};
use crate::shape::{self, common};
use ir::composites::{activation, norm, softmax};
use ir::ops::{Dot, StopGradient};
use ir::{Builder, DType, GraphBuilder, Scalar, Unary, Value};

pub use conv::{ConvAlgorithm, conv_path};

/// Numerics options of a whole program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numerics {
    /// Matrix products and attention of f32, f16 and bf16 accumulate in f32 instead of f64. This is several times as fast, and
    /// less accurate than §15 requires.
    pub reduced_precision_products: bool,
    /// Always uses this convolution algorithm instead of the cheaper one.
    pub conv: Option<ConvAlgorithm>,
}

/// The state of lowering a program to a graph.
pub(crate) struct ProgramLowering {
    pub(crate) builder: Builder,
    pub(crate) numerics: Numerics,
    /// The u32[2] input with the seed of random masks.
    pub(crate) seed: Option<Value>,
    /// The number of random ops so far; each op uses its own random stream.
    pub(crate) draws: u32,
}

impl ProgramLowering {
    /// Lowers an op and returns the values of its results.
    pub(crate) fn op(&mut self, op: &Op, args: &[Value], outs: &[ValueSignature]) -> Result<Vec<Value>> {
        if let Op::Window { size, stride } = op {
            let stacks = outs.iter().enumerate().map(|(k, out)| {
                let from = k * stride;
                self.stack(&args[from..from + size], out)
            });
            return stacks.collect();
        }
        let out = &outs[0];
        let ty = out.ty();
        if ty.numel() == 0 {
            return Ok(vec![self.builder.zeros(&ty)?]);
        }
        Ok(vec![self.one(op, args, out)?])
    }

    fn one(&mut self, op: &Op, args: &[Value], out: &ValueSignature) -> Result<Value> {
        let x = args[0];
        let b = &mut self.builder;
        let xt = b.ty(x);
        Ok(match op {
            Op::Add | Op::Sub | Op::Hadamard | Op::Mask => {
                let (l, r) = (promote(b, x, &out.shape)?, promote(b, args[1], &out.shape)?);
                match op {
                    Op::Add => b.add(l, r)?,
                    Op::Sub => b.sub(l, r)?,
                    Op::Hadamard => b.mul(l, r)?,
                    _ => {
                        let mask = b.one(StopGradient.into(), &[r])?;
                        b.mul(l, mask)?
                    }
                }
            }
            Op::Conv1d => self.conv(x, args[1], out)?,
            Op::Kronecker => self.kronecker(x, args[1], out)?,
            Op::Matmul => self.matmul(x, args[1], out)?,
            Op::Relu => b.one(activation::relu(&xt)?.into(), &[x])?,
            Op::Gelu(form) => {
                let form = match form {
                    GeluForm::Erf => activation::Gelu::Erf,
                    GeluForm::Tanh => activation::Gelu::Tanh,
                };
                b.one(activation::gelu(&xt, form)?.into(), &[x])?
            }
            Op::Sigmoid => b.unary(Unary::Logistic, x)?,
            Op::Tanh => b.unary(Unary::Tanh, x)?,
            Op::Exp => b.unary(Unary::Exp, x)?,
            Op::Log => b.unary(Unary::Log, x)?,
            Op::MulScalar { value: Some(s) } => b.scale(x, *s)?,
            Op::MulScalar { value: None } => {
                let s = b.reshape(args[1], &[])?;
                let s = b.splat(s, &xt.shape)?;
                b.mul(x, s)?
            }
            Op::Softmax => {
                let wide = b.cast(x, DType::F64)?;
                let op = softmax::softmax(&xt.with_dtype(DType::F64))?;
                let y = b.one(op.into(), &[wide])?;
                b.cast(y, xt.dtype)?
            }
            Op::RmsNorm { eps } => {
                let wide = promote_dtypes(b, args)?;
                let op = norm::rmsnorm(&b.ty(wide[0]), &b.ty(wide[1]), *eps)?;
                let y = b.emit(op.into(), &wide)?[0];
                b.cast(y, xt.dtype)?
            }
            Op::LayerNorm { eps } => {
                let wide = promote_dtypes(b, args)?;
                let op = norm::layernorm(&b.ty(wide[0]), Some(&b.ty(wide[1])), Some(&b.ty(wide[2])), *eps)?;
                let y = b.emit(op.into(), &wide)?[0];
                b.cast(y, xt.dtype)?
            }
            Op::Sum { axis } | Op::Mean { axis } => {
                let axis = shape::axis(op.name(), *axis, xt.rank())?;
                if xt.shape[axis] == 0 {
                    return Ok(b.zeros(&out.ty())?);
                }
                let wide = b.cast(x, DType::F64)?;
                let mut y = b.sum(wide, &[axis])?;
                if matches!(op, Op::Mean { .. }) {
                    y = b.scale(y, 1.0 / xt.shape[axis] as f64)?;
                }
                let y = b.cast(y, xt.dtype)?;
                b.reshape(y, &out.shape)?
            }
            Op::Dropout { rate } => self.dropout(x, *rate)?,
            Op::Stack | Op::Window { .. } => self.stack(args, out)?,
            Op::Repeat { count } => b.broadcast_leading(x, *count)?,
            Op::Reshape { shape } => b.reshape(x, shape)?,
            Op::Transpose { permutation } => b.permute(x, permutation)?,
            Op::Slice { start, limit } => {
                let whole = promote(b, x, &shape::ambient("slice", &[&xt.shape, limit])?)?;
                b.slice(whole, start, limit, &vec![1; limit.len()])?
            }
            Op::Gather { indices } => self.gather(x, indices)?,
            Op::Scatter { indices, size } => self.scatter(x, indices, *size)?,
            Op::Attention { heads, lengths } => self.attention(args, *heads, lengths)?,
        })
    }

    /// Lowers a matrix product. Missing rows and columns are zero, so the contraction runs over the indices that both operands
    /// have.
    fn matmul(&mut self, x: Value, y: Value, out: &ValueSignature) -> Result<Value> {
        let acc = if self.numerics.reduced_precision_products { out.dtype.accumulator() } else { DType::F64 };
        let b = &mut self.builder;
        let (xs, ys) = (b.ty(x).shape, b.ty(y).shape);
        let (rx, ry) = (xs.len(), ys.len());
        let k = xs[rx - 1].min(ys[ry - 2]);
        let batch = if rx == ry { common(&xs[..rx - 2], &ys[..ry - 2]) } else { xs[..rx - 2].to_vec() };
        if k == 0 || batch.contains(&0) {
            return Ok(b.zeros(&out.ty())?);
        }
        let x = slice_leading(b, x, &[&batch[..], &[xs[rx - 2], k]].concat())?;
        let shared = ry == 2 && rx > 2;
        let y = slice_leading(b, y, &if shared { vec![k, ys[1]] } else { [&batch[..], &[k, ys[ry - 1]]].concat() })?;
        let v = if shared {
            let rows: usize = xs[..rx - 1].iter().product();
            let flat = b.reshape(x, &[rows, k])?;
            let dot = Dot { acc, ..Dot::matmul(out.dtype) };
            b.one(dot.into(), &[flat, y])?
        } else {
            let dot = Dot { acc, ..Dot::batched_matmul(out.dtype, batch.len()) };
            b.one(dot.into(), &[x, y])?
        };
        let v = b.reshape(v, &[&batch[..], &[xs[rx - 2], ys[ry - 1]]].concat())?;
        promote(b, v, &out.shape)
    }

    /// Lowers dropout. The mask is Threefry bits keyed by the seed, with the op's number and the element index as counter, so it
    /// is the same in forward and backward.
    fn dropout(&mut self, x: Value, rate: f64) -> Result<Value> {
        let draw = self.draws;
        self.draws += 1;
        let seed = match self.seed {
            Some(s) => s,
            None => return Err(crate::Error::Unknown("a random op in a program without a seed".into())),
        };
        let b = &mut self.builder;
        let ty = b.ty(x);
        let mut key = [seed; 2];
        for (i, k) in key.iter_mut().enumerate() {
            let half = b.slice_axis(seed, 0, i, i + 1)?;
            let half = b.reshape(half, &[])?;
            *k = b.splat(half, &[ty.numel()])?;
        }
        let place = b.iota(DType::U32, &[ty.numel()], 0)?;
        let stream = b.full(&b.ty(place), Scalar::from_i64(DType::U32, draw as i64))?;
        let [bits, _] = b.threefry2x32(key, [place, stream])?;
        let bits = b.reshape(bits, &ty.shape)?;
        let op = ir::composites::dropout::dropout(&ty, &b.ty(bits), rate)?;
        Ok(b.one(op.into(), &[x, bits])?)
    }
}

/// Returns a view of a tensor in a larger shape, with zeros where it has no elements.
pub(crate) fn promote(b: &mut Builder, x: Value, shape: &[usize]) -> Result<Value> {
    let ty = b.ty(x);
    if ty.shape.as_slice() == shape {
        return Ok(x);
    }
    let high: Vec<i64> = shape.iter().zip(&ty.shape).map(|(s, d)| *s as i64 - *d as i64).collect();
    let zero = b.scalar(ty.dtype, 0.0)?;
    let none = vec![0; shape.len()];
    Ok(b.pad(x, zero, &vec![0; shape.len()], &high, &none)?)
}

/// Returns a view of the first elements of a tensor on every axis.
pub(crate) fn slice_leading(b: &mut Builder, x: Value, shape: &[usize]) -> Result<Value> {
    let ty = b.ty(x);
    if ty.shape.as_slice() == shape {
        return Ok(x);
    }
    Ok(b.slice(x, &vec![0; shape.len()], shape, &vec![1; shape.len()])?)
}

fn promote_dtypes(b: &mut Builder, args: &[Value]) -> Result<Vec<Value>> {
    Ok(args.iter().map(|&v| b.cast(v, DType::F64)).collect::<ir::Result<_>>()?)
}
