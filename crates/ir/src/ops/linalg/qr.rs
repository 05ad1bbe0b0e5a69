//! `qr`: `A = Q·R` by Householder reflections.

use super::*;

/// QR factorization. `R`'s diagonal has the signs that LAPACK gives it, so results equal NumPy's and JAX's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Qr {
    /// Whether `Q` is square; otherwise it has as many columns as `R` has rows.
    pub full: bool,
}

impl Rules for Qr {
    fn name(&self) -> &'static str {
        "qr"
    }

    fn attrs(&self) -> Attrs {
        vec![("full", self.full.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let (batch, m, n) = matrix(args, 0)?;
        let k = if self.full { m } else { m.min(n) };
        let dtype = args[0].dtype;
        Ok(vec![shaped(dtype, batch, &[m, k])?, shaped(dtype, batch, &[k, n])?])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else {
            return Ok(vec![None; 2]);
        };
        let (q, r) = (y[0], y[1]);
        let shape = cx.ty(x[0]).shape;
        let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        if m < n {
            // A = [A₁ A₂] with A₁ = Q·R₁ square, and R₂ = Qᵀ·A₂.
            let r1 = part(cx, r, 1, 0, m)?;
            let (d1, d2) = (part(cx, d, 1, 0, m)?, part(cx, d, 1, m, n)?);
            let (dq, dr1) = thin(cx, q, r1, d1)?;
            let a2 = part(cx, x[0], 1, m, n)?;
            let (dqt, qt) = (mt(cx, dq)?, mt(cx, q)?);
            let (first, second) = (mm(cx, dqt, a2)?, mm(cx, qt, d2)?);
            let dr2 = cx.add(first, second)?;
            return Ok(vec![Some(dq), Some(join(cx, &[dr1, dr2], 1)?)]);
        }
        if !self.full || m == n {
            let (dq, dr) = thin(cx, q, r, d)?;
            return Ok(vec![Some(dq), Some(dr)]);
        }
        let (q1, r1) = (part(cx, q, 1, 0, n)?, part(cx, r, 0, 0, n)?);
        let (dq1, dr1) = thin(cx, q1, r1, d)?;
        let dq2 = completion(cx, q, dq1, m, n)?;
        let mut below = cx.ty(r);
        let rank = below.rank();
        below.shape[rank - 2] = m - n;
        let zeros = cx.zeros(&below)?;
        Ok(vec![Some(join(cx, &[dq1, dq2], 1)?), Some(join(cx, &[dr1, zeros], 0)?)])
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
            let k = if self.full { a.m } else { a.m.min(a.n) };
            let (q, r) = factor(a);
            results.push(0, Matrix::from_fn(q.m, k, |i, j| q[(i, j)]).data);
            results.push(1, Matrix::from_fn(k, r.n, |i, j| r[(i, j)]).data);
        }
        Ok(results.finish())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Qr>> {
        (name == "qr").then(|| Ok(Qr { full: attrs.bool("full")? }))
    }
}

/// Tangents of a thin factorisation, `A` with at least as many rows as columns: with `B = Qᵀ·A'·R⁻¹` and Ω the skew
/// matrix of B's strict lower part, `Q' = Q·(Ω - B) + A'·R⁻¹` and `R' = (B - Ω)·R` (Townsend).
fn thin(cx: &mut dyn GraphTransforms, q: Value, r: Value, d: Value) -> Result<(Value, Value)> {
    let solve = TriangularSolve { left: false, lower: false, transpose: false, unit: false };
    let dri = cx.one(solve.into(), &[r, d])?;
    let qt = mt(cx, q)?;
    let b = mm(cx, qt, dri)?;
    let low = tril(cx, b, -1)?;
    let turned = mt(cx, low)?;
    let skew = cx.sub(low, turned)?;
    let up = cx.sub(b, skew)?;
    let inside = mm(cx, q, up)?;
    let dq = cx.sub(dri, inside)?;
    Ok((dq, mm(cx, up, r)?))
}

/// The tangent of the columns that complete `Q` to a square matrix, as Householder reflections choose them: with
/// `Q = [[Q₁₁ ·] [Q₂₁ ·]]` and `Z = Q₂₁·(Q₁₁ - I)⁻¹`, it is `Q₁'·Zᵀ - (Q₁ + Q₂·Z)·(Q₂₁' - Z·Q₁₁')ᵀ` (arXiv 2409.13374).
fn completion(cx: &mut dyn GraphTransforms, q: Value, dq1: Value, m: usize, n: usize) -> Result<Value> {
    let (q1, q2) = (part(cx, q, 1, 0, n)?, part(cx, q, 1, n, m)?);
    let (q11, q21) = (part(cx, q1, 0, 0, n)?, part(cx, q1, 0, n, m)?);
    let (dq11, dq21) = (part(cx, dq1, 0, 0, n)?, part(cx, dq1, 0, n, m)?);
    let ty = cx.ty(q11);
    let one = eye(cx, &ty)?;
    let shifted = cx.sub(q11, one)?;
    // Z·(Q₁₁ - I) = Q₂₁ with P·(Q₁₁ - I) = L·U: Y = Q₂₁·U⁻¹·L⁻¹, and column i of Y is column permutation[i] of Z.
    let lu = cx.emit(Lu.into(), &[shifted])?;
    let (packed, permutation) = (lu[0], lu[2]);
    let by = |lower: bool| TriangularSolve { left: false, lower, transpose: false, unit: lower };
    let y = cx.one(by(false).into(), &[packed, q21])?;
    let y = cx.one(by(true).into(), &[packed, y])?;
    let y_ty = cx.ty(y);
    let rank = y_ty.rank();
    let columns = spread(cx, permutation, &y_ty.shape, true)?;
    let put = PutAlong { axis: rank - 1, size: n };
    let z = cx.one(put.into(), &[y, columns])?;

    let zt = mt(cx, z)?;
    let first = mm(cx, dq1, zt)?;
    let q2z = mm(cx, q2, z)?;
    let basis = cx.add(q1, q2z)?;
    let zq = mm(cx, z, dq11)?;
    let change = cx.sub(dq21, zq)?;
    let change = mt(cx, change)?;
    let second = mm(cx, basis, change)?;
    cx.sub(first, second)
}

/// Full `Q` and `R` (with zeros below the diagonal), reflection by reflection like LAPACK's `geqrf`.
fn factor(mut a: Matrix) -> (Matrix, Matrix) {
    let mut q = Matrix::identity(a.m);
    for k in 0..a.m.min(a.n) {
        // After division by a power of two, squares neither overflow nor underflow.
        let scale = crate::special::unit_scale((k..a.m).fold(0f64, |m, i| m.max(a[(i, k)].abs())));
        let x: Vec<f64> = (0..a.m).map(|i| a[(i, k)] / scale).collect();
        let below: f64 = x[k + 1..].iter().map(|x| x * x).sum();
        if below == 0.0 {
            // Elements that are negligible compared with the diagonal.
            (k + 1..a.m).for_each(|i| a[(i, k)] = 0.0);
            continue;
        }
        let alpha = x[k];
        let beta = -(alpha * alpha + below).sqrt().copysign(alpha);
        let tau = (beta - alpha) / beta;
        let v: Vec<f64> = (0..a.m)
            .map(|i| match i {
                _ if i < k => 0.0,
                _ if i == k => 1.0,
                _ => x[i] / (alpha - beta),
            })
            .collect();
        for j in k..a.n {
            let s: f64 = (k..a.m).map(|i| v[i] * a[(i, j)]).sum();
            for i in k..a.m {
                a[(i, j)] -= tau * s * v[i];
            }
        }
        for i in k + 1..a.m {
            a[(i, k)] = 0.0;
        }
        for r in 0..a.m {
            let s: f64 = (k..a.m).map(|j| q[(r, j)] * v[j]).sum();
            for j in k..a.m {
                q[(r, j)] -= tau * s * v[j];
            }
        }
    }
    (q, a)
}
