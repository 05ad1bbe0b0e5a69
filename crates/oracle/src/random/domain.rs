//! Where ops are smooth.

use ir::ops::{Op, ReduceKind};
use ir::{Binary, DType, Literal, Unary};

/// How far from a kink or a pole a value must be.
const MARGIN: f64 = 0.05;

/// All floats are finite and of moderate size.
pub(super) fn tame(results: &[Literal]) -> bool {
    results
        .iter()
        .filter(|y| y.ty().dtype.is_float())
        .all(|y| y.scalars().all(|s| s.to_f64().abs() <= 50.0))
}

/// Whether the op is smooth around these operands; `inner` asks for smoothness everywhere.
pub(super) fn away_from_kinks(op: &Op, args: &[Literal], results: &[Literal], inner: bool) -> bool {
    let float = |x: &Literal| x.ty().dtype == DType::F64;
    if !args.iter().any(float) {
        return true;
    }
    let apart = |a: &Literal, b: &Literal| {
        a.scalars()
            .zip(b.scalars())
            .all(|(p, q)| (p.to_f64() - q.to_f64()).abs() > MARGIN)
    };
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
            // Guarded by the generator: inside a body too, what reaches them is in their domain.
            Unary::Log | Unary::Log2 | Unary::Sqrt | Unary::Rsqrt | Unary::Lgamma | Unary::Digamma => within(0.2, 50.0),
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
            ReduceKind::Max | ReduceKind::Min => !inner && alone(&args[0], &results[0]),
            ReduceKind::Sum | ReduceKind::Prod => true,
            ReduceKind::Any | ReduceKind::All => true,
        },
        Op::StopGradient(_) | Op::Quantize(_) | Op::Bitcast(_) => false,
        Op::Cast(c) => c.0 == DType::F64,
        _ => true,
    }
}

/// Whether no two elements of `x` are close to each other or to a result.
fn alone(x: &Literal, _y: &Literal) -> bool {
    let mut values: Vec<f64> = x.scalars().map(|s| s.to_f64()).collect();
    values.sort_by(f64::total_cmp);
    values.windows(2).all(|w| w[1] - w[0] > MARGIN) && !x.ty().shape.contains(&0)
}
