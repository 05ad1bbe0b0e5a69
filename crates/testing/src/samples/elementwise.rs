//! Samples of the elementwise ops.

use super::{FLOATS, INTS, SampleTable};
use crate::FillKind;
use ir::ops::{Bitcast, Cast, Clamp, Fma, Quantize, Select, StopGradient};
use ir::{Binary, Compare, DType, DTypeDomain, GraphBuilder, Literal, Unary};

pub(super) fn rows(t: &mut SampleTable) {
    for &op in Unary::ALL.iter().filter(|&&op| op != Unary::Log10) {
        unary(t, op);
    }
    for &op in Binary::ALL {
        binary(t, op);
    }
    for &op in Compare::ALL {
        compare(t, op);
    }
    select_clamp_fma(t);
    conversions(t);
}

/// The domain where a unary function is defined and smooth.
fn domain(op: Unary) -> FillKind {
    use Unary::*;
    match op {
        Log | Log2 | Log10 | Sqrt | Rsqrt | Lgamma | Digamma => FillKind::Uniform(0.3, 4.0),
        Log1p => FillKind::Uniform(-0.7, 3.0),
        Asin | Acos | Atanh | ErfInv => FillKind::Uniform(-0.8, 0.8),
        Acosh => FillKind::Uniform(1.3, 4.0),
        Tan => FillKind::Uniform(-1.2, 1.2),
        _ => FillKind::Smooth,
    }
}

pub(super) fn unary(t: &mut SampleTable, op: Unary) {
    let name = op.name();
    if op.domain().contains(DType::F64) {
        for (k, ty) in ["f64[2,3]", "f64[]", "f64[0,3]"].iter().enumerate() {
            t.smooth(&format!("{name}/smooth{k}"), op, &[ty], domain(op));
        }
        for d in FLOATS {
            t.plain(&format!("{name}/special_{d}"), op, &[&format!("{d}[16]")], &[FillKind::Special]);
        }
    }
    for d in INTS.into_iter().filter(|&d| op.domain().contains(d)) {
        t.plain(&format!("{name}/{d}"), op, &[&format!("{d}[8]")], &[FillKind::Special]);
    }
    if op.domain().contains(DType::Bool) {
        t.plain(&format!("{name}/bool"), op, &["bool[4]"], &[FillKind::Smooth]);
    }
}

fn binary(t: &mut SampleTable, op: Binary) {
    use Binary::*;
    let name = op.name();
    if op.domain().contains(DType::F64) {
        let fills = match op {
            Pow => [FillKind::Uniform(0.3, 2.5); 2],
            // A quotient between 2.2 and 2.8, because the remainder is discontinuous at integers.
            Rem | Div => [FillKind::Uniform(2.1, 2.4), FillKind::Uniform(0.86, 0.95)],
            _ => [FillKind::Smooth; 2],
        };
        if op == Zeta {
            // Differentiable only in its second operand.
            t.graph("zeta/smooth", &["f64[2,3]"], &[FillKind::Uniform(0.5, 4.0)], true, |b, x| {
                let s = b.full_like(x[0], 2.5)?;
                Ok(vec![b.binary(Zeta, s, x[0])?])
            });
        } else {
            for (k, ty) in ["f64[2,3]", "f64[]", "f64[3,0]"].iter().enumerate() {
                t.graph(&format!("{name}/smooth{k}"), &[ty, ty], &fills, true, |b, x| {
                    Ok(vec![b.binary(op, x[0], x[1])?])
                });
            }
            t.graph(&format!("{name}/broadcast"), &["f64[2,1,3]", "f64[4,1]"], &fills, true, |b, x| {
                let (p, q) = (b.broadcast_to(x[0], &[2, 4, 3])?, b.broadcast_to(x[1], &[2, 4, 3])?);
                Ok(vec![b.binary(op, p, q)?])
            });
            t.graph(
                &format!("{name}/same"),
                &["f64[3]"],
                &[FillKind::Uniform(0.6, 0.9)],
                !matches!(op, Max | Min | Rem),
                |b, x| Ok(vec![b.binary(op, x[0], x[0])?]),
            );
        }
        for d in FLOATS {
            let ty = format!("{d}[24]");
            t.plain(&format!("{name}/special_{d}"), op, &[&ty, &ty], &[FillKind::Special]);
            t.plain(&format!("{name}/ties_{d}"), op, &[&ty, &ty], &[FillKind::Duplicates]);
        }
    }
    for d in INTS.into_iter().filter(|&d| op.domain().contains(d)) {
        let ty = format!("{d}[24]");
        t.plain(&format!("{name}/{d}"), op, &[&ty, &ty], &[FillKind::Special]);
        t.plain(&format!("{name}/ties_{d}"), op, &[&ty, &ty], &[FillKind::Duplicates]);
    }
    if op.domain().contains(DType::Bool) {
        t.plain(&format!("{name}/bool"), op, &["bool[8]", "bool[8]"], &[FillKind::Smooth]);
    }
}

