//! Inference (§4): the signatures of an op's results, or the error for invalid operands.

use crate::error::{Error, ProgramFault, Result};
use crate::op::{Model, Op};
use crate::shape::{self, ambient, check_size};
use ir::DType;
use std::fmt;

/// Dtype, logical shape and model of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValueSignature {
    /// Element type.
    pub dtype: DType,
    /// Logical shape.
    pub shape: Vec<usize>,
    /// Semiring.
    pub model: Model,
}

impl ValueSignature {
    /// Returns a signature of model A.
    pub fn new(dtype: DType, shape: &[usize]) -> ValueSignature {
        ValueSignature { dtype, shape: shape.to_vec(), model: Model::A }
    }

    /// Returns the type of the dense value in a graph.
    pub(crate) fn ty(&self) -> ir::Type {
        ir::Type::new(self.dtype, &self.shape)
    }

    /// Returns the size in bytes of the dense value.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
}

impl fmt::Display for ValueSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ty())
    }
}

/// Returns the signatures of an op's results, or the reason why the operands don't fit.
pub fn infer(op: &Op, args: &[ValueSignature]) -> Result<Vec<ValueSignature>> {
    arity(op, args.len())?;
    let first = &args[0];
    for a in args {
        if a.dtype != first.dtype {
            return Err(ProgramFault::MixedDTypes { op: op.name(), a: first.dtype, b: a.dtype }.into());
        }
        if a.model != first.model {
            return Err(models(op, "operands of model A and of model B"));
        }
    }
    if let Some(m) = op.model()
        && m != first.model
    {
        return Err(models(op, &format!("is of model {m:?}, its operands of model {:?}", first.model)));
    }
    let shapes = shapes(op, args)?;
    let mut outs = Vec::with_capacity(shapes.len());
    for shape in shapes {
        check_size(op.name(), &shape)?;
        outs.push(ValueSignature { shape, ..first.clone() });
    }
    Ok(outs)
}

fn models(op: &Op, text: &str) -> Error {
    ProgramFault::MixedModels { op: op.name(), text: text.to_string() }.into()
}

fn arity(op: &Op, got: usize) -> Result<()> {
    let (least, most) = match op {
        Op::Add | Op::Sub | Op::Hadamard | Op::Conv1d | Op::Kronecker | Op::Matmul | Op::Mask | Op::RmsNorm { .. } => {
            (2, 2)
        }
        Op::MulScalar { value: None } => (2, 2),
        Op::LayerNorm { .. } | Op::Attention { .. } => (3, 3),
        Op::Stack => (1, usize::MAX),
        Op::Window { size, .. } => ((*size).max(1), usize::MAX),
        _ => (1, 1),
    };
    if (least..=most).contains(&got) {
        return Ok(());
    }
    let expected = match most {
        usize::MAX => format!("at least {least} operands"),
        1 => "1 operand".to_string(),
        _ => format!("{least} operands"),
    };
    let op = op.name();
    Err(ProgramFault::Arity { op, expected, got }.into())
}

