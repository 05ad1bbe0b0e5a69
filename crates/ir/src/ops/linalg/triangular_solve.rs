//! `triangular_solve`: `op(A)·X = B` or `X·op(A) = B` for triangular `A`.

use super::*;

/// Solves a linear system with a triangular matrix; its other triangle is not read. A zero on the diagonal gives infinities and
/// NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TriangularSolve {
    /// Whether it solves `op(A)·X = B`; otherwise `X·op(A) = B`.
    pub left: bool,
    /// Whether `A` (not `op(A)`) is lower triangular.
    pub lower: bool,
    /// Whether `op(A)` is `Aᵀ`.
    pub transpose: bool,
    /// Whether the diagonal is assumed to be ones and not read.
    pub unit: bool,
}

impl Rules for TriangularSolve {
    fn name(&self) -> &'static str {
        "triangular_solve"
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("left", self.left.into()),
            ("lower", self.lower.into()),
            ("transpose", self.transpose.into()),
            ("unit", self.unit.into()),
        ]
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 2)?;
        let (batch, order) = square(args, 0)?;
        let (own, m, n) = matrix(args, 1)?;
        if args[0].dtype != args[1].dtype {
            return Err(InferError::DTypes(args[0].dtype, args[1].dtype));
        }
        if batch != own || order != if self.left { m } else { n } {
            return Err(InferError::other(format!(
                "{} does not fit {} on the {}",
                args[0],
                args[1],
                if self.left { "left" } else { "right" }
            )));
        }
        Ok(vec![args[1].clone()])
    }

    /// `X' = op(A)⁻¹·(B' - op(A')·X)`, and the mirrored formula for a solve from the right.
    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let mut right_side = dx[1];
        if let Some(da) = dx[0] {
            let k = self.unit as i64;
            let da = if self.lower { tril(cx, da, -k)? } else { triu(cx, da, k)? };
            let da = if self.transpose { mt(cx, da)? } else { da };
            let moved = if self.left { mm(cx, da, y[0])? } else { mm(cx, y[0], da)? };
            let moved = cx.neg(moved)?;
            right_side = cx.add_optional(right_side, Some(moved))?;
        }
        let solved = right_side.map(|b| cx.one((*self).into(), &[x[0], b])).transpose()?;
        Ok(vec![solved])
    }

    split_whole!();

    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(c) = ct[0] else { return Ok(vec![None, None]) };
        let TransposeArg::Known(a) = args[0] else {
            return not_linear(self);
        };
        let turned = TriangularSolve { transpose: !self.transpose, ..*self };
        Ok(vec![None, Some(cx.one(turned.into(), &[a, c])?)])
    }

    batch_leading!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward { outputs: SmallVec::from_slice(&[0]), ..SavedForBackward::inputs(&[0]) }
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let mut results = Results::of(self, args)?;
        for (a, b) in matrices(&args[0]).iter().zip(matrices(&args[1])) {
            // X·op(A) = B is op(A)ᵀ·Xᵀ = Bᵀ.
            let transpose = self.transpose == self.left;
            let x = if self.left {
                solve(a, self.lower, transpose, self.unit, b)
            } else {
                solve(a, self.lower, transpose, self.unit, b.transposed()).transposed()
            };
            results.push(0, x.data);
        }
        Ok(results.finish())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<TriangularSolve>> {
        (name == "triangular_solve").then(|| {
            Ok(TriangularSolve {
                left: attrs.bool("left")?,
                lower: attrs.bool("lower")?,
                transpose: attrs.bool("transpose")?,
                unit: attrs.bool("unit")?,
            })
        })
    }
}

/// Forward or backward substitution.
fn solve(a: &Matrix, lower: bool, transpose: bool, unit: bool, mut b: Matrix) -> Matrix {
    let at = |i: usize, j: usize| if transpose { a[(j, i)] } else { a[(i, j)] };
    let forward = lower != transpose;
    for step in 0..b.m {
        let i = if forward { step } else { b.m - 1 - step };
        let done = if forward { 0..i } else { i + 1..b.m };
        for c in 0..b.n {
            let sum: f64 = done.clone().map(|k| at(i, k) * b[(k, c)]).sum();
            let rest = b[(i, c)] - sum;
            b[(i, c)] = if unit { rest } else { rest / at(i, i) };
        }
    }
    b
}
