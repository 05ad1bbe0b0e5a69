//! `lu`: `P·A = L·U` with row exchanges.

use super::*;

/// LU factorization with partial pivoting. Results: `L` (unit, below the diagonal) and `U` in one matrix; the pivot
/// rows of the steps as i32; the permutation as i32, so that `A[permutation] = L·U`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lu;

impl Rules for Lu {
    fn name(&self) -> &'static str {
        "lu"
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, 1)?;
        let (batch, m, n) = matrix(args, 0)?;
        Ok(vec![args[0].clone(), shaped(DType::I32, batch, &[m.min(n)])?, shaped(DType::I32, batch, &[m])?])
    }

    /// `L⁻¹·L' + U'·U⁻¹ = L⁻¹·(P·A')·U⁻¹`: its strict lower part is the first term, the rest the second (de Hoog,
    /// Anderssen and Lukas 2011). Wide and tall matrices are extended to square ones with an identity.
    fn jvp(&self, cx: &mut dyn GraphTransforms, _: &[Value], dx: &[Option<Value>], y: &[Value]) -> Result<Tangents> {
        let Some(d) = dx[0] else {
            return Ok(vec![None; 3]);
        };
        let packed = y[0];
        let ty = cx.ty(packed);
        let rank = ty.rank();
        let (m, n) = (ty.shape[rank - 2], ty.shape[rank - 1]);
        let k = m.min(n);
        let rows = spread(cx, y[2], &ty.shape, false)?;
        let d = cx.one(TakeAlong { axis: rank - 2 }.into(), &[d, rows])?;

        let low = part(cx, packed, 1, 0, k)?;
        let low = tril(cx, low, -1)?;
        let low = widened(cx, low, m, m)?;
        let ones = {
            let t = cx.ty(low);
            eye(cx, &t)?
        };
        let l = cx.add(low, ones)?;
        let up = part(cx, packed, 0, 0, k)?;
        let up = triu(cx, up, 0)?;
        let up = widened(cx, up, n, n)?;
        let u = {
            // Ones on the diagonal after position k keep the square matrix invertible.
            let t = cx.ty(up);
            let one = eye(cx, &t)?;
            let row = cx.iota(DType::I32, &t.shape, rank - 2)?;
            let first = cx.full_like(row, k as f64)?;
            let beyond = cx.compare(Compare::Ge, row, first)?;
            let extra = cx.zero_unless(beyond, one)?;
            cx.add(up, extra)?
        };
        let left = TriangularSolve { left: true, lower: true, transpose: false, unit: true };
        let right = TriangularSolve { left: false, lower: false, transpose: false, unit: false };
        let la = cx.one(left.into(), &[l, d])?;
        let lau = cx.one(right.into(), &[u, la])?;
        let (below, above) = (tril(cx, lau, -1)?, triu(cx, lau, 0)?);
        let (dl, du) = (mm(cx, l, below)?, mm(cx, above, u)?);
        Ok(vec![Some(cx.add(dl, du)?), None, None])
    }

    split_whole!();
    never_linear!();
    batch_leading!();

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::outputs(&[0, 2])
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
            let (packed, pivots, permutation) = factor(a);
            results.push(0, packed.data);
            results.push(1, pivots.into_iter().map(|p| p as f64));
            results.push(2, permutation.into_iter().map(|p| p as f64));
        }
        Ok(results.finish())
    }

    fn parse(name: &str, _: &mut AttrReader) -> Option<AttrResult<Lu>> {
        (name == "lu").then_some(Ok(Lu))
    }
}

/// Pads the matrix with zeros below and to the right.
fn widened(cx: &mut dyn GraphTransforms, x: Value, m: usize, n: usize) -> Result<Value> {
    let ty = cx.ty(x);
    let rank = ty.rank();
    let mut high = vec![0; rank];
    high[rank - 2] = (m - ty.shape[rank - 2]) as i64;
    high[rank - 1] = (n - ty.shape[rank - 1]) as i64;
    let zero = cx.scalar(ty.dtype, 0.0)?;
    cx.pad(x, zero, &vec![0; rank], &high, &vec![0; rank])
}

fn factor(mut a: Matrix) -> (Matrix, Vec<usize>, Vec<usize>) {
    let mut pivots = Vec::new();
    let mut permutation: Vec<usize> = (0..a.m).collect();
    for k in 0..a.m.min(a.n) {
        let mut best = k;
        for i in k + 1..a.m {
            if a[(i, k)].abs() > a[(best, k)].abs() {
                best = i;
            }
        }
        pivots.push(best);
        permutation.swap(k, best);
        for j in 0..a.n {
            a.data.swap(k * a.n + j, best * a.n + j);
        }
        if a[(k, k)] == 0.0 {
            continue;
        }
        for i in k + 1..a.m {
            let f = a[(i, k)] / a[(k, k)];
            a[(i, k)] = f;
            for j in k + 1..a.n {
                a[(i, j)] -= f * a[(k, j)];
            }
        }
    }
    (a, pivots, permutation)
}