fn compare(t: &mut SampleTable, op: Compare) {
    for d in DType::ALL {
        let ty = format!("{d}[16]");
        t.plain(&format!("{}/{d}", op.name()), op, &[&ty, &ty], &[FillKind::Special]);
    }
    t.plain(&format!("{}/rank0", op.name()), op, &["i32[]", "i32[]"], &[FillKind::Duplicates]);
    t.plain(&format!("{}/empty", op.name()), op, &["f32[0]", "f32[0]"], &[FillKind::Duplicates]);
}

fn select_clamp_fma(t: &mut SampleTable) {
    t.smooth("select/smooth", Select, &["bool[2,3]", "f64[2,3]", "f64[2,3]"], FillKind::Smooth);
    t.smooth("select/rank0", Select, &["bool[]", "f64[]", "f64[]"], FillKind::Smooth);
    for d in DType::ALL {
        let ty = format!("{d}[6]");
        t.plain(&format!("select/{d}"), Select, &["bool[6]", &ty, &ty], &[FillKind::Special]);
    }
    t.graph("clamp/smooth", &["f64[6]"], &[FillKind::Smooth], true, |b, x| {
        let (lo, hi) = (b.full_like(x[0], -1.0)?, b.full_like(x[0], 1.0)?);
        Ok(vec![b.one(Clamp.into(), &[x[0], lo, hi])?])
    });
    t.smooth("clamp/bounds_move", Clamp, &["f64[8]", "f64[8]", "f64[8]"], FillKind::Smooth);
    for d in DType::ALL.into_iter().filter(|&d| DTypeDomain::Number.contains(d)) {
        let ty = format!("{d}[12]");
        t.plain(&format!("clamp/{d}"), Clamp, &[&ty, &ty, &ty], &[FillKind::Special]);
        t.plain(&format!("fma/{d}"), Fma, &[&ty, &ty, &ty], &[FillKind::Special]);
    }
    t.smooth("fma/smooth", Fma, &["f64[2,3]", "f64[2,3]", "f64[2,3]"], FillKind::Smooth);
    t.smooth("stop_gradient/none", StopGradient, &["f32[3]"], FillKind::Smooth);
    t.graph("stop_gradient/beside", &["f64[3]", "i32[2]"], &[FillKind::Smooth], false, |b, x| {
        let s = b.one(StopGradient.into(), &[x[0]])?;
        let i = b.one(StopGradient.into(), &[x[1]])?;
        Ok(vec![b.mul(s, x[0])?, i])
    });
}

fn conversions(t: &mut SampleTable) {
    for from in DType::ALL {
        for to in DType::ALL {
            let ty = format!("{from}[24]");
            t.plain(&format!("cast/{from}_to_{to}"), Cast(to), &[&ty], &[FillKind::Special]);
            if from.is_float() {
                t.plain(&format!("quantize/{from}_to_{to}"), Quantize(to), &[&ty], &[FillKind::Special]);
            }
            if from.size() == to.size() && (from == DType::Bool) == (to == DType::Bool) {
                t.plain(&format!("bitcast/{from}_to_{to}"), Bitcast(to), &[&ty], &[FillKind::Special]);
            }
        }
    }
    t.graph("cast/smooth", &["f64[2,3]"], &[FillKind::Smooth], true, |b, x| {
        let y = b.mul(x[0], x[0])?;
        Ok(vec![b.one(Cast(DType::F64).into(), &[y])?])
    });
    t.with(
        "cast/f64_halfway",
        Cast(DType::BF16),
        vec![Literal::new(&[4], &[1.00390625f64, 1.00390626, -1.01171875, 3.3e38])],
    );
    t.smooth("quantize/smooth", Quantize(DType::F64), &["f64[3]"], FillKind::Smooth);
}
