//! `svd`: `A = U·diag(s)·Vᵀ`.

use super::*;

/// The maximum number of sweeps; NaN never converges.
const SWEEPS: usize = 100;

/// Singular value decomposition with as many columns of `U` and rows of `Vᵀ` as there are singular values.
///
/// Results: `U`, `s` in descending order, `Vᵀ`; or `s` alone. A pair of vectors has either sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Svd {
    /// Whether it also returns `U` and `Vᵀ`.
    pub vectors: bool,
}

/// `V`, `A'·V`, `B = Uᵀ·A'·V` and its diagonal, the tangent of the singular values.
struct OfValues {
    v: Value,
    dv_side: Value,
    b: Value,
    ds: Value,
}

/// Computes these from `U`, `s`, `Vᵀ` and the tangent of `A`.
fn of_values(cx: &mut dyn GraphTransforms, all: &[Value], d: Value) -> Result<OfValues> {
    let (ut, v) = (mt(cx, all[0])?, mt(cx, all[2])?);
    let dv_side = mm(cx, d, v)?;
    let b = mm(cx, ut, dv_side)?;
    Ok(OfValues { v, dv_side, b, ds: diagonal(cx, b)? })
}

impl Rules for Svd {
    fn name(&self) -> &'static str {
        "svd"
    }

    fn attrs(&self) -> Attrs {
        vec![("vectors", self.vectors.into())]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let (batch, m, n) = matrix(args, 0)?;
        let (dtype, k) = (args[0].dtype, m.min(n));
        let s = shaped(dtype, batch, &[k])?;
        if !self.vectors {
            return Ok(vec![s]);
        }
        Ok(vec![shaped(dtype, batch, &[m, k])?, s, shaped(dtype, batch, &[k, n])?])
    }

    /// With `B = Uᵀ·A'·V`: `s' = diag(B)`, `U' = U·(F∘(B·S + S·Bᵀ))`, `V' = V·(F∘(S·B + Bᵀ·S))` and
    /// `Fᵢⱼ = 1/(sⱼ² - sᵢ²)`, 0 on the diagonal; a side with more dimensions also has the part of `A'` outside its span.
    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else {
            return Ok(vec![None; y.len()]);
        };
        if let Some((_, tangents)) = self.jvp_with_values(cx, x, dx)? {
            return Ok(tangents);
        }
        let (u, s) = (y[0], y[1]);
        let OfValues { v, dv_side, b, ds } = of_values(cx, y, d)?;
        let ty = cx.ty(b);
        let (along, down) = (spread(cx, s, &ty.shape, true)?, spread(cx, s, &ty.shape, false)?);
        let one = eye(cx, &ty)?;
        let (sum, gap) = (cx.add(along, down)?, cx.sub(along, down)?);
        // (sⱼ + sᵢ)(sⱼ - sᵢ) avoids the cancellation in the difference of squares.
        let squares = cx.mul(sum, gap)?;
        let safe = cx.add(squares, one)?;
        let inverse = cx.unary(crate::Unary::Reciprocal, safe)?;
        let f = cx.sub(inverse, one)?;
        let turn = |cx: &mut dyn GraphTransforms, scale: Value| -> Result<Value> {
            let p = cx.mul(scale, b)?;
            let pt = mt(cx, p)?;
            let both = cx.add(p, pt)?;
            cx.mul(f, both)
        };
        let (tu, tv) = (turn(cx, along)?, turn(cx, down)?);
        let (mut du, mut dv) = (mm(cx, u, tu)?, mm(cx, v, tv)?);
        let shape = cx.ty(x[0]).shape;
        let (m, n) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        if m > n {
            let extra = outside(cx, dv_side, u, s)?;
            du = cx.add(du, extra)?;
        }
        if n > m {
            let dt = mt(cx, d)?;
            let side = mm(cx, dt, u)?;
            let extra = outside(cx, side, v, s)?;
            dv = cx.add(dv, extra)?;
        }
        Ok(vec![Some(du), Some(ds), Some(mt(cx, dv)?)])
    }

    /// For singular values only, also computes the vectors that their tangents need.
    fn jvp_with_values(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        dx: &[Option<Value>],
    ) -> Result<Option<(Vec<Value>, Tangents)>> {
        let (false, Some(d)) = (self.vectors, dx[0]) else { return Ok(None) };
        let all = cx.emit(Svd { vectors: true }.into(), x)?;
        let ds = of_values(cx, &all, d)?.ds;
        Ok(Some((vec![all[1]], vec![Some(ds)])))
    }

    split_whole!();
    never_linear!();
    batch_leading!();

    fn saved_for_backward(&self) -> SavedForBackward {
        match self.vectors {
            true => SavedForBackward::outputs(&[0, 1, 2]),
            false => SavedForBackward::inputs(&[0]),
        }
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
            let (u, s, v) = if a.m >= a.n {
                one_sided(a)
            } else {
                let (v, s, u) = one_sided(a.transposed());
                (u, s, v)
            };
            if self.vectors {
                results.push(0, u.data);
                results.push(1, s);
                results.push(2, v.transposed().data);
            } else {
                results.push(0, s);
            }
        }
        Ok(results.finish())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Svd>> {
        (name == "svd").then(|| Ok(Svd { vectors: attrs.bool("vectors")? }))
    }
}

