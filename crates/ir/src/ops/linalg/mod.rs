//! Linear algebra on the last two axes; leading axes are a batch.
//!
//! The factorizations are opaque ops whose derivatives consist of other ops. Each `eval` is the textbook algorithm
//! in f64, rounded once at the end. Only f32 and f64 are supported: the caller casts other floats, as in JAX.

use super::*;
use crate::dtype::DType;
use crate::scalar::Compare;

mod cholesky;
mod eigh;
mod lu;
mod qr;
mod svd;
mod triangular_solve;

pub use cholesky::Cholesky;
pub use eigh::Eigh;
pub use lu::Lu;
pub use qr::Qr;
pub use svd::Svd;
pub use triangular_solve::TriangularSolve;

/// Batch axes, rows and columns of a matrix operand of f32 or f64.
fn matrix(args: &[Type], operand: usize) -> std::result::Result<(&[usize], usize, usize), InferError> {
    let t = &args[operand];
    if !matches!(t.dtype, DType::F32 | DType::F64) {
        return Err(InferError::DType { operand, expected: "f32 or f64", got: t.dtype });
    }
    match t.shape.as_slice() {
        [batch @ .., m, n] => Ok((batch, *m, *n)),
        _ => Err(InferError::other(format!("operand {operand} must be a matrix, got {t}"))),
    }
}

/// Like [`matrix`], for a square one: batch axes and order.
fn square(args: &[Type], operand: usize) -> std::result::Result<(&[usize], usize), InferError> {
    match matrix(args, operand)? {
        (batch, m, n) if m == n => Ok((batch, n)),
        _ => Err(InferError::other(format!("operand {operand} must be square, got {}", args[operand]))),
    }
}

/// A type with these trailing axes after the batch.
fn shaped(dtype: DType, batch: &[usize], tail: &[usize]) -> std::result::Result<Type, InferError> {
    Type::checked(dtype, &[batch, tail].concat())
}

/// The `batch` rule of all these ops: a batch is an additional leading axis.
macro_rules! batch_leading {
    () => {
        fn batch(
            &self,
            cx: &mut dyn GraphTransforms,
            x: &[Value],
            batched: &[bool],
            size: usize,
        ) -> Result<Vec<(Value, bool)>> {
            crate::ops::elementwise::batch_map(self.clone().into(), cx, x, batched, size)
        }
    };
}
use batch_leading;

/// Product of two batches of matrices.
fn mm(cx: &mut dyn GraphTransforms, a: Value, b: Value) -> Result<Value> {
    let ty = cx.ty(a);
    cx.one(Dot::batched_matmul(ty.dtype, ty.rank() - 2).into(), &[a, b])
}

/// Swaps the last two axes.
fn mt(cx: &mut dyn GraphTransforms, x: Value) -> Result<Value> {
    let rank = cx.ty(x).rank();
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 2, rank - 1);
    cx.permute(x, &perm)
}

/// `(x + xᵀ) / 2`.
fn symmetrized(cx: &mut dyn GraphTransforms, x: Value) -> Result<Value> {
    let t = mt(cx, x)?;
    let sum = cx.add(x, t)?;
    cx.scale(sum, 0.5)
}

/// Whether `row + offset ⋈ column` at each element of a matrix type.
fn band(cx: &mut dyn GraphTransforms, ty: &Type, offset: i64, op: Compare) -> Result<Value> {
    let rank = ty.rank();
    let tail = &ty.shape[rank - 2..];
    let row = cx.iota(DType::I32, tail, 0)?;
    let row = cx.offset(row, offset as f64)?;
    let column = cx.iota(DType::I32, tail, 1)?;
    let mask = cx.compare(op, row, column)?;
    cx.broadcast_to(mask, &ty.shape)
}

/// The part on and below the k-th diagonal; the rest is 0.
fn tril(cx: &mut dyn GraphTransforms, x: Value, k: i64) -> Result<Value> {
    let ty = cx.ty(x);
    let mask = band(cx, &ty, k, Compare::Ge)?;
    cx.zero_unless(mask, x)
}

/// The part on and above the k-th diagonal; the rest is 0.
fn triu(cx: &mut dyn GraphTransforms, x: Value, k: i64) -> Result<Value> {
    let ty = cx.ty(x);
    let mask = band(cx, &ty, k, Compare::Le)?;
    cx.zero_unless(mask, x)
}

/// Ones on the diagonal of a matrix type.
fn eye(cx: &mut dyn GraphTransforms, ty: &Type) -> Result<Value> {
    let mask = band(cx, ty, 0, Compare::Eq)?;
    cx.cast(mask, ty.dtype)
}

