//! `cholesky`: `A = L·Lᵀ`.

use super::*;

/// The lower factor of positive definite matrices, read from their lower triangle.
///
/// A matrix that is not positive definite gives NaN in its lower triangle. The derivative is defined for symmetric
/// matrices: a tangent is symmetrized first, so gradients are symmetric, as in JAX and PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cholesky;

impl Rules for Cholesky {
    fn name(&self) -> &'static str {
        "cholesky"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        square(args, 0)?;
        Ok(vec![args[0].clone()])
    }

    /// `L' = L·Φ(L⁻¹·A'·L⁻ᵀ)` where Φ takes the lower triangle with half the diagonal (Murray 2016).
    fn jvp(&self, cx: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else { return Ok(vec![None]) };
        let l = y[0];
        let d = symmetrized(cx, d)?;
        let right = TriangularSolve { left: false, lower: true, transpose: true, unit: false };
        let left = TriangularSolve { left: true, transpose: false, ..right };
        let half = cx.one(right.into(), &[l, d])?;
        let inner = cx.one(left.into(), &[l, half])?;
        let low = tril(cx, inner, 0)?;
        let ty = cx.ty(low);
        let on_diagonal = band(cx, &ty, 0, Compare::Eq)?;
        let halved = cx.scale(low, 0.5)?;
        let phi = cx.select(on_diagonal, halved, low)?;
        Ok(vec![Some(mm(cx, l, phi)?)])
    }

    split_whole!();
    never_linear!();
    batch_leading!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::outputs(&[0])
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let mut results = Results::of(self, args)?;
        for a in matrices(&args[0]) {
            results.push(0, factor(&a).data);
        }
        Ok(results.finish())
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Cholesky>> {
        (name == "cholesky").then_some(Ok(Cholesky))
    }
}

fn factor(a: &Matrix) -> Matrix {
    let mut l = Matrix::zeros(a.n, a.n);
    for j in 0..a.n {
        for i in j..a.n {
            let sum: f64 = (0..j).map(|k| l[(i, k)] * l[(j, k)]).sum();
            let rest = a[(i, j)] - sum;
            l[(i, j)] = if i > j {
                rest / l[(j, j)]
            } else if rest > 0.0 {
                rest.sqrt()
            } else {
                return Matrix::from_fn(a.n, a.n, |i, j| if i >= j { f64::NAN } else { 0.0 });
            };
        }
    }
    l
}