/// The part of `side` orthogonal to the span of `basis`, divided by the singular values.
fn outside(cx: &mut dyn GraphTransforms, side: Value, basis: Value, s: Value) -> Result<Value> {
    let bt = mt(cx, basis)?;
    let inner = mm(cx, bt, side)?;
    let within = mm(cx, basis, inner)?;
    let rest = cx.sub(side, within)?;
    let shape = cx.ty(rest).shape;
    let s = spread(cx, s, &shape, true)?;
    cx.div(rest, s)
}

/// One-sided Jacobi for a tall matrix: rotates columns until they are orthogonal; their norms are the singular values.
fn one_sided(mut a: Matrix) -> (Matrix, Vec<f64>, Matrix) {
    let (m, n) = (a.m, a.n);
    let scale = a.normalise();
    let mut v = Matrix::identity(n);
    let dot = |a: &Matrix, i: usize, j: usize| -> f64 { (0..m).map(|r| a[(r, i)] * a[(r, j)]).sum() };
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for i in 0..n {
            for j in i + 1..n {
                let (p, q, r) = (dot(&a, i, i), dot(&a, j, j), dot(&a, i, j));
                if r.abs() <= 1e-17 * (p * q).sqrt() || r.abs() < 1e-300 {
                    continue;
                }
                rotated = true;
                let theta = (q - p) / (2.0 * r);
                let t = 1f64.copysign(theta) / (theta.abs() + theta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                a.rotate_columns(i, j, c, t * c);
                v.rotate_columns(i, j, c, t * c);
            }
        }
        if !rotated {
            break;
        }
    }
    let lengths: Vec<f64> = (0..n).map(|j| dot(&a, j, j).sqrt()).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let largest = order.first().map_or(0.0, |&j| lengths[j]);
    let mut u = Matrix::zeros(m, n);
    for (k, &j) in order.iter().enumerate() {
        let length = lengths[j];
        let mut column: Vec<f64> = (0..m).map(|r| a[(r, j)] / length).collect();
        if length <= 1e-15 * largest || length == 0.0 {
            column = complement(&u, k);
        }
        for r in 0..m {
            u[(r, k)] = column[r];
        }
    }
    let s = order.iter().map(|&j| lengths[j] * scale).collect();
    (u, s, Matrix::from_fn(n, n, |i, j| v[(i, order[j])]))
}

/// A unit vector orthogonal to the first `k` columns, for a singular value of 0, where the matrix does not determine the direction.
fn complement(u: &Matrix, k: usize) -> Vec<f64> {
    let mut best = (0.0, vec![0.0; u.m]);
    for axis in 0..u.m {
        let mut x: Vec<f64> = (0..u.m).map(|r| (r == axis) as u8 as f64).collect();
        // Two passes are sufficient: the second removes the rounding error of the first.
        for _ in 0..2 {
            for c in 0..k {
                let s: f64 = (0..u.m).map(|r| u[(r, c)] * x[r]).sum();
                for (r, e) in x.iter_mut().enumerate() {
                    *e -= s * u[(r, c)];
                }
            }
        }
        let length = x.iter().map(|e| e * e).sum::<f64>().sqrt();
        if length > best.0 {
            best = (length, x.iter().map(|e| e / length).collect());
        }
    }
    best.1
}