/// The diagonal of square matrices.
fn diagonal(cx: &mut dyn GraphTransforms, x: Value) -> Result<Value> {
    let ty = cx.ty(x);
    let mask = band(cx, &ty, 0, Compare::Eq)?;
    let kept = cx.zero_unless(mask, x)?;
    cx.sum(kept, &[ty.rank() - 1])
}

/// Broadcasts vectors as rows (`axis` last) or columns of matrices of a shape.
fn spread(cx: &mut dyn GraphTransforms, v: Value, shape: &[usize], as_rows: bool) -> Result<Value> {
    let rank = shape.len();
    let dims: Vec<usize> = (0..rank - 2).chain([if as_rows { rank - 1 } else { rank - 2 }]).collect();
    cx.broadcast(v, shape, &dims)
}

/// Slices rows (`axis` 0) or columns (1) `from..to` of matrices.
fn part(cx: &mut dyn GraphTransforms, x: Value, axis: usize, from: usize, to: usize) -> Result<Value> {
    let rank = cx.ty(x).rank();
    cx.slice_axis(x, rank - 2 + axis, from, to)
}

/// Concatenates matrices vertically (`axis` 0) or horizontally (1).
fn join(cx: &mut dyn GraphTransforms, parts: &[Value], axis: usize) -> Result<Value> {
    let rank = cx.ty(parts[0]).rank();
    cx.concat(parts, rank - 2 + axis)
}

/// A dense matrix in f64, for the reference algorithms.
#[derive(Clone, Debug)]
struct Matrix {
    m: usize,
    n: usize,
    data: Vec<f64>,
}

impl Matrix {
    fn zeros(m: usize, n: usize) -> Matrix {
        Matrix { m, n, data: vec![0.0; m * n] }
    }

    fn identity(n: usize) -> Matrix {
        Matrix::from_fn(n, n, |i, j| (i == j) as u8 as f64)
    }

    fn from_fn(m: usize, n: usize, mut f: impl FnMut(usize, usize) -> f64) -> Matrix {
        let mut x = Matrix::zeros(m, n);
        for i in 0..m {
            for j in 0..n {
                x[(i, j)] = f(i, j);
            }
        }
        x
    }

    /// Divides by a power of two so that the largest element is near 1, where squares neither overflow nor underflow; returns
    /// that power.
    fn normalise(&mut self) -> f64 {
        let largest = self.data.iter().fold(0f64, |m, x| m.max(x.abs()));
        let scale = crate::special::unit_scale(largest);
        self.data.iter_mut().for_each(|x| *x /= scale);
        scale
    }

    fn transposed(&self) -> Matrix {
        Matrix::from_fn(self.n, self.m, |i, j| self[(j, i)])
    }

    /// Rotates columns `i` and `j`: `(c·xᵢ - s·xⱼ, s·xᵢ + c·xⱼ)`.
    fn rotate_columns(&mut self, i: usize, j: usize, c: f64, s: f64) {
        for r in 0..self.m {
            let (a, b) = (self[(r, i)], self[(r, j)]);
            self[(r, i)] = c * a - s * b;
            self[(r, j)] = s * a + c * b;
        }
    }
}

impl std::ops::Index<(usize, usize)> for Matrix {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.data[i * self.n + j]
    }
}

impl std::ops::IndexMut<(usize, usize)> for Matrix {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.data[i * self.n + j]
    }
}

/// The matrices of a batch.
fn matrices(x: &Literal) -> Vec<Matrix> {
    let shape = &x.ty().shape;
    let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let count: usize = shape[..shape.len() - 2].iter().product();
    (0..count).map(|k| Matrix { m, n, data: (0..m * n).map(|i| x.get(k * m * n + i).to_f64()).collect() }).collect()
}

/// Collects the results of a routine for each matrix of a batch into the op's results.
struct Results {
    types: Vec<Type>,
    data: Vec<Vec<f64>>,
}

impl Results {
    /// Empty results of the types that an op infers.
    fn of(op: &impl Rules, args: &[Literal]) -> Result<Results> {
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let types = op.infer(&types).map_err(|p| Error::Run(format!("{}: {p}", op.name())))?;
        let data = types.iter().map(|_| Vec::new()).collect();
        Ok(Results { types, data })
    }

    /// Adds one matrix's part of the k-th result.
    fn push(&mut self, k: usize, values: impl IntoIterator<Item = f64>) {
        self.data[k].extend(values);
    }

    fn finish(self) -> Vec<Literal> {
        let parts = self.types.into_iter().zip(self.data);
        parts
            .map(|(t, d)| {
                let dtype = t.dtype;
                Literal::from_fn(t, |i| crate::Scalar::from_f64(dtype, d[i]))
            })
            .collect()
    }
}