fn shapes(op: &Op, args: &[ValueSignature]) -> Result<Vec<Vec<usize>>> {
    let x = &args[0].shape;
    let misfit = |text: String| Err(Error::shape(op.name(), text));
    let overflow =
        |shape: &[usize]| Error::from(ProgramFault::Overflow { place: op.name().to_string(), shape: shape.to_vec() });
    let one = |shape: Vec<usize>| Ok(vec![shape]);
    match op {
        Op::Relu | Op::Gelu(_) | Op::Sigmoid | Op::Tanh | Op::Exp | Op::Log | Op::Softmax => one(x.clone()),
        Op::Dropout { rate } => {
            if !(0.0..=1.0).contains(rate) {
                return Err(Error::invalid_arg(format!("dropout needs a rate from 0 to 1, got {rate}")));
            }
            one(x.clone())
        }
        Op::Add | Op::Sub | Op::Hadamard | Op::Mask => one(ambient(op.name(), &[x, &args[1].shape])?),
        Op::MulScalar { value } => {
            if value.is_none() && args[1].shape != [1] {
                return misfit(format!("the factor has shape {:?}, expected [1]", args[1].shape));
            }
            one(x.clone())
        }
        Op::Conv1d => {
            let mut out = ambient(op.name(), &[x, &args[1].shape])?;
            let last = out.len() - 1;
            let (m, n) = (x[last], args[1].shape[last]);
            out[last] = match (m, n) {
                (0, _) | (_, 0) => 0,
                _ => (m - 1).checked_add(n).ok_or_else(|| overflow(&[m, n]))?,
            };
            one(out)
        }
        Op::Kronecker => {
            ambient(op.name(), &[x, &args[1].shape])?;
            let sizes = x.iter().zip(&args[1].shape).map(|(a, b)| a.checked_mul(*b));
            one(sizes.collect::<Option<_>>().ok_or_else(|| overflow(x))?)
        }
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => {
            let width = x[x.len() - 1];
            for w in &args[1..] {
                if w.shape != [width] {
                    return misfit(format!(
                        "the weights have shape {:?}, expected [{width}] for the last axis",
                        w.shape
                    ));
                }
            }
            one(x.clone())
        }
        Op::Attention { heads, lengths } => {
            if x.len() != 2 || args.iter().any(|a| a.shape != *x) {
                return misfit("q, k and v need one shape [tokens, width]".into());
            }
            if *heads == 0 || !x[1].is_multiple_of(*heads) {
                return misfit(format!("the width {} is not divisible by {heads} heads", x[1]));
            }
            let tokens = lengths.iter().try_fold(0usize, |n, &l| n.checked_add(l));
            if tokens != Some(x[0]) || lengths.len() > i32::MAX as usize {
                return misfit(format!(
                    "{} sequences need as many tokens as they are long, {} are there",
                    lengths.len(),
                    x[0]
                ));
            }
            one(x.clone())
        }
        Op::Matmul => matmul(x, &args[1].shape).map(|s| vec![s]),
        Op::Sum { axis } | Op::Mean { axis } => {
            let axis = shape::axis(op.name(), *axis, x.len())?;
            let mut out = x.clone();
            out.remove(axis);
            // Inputs and outputs have at least rank 1 (§3.2), so the sum of a vector is a vector with one element.
            one(if out.is_empty() { vec![1] } else { out })
        }
        Op::Stack => {
            let all: Vec<&[usize]> = args.iter().map(|a| &a.shape[..]).collect();
            one(stacked(op, &all)?)
        }
        Op::Window { size, stride } => {
            if *size == 0 || *stride == 0 {
                return Err(Error::invalid_arg("a window needs a size and a stride of at least 1"));
            }
            let all: Vec<&[usize]> = args.iter().map(|a| &a.shape[..]).collect();
            (0..=all.len() - size).step_by(*stride).map(|i| stacked(op, &all[i..i + size])).collect()
        }
        Op::Repeat { count } => one([&[*count], &x[..]].concat()),
        Op::Reshape { shape } => {
            let count = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            if count != Some(x.iter().product()) {
                return misfit(format!("{x:?} and {shape:?} have different numbers of elements"));
            }
            one(shape.clone())
        }
        Op::Transpose { permutation } => {
            let mut seen = permutation.clone();
            seen.sort_unstable();
            if !seen.iter().copied().eq(0..x.len()) {
                return misfit(format!("{permutation:?} is not a permutation of the {} axes of {x:?}", x.len()));
            }
            one(permutation.iter().map(|&p| x[p]).collect())
        }
        Op::Slice { start, limit } => {
            if start.len() != x.len() || limit.len() != x.len() || start.iter().zip(limit).any(|(s, l)| s > l) {
                return misfit(format!("the slice {start:?}..{limit:?} is out of range for {x:?}"));
            }
            one(start.iter().zip(limit).map(|(s, l)| l - s).collect())
        }
        Op::Gather { indices } => {
            let mut out = x.clone();
            out[0] = indices.len();
            one(out)
        }
        Op::Scatter { indices, size } => {
            if indices.len() != x[0] {
                return misfit(format!("{} indices for a first axis of {}", indices.len(), x[0]));
            }
            if let Some(i) = indices.iter().find(|i| *i >= size) {
                return misfit(format!("index {i} of a result of size {size}"));
            }
            let mut out = x.clone();
            out[0] = *size;
            one(out)
        }
    }
}

fn stacked(op: &Op, shapes: &[&[usize]]) -> Result<Vec<usize>> {
    Ok([&[shapes.len()], &ambient(op.name(), shapes)?[..]].concat())
}

fn matmul(a: &[usize], b: &[usize]) -> Result<Vec<usize>> {
    let (ra, rb) = (a.len(), b.len());
    if ra < 2 || rb < 2 || (ra != rb && rb != 2) {
        return Err(Error::shape(
            "matmul",
            format!("{a:?} and {b:?} need the same rank of at least 2, or a right operand of rank 2"),
        ));
    }
    let mut out = if ra == rb { ambient("matmul", &[&a[..ra - 2], &b[..rb - 2]])? } else { a[..ra - 2].to_vec() };
    out.extend([a[ra - 2], b[rb - 1]]);
    Ok(out)
}
