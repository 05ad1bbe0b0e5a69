//! `eigh`: eigenvalues and eigenvectors of symmetric matrices.

use super::*;

/// The maximum number of sweeps; NaN never converges.
const SWEEPS: usize = 100;

/// Eigenvalues in ascending order, then eigenvectors as columns of unit length and either sign.
///
/// Reads the lower triangle. A tangent is symmetrized first, so gradients are symmetric, as in JAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eigh;

impl Rules for Eigh {
    fn name(&self) -> &'static str {
        "eigh"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let (batch, n) = square(args, 0)?;
        Ok(vec![shaped(args[0].dtype, batch, &[n])?, args[0].clone()])
    }

    /// With `B = Vᵀ·A'·V`: `w' = diag(B)` and `V' = V·(F∘B)`, where `Fᵢⱼ = 1/(wⱼ - wᵢ)` and 0 on the diagonal.
    fn jvp(&self, cx: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else {
            return Ok(vec![None; 2]);
        };
        let (w, v) = (y[0], y[1]);
        let ty = cx.ty(v);
        let d = symmetrized(cx, d)?;
        let vt = mt(cx, v)?;
        let half = mm(cx, vt, d)?;
        let b = mm(cx, half, v)?;
        let one = eye(cx, &ty)?;
        let (along, down) = (spread(cx, w, &ty.shape, true)?, spread(cx, w, &ty.shape, false)?);
        let gap = cx.sub(along, down)?;
        let safe = cx.add(gap, one)?;
        let inverse = cx.unary(crate::Unary::Reciprocal, safe)?;
        let f = cx.sub(inverse, one)?;
        let turn = cx.mul(f, b)?;
        Ok(vec![Some(diagonal(cx, b)?), Some(mm(cx, v, turn)?)])
    }

    split_whole!();
    never_linear!();
    batch_leading!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::outputs(&[0, 1])
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
            let (w, v) = jacobi(&a);
            results.push(0, w);
            results.push(1, v.data);
        }
        Ok(results.finish())
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Eigh>> {
        (name == "eigh").then_some(Ok(Eigh))
    }
}

/// Cyclic Jacobi: each rotation makes one off-diagonal element zero.
fn jacobi(a: &Matrix) -> (Vec<f64>, Matrix) {
    let n = a.n;
    let mut a = Matrix::from_fn(n, n, |i, j| a[(i.max(j), i.min(j))]);
    let scale = a.normalise();
    let mut v = Matrix::identity(n);
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for i in 0..n {
            for j in i + 1..n {
                // Elements below this bound have no effect on the diagonal.
                if a[(i, j)].abs() <= 1e-17 * (a[(i, i)].abs() * a[(j, j)].abs()).sqrt() || a[(i, j)].abs() < 1e-300 {
                    continue;
                }
                rotated = true;
                let theta = (a[(j, j)] - a[(i, i)]) / (2.0 * a[(i, j)]);
                let t = 1f64.copysign(theta) / (theta.abs() + theta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                let s = t * c;
                a.rotate_columns(i, j, c, s);
                a = a.transposed();
                a.rotate_columns(i, j, c, s);
                a = a.transposed();
                v.rotate_columns(i, j, c, s);
            }
        }
        if !rotated {
            break;
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[(i, i)].total_cmp(&a[(j, j)]));
    let values = order.iter().map(|&i| a[(i, i)] * scale).collect();
    (values, Matrix::from_fn(n, n, |i, j| v[(i, order[j])]))
}
