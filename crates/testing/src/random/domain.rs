//! The domains where ops are smooth.

use ir::ops::{Op, ReduceKind, ScatterKind};
use ir::{Binary, DType, Literal, Unary};

/// The minimum distance of a value from a kink or a pole.
const MARGIN: f64 = 0.05;

/// Whether all floats are finite and of moderate size.
pub(super) fn tame(results: &[Literal]) -> bool {
    results.iter().filter(|y| y.ty().dtype.is_float()).all(|y| y.scalars().all(|s| s.to_f64().abs() <= 50.0))
}

/// Whether the op is smooth near these operands; `inner` requires smoothness everywhere.
pub(super) fn away_from_kinks(op: &Op, args: &[Literal], results: &[Literal], inner: bool) -> bool {
    let float = |x: &Literal| x.ty().dtype == DType::F64;
    if !args.iter().any(float) {
        return true;
    }
    let apart =
        |a: &Literal, b: &Literal| a.scalars().zip(b.scalars()).all(|(p, q)| (p.to_f64() - q.to_f64()).abs() > MARGIN);
    let within = |lo: f64, hi: f64| args[0].scalars().all(|s| (lo..hi).contains(&s.to_f64()));
    let fraction = |at: f64| {
        args[0].scalars().all(|s| {
            let f = (s.to_f64() - at).rem_euclid(1.0);
            (MARGIN..1.0 - MARGIN).contains(&f)
        })
    };
    match op {
        Op::Unary(u) => match u {
            Unary::Neg | Unary::Exp | Unary::Exp2 | Unary::Expm1 | Unary::Sin | Unary::Cos | Unary::Atan => true,
            Unary::Sinh | Unary::Cosh | Unary::Tanh | Unary::Asinh | Unary::Erf | Unary::Erfc | Unary::Logistic => true,
            // The generator guards these ops: also inside a body, their operands are in their domain.
            Unary::Log | Unary::Log2 | Unary::Log10 | Unary::Sqrt | Unary::Rsqrt | Unary::Lgamma | Unary::Digamma => {
                within(0.2, 50.0)
            }
            Unary::Reciprocal => within(0.2, 50.0),
            Unary::Log1p => within(-0.8, 50.0),
            Unary::Asin | Unary::Acos | Unary::Atanh | Unary::ErfInv => within(-0.9, 0.9),
            Unary::Acosh => within(1.2, 50.0),
            Unary::Tan => within(-1.2, 1.2),
            Unary::Abs | Unary::Sign => !inner && args[0].scalars().all(|s| s.to_f64().abs() > MARGIN),
            Unary::Floor | Unary::Ceil | Unary::Trunc => !inner && fraction(0.0),
            Unary::Round => !inner && fraction(0.5),
            Unary::Not | Unary::IsFinite | Unary::PopulationCount => true,
        },
        Op::Binary(b) => match b {
            Binary::Add | Binary::Sub | Binary::Mul => true,
            Binary::Div => args[1].scalars().all(|s| s.to_f64() > 0.2),
            Binary::Pow => within(0.3, 5.0),
            Binary::Max | Binary::Min => !inner && apart(&args[0], &args[1]),
            Binary::Atan2 => args[1].scalars().all(|s| s.to_f64() > 0.2),
            Binary::Zeta | Binary::Rem => false,
            _ => true,
        },
        Op::Compare(_) => !inner && apart(&args[0], &args[1]),
        Op::Clamp(_) => !inner && apart(&args[0], &args[1]) && apart(&args[0], &args[2]) && apart(&args[1], &args[2]),
        Op::Reduce(r) => match r.kind {
            ReduceKind::Max | ReduceKind::Min => !inner && alone(&args[0]),
            ReduceKind::Sum | ReduceKind::Prod => true,
            ReduceKind::Any | ReduceKind::All => true,
        },
        // Ops that depend on the order of elements are smooth if no two elements are close.
        Op::Sort(_) | Op::TopK(_) | Op::ArgReduce(_) => !inner && alone(&args[0]),
        Op::WindowGather(_) | Op::WindowScatter(_) => !inner && alone(&args[0]),
        Op::Cumulative(c) => !extremum(c.kind) || (!inner && alone(&args[0])),
        Op::ReduceWindow(r) => !extremum(r.kind) || (!inner && alone(&args[0])),
        Op::Scatter(s) => match s.kind {
            ScatterKind::Min | ScatterKind::Max => !inner && alone_together(&args[0], &args[2]),
            ScatterKind::Mul => args[2].scalars().all(|s| s.to_f64().abs() > MARGIN),
            _ => true,
        },
        // The eigenvectors of equal eigenvalues are not unique; singular values have a kink at 0.
        Op::Eigh(_) => !inner && alone_in_rows(&results[0]),
        Op::Svd(svd) => {
            let s = &results[svd.vectors as usize];
            !inner && alone_in_rows(s) && s.scalars().all(|x| x.to_f64() > 4.0 * MARGIN)
        }
        // Pivots and reflections change with the columns.
        Op::Lu(_) | Op::Qr(_) | Op::Cholesky(_) | Op::TriangularSolve(_) => !inner,
        Op::Composite(c) if matches!(c.name.as_str(), "relu" | "relu2") => {
            !inner && args[0].scalars().all(|s| s.to_f64().abs() > MARGIN)
        }
        Op::StopGradient(_) | Op::Quantize(_) | Op::Bitcast(_) => false,
        Op::Cast(c) => c.0 == DType::F64,
        _ => true,
    }
}

fn extremum(kind: ReduceKind) -> bool {
    matches!(kind, ReduceKind::Max | ReduceKind::Min)
}

/// Whether no two elements are close to each other.
fn alone(x: &Literal) -> bool {
    apart_from_each_other(x.scalars().map(|s| s.to_f64()).collect()) && !x.ty().shape.contains(&0)
}

fn alone_together(x: &Literal, y: &Literal) -> bool {
    apart_from_each_other(x.scalars().chain(y.scalars()).map(|s| s.to_f64()).collect())
}

/// Whether no two elements of one row along the last axis are close to each other.
fn alone_in_rows(x: &Literal) -> bool {
    let n = x.ty().shape.last().copied().unwrap_or(1).max(1);
    let all: Vec<f64> = x.scalars().map(|s| s.to_f64()).collect();
    all.chunks(n).all(|row| {
        let mut row = row.to_vec();
        row.sort_by(f64::total_cmp);
        row.windows(2).all(|w| w[1] - w[0] > 4.0 * MARGIN)
    })
}

fn apart_from_each_other(mut values: Vec<f64>) -> bool {
    values.sort_by(f64::total_cmp);
    values.windows(2).all(|w| w[1] - w[0] > MARGIN)
}
