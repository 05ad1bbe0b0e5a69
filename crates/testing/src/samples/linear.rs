//! Samples of reductions and contractions.

use super::{FLOATS, INTS, SampleTable};
use crate::FillKind;
use ir::ops::{Dot, Reduce, ReduceKind};
use ir::types::Shape;
use ir::{DType, GraphBuilder};

pub(super) fn rows(t: &mut SampleTable) {
    reductions(t);
    dots(t);
}

fn reductions(t: &mut SampleTable) {
    for kind in ReduceKind::ALL {
        let name = kind.name();
        let reduce = |axes: &[usize]| Reduce { kind, axes: Shape::from_slice(axes) };
        let boolean = matches!(kind, ReduceKind::Any | ReduceKind::All);
        let extremum = matches!(kind, ReduceKind::Max | ReduceKind::Min);
        if boolean || extremum {
            for (k, (ty, axes)) in
                [("bool[2,3]", &[1usize][..]), ("bool[2,0]", &[1]), ("bool[]", &[])].into_iter().enumerate()
            {
                t.plain(&format!("{name}/bool{k}"), reduce(axes), &[ty], &[FillKind::Smooth]);
            }
        }
        if boolean {
            continue;
        }
        for (k, (ty, axes)) in
            [("f64[2,3]", &[1usize][..]), ("f64[2,3,2]", &[2, 0]), ("f64[]", &[]), ("f64[3,2]", &[0, 1])]
                .into_iter()
                .enumerate()
        {
            t.smooth(&format!("{name}/smooth{k}"), reduce(axes), &[ty], FillKind::Smooth);
        }
        // Equal sizes, so that only the values reveal a wrong axis.
        t.smooth(&format!("{name}/square"), reduce(&[1]), &["f64[3,3]"], FillKind::Smooth);
        t.plain(&format!("{name}/empty0"), reduce(&[0]), &["f64[0,3]"], &[FillKind::Smooth]);
        t.plain(&format!("{name}/empty1"), reduce(&[0]), &["f64[3,0]"], &[FillKind::Smooth]);
        t.plain(&format!("{name}/ties"), reduce(&[1]), &["f64[3,8]"], &[FillKind::Duplicates]);
        for d in FLOATS.into_iter().chain(INTS) {
            t.plain(&format!("{name}/{d}"), reduce(&[1]), &[&format!("{d}[3,4]")], &[FillKind::Special]);
        }
        t.graph(&format!("{name}/flipped"), &["f64[2,3]"], &[FillKind::Smooth], true, |b, x| {
            let f = b.flip(x[0], &[0, 1])?;
            Ok(vec![b.reduce(kind, f, &[0])?])
        });
    }
    // A zero among the factors: the derivative must not divide by it.
    t.graph("reduce_prod/zero", &["f64[2,3]"], &[FillKind::Smooth], true, |b, x| {
        let m = b.iota(DType::F64, &[2, 3], 1)?;
        let y = b.mul(x[0], m)?;
        Ok(vec![b.reduce(ReduceKind::Prod, y, &[1])?])
    });
}

fn dots(t: &mut SampleTable) {
    let dot = |lb: &[usize], rb: &[usize], lc: &[usize], rc: &[usize], d: DType| Dot {
        lhs_batch: Shape::from_slice(lb),
        rhs_batch: Shape::from_slice(rb),
        lhs_contract: Shape::from_slice(lc),
        rhs_contract: Shape::from_slice(rc),
        ..Dot::matmul(d)
    };
    let d64 = DType::F64;
    let s = FillKind::Smooth;
    t.smooth("dot/matmul", Dot::matmul(d64), &["f64[2,3]", "f64[3,4]"], s);
    t.smooth("dot/batched", Dot::batched_matmul(d64, 1), &["f64[2,3,2]", "f64[2,2,3]"], s);
    t.smooth("dot/inner", dot(&[], &[], &[0], &[0], d64), &["f64[3]", "f64[3]"], s);
    t.smooth("dot/outer", dot(&[], &[], &[], &[], d64), &["f64[2]", "f64[3]"], s);
    t.smooth("dot/scalars", dot(&[], &[], &[], &[], d64), &["f64[]", "f64[]"], s);
    t.smooth("dot/two_axes", dot(&[], &[], &[2, 0], &[0, 1], d64), &["f64[2,3,4]", "f64[4,2,5]"], s);
    t.smooth("dot/mixed_batch", dot(&[2], &[1], &[0], &[2], d64), &["f64[3,2,4]", "f64[5,4,3]"], s);
    t.smooth("dot/two_batches", dot(&[1, 0], &[0, 2], &[2], &[1], d64), &["f64[2,3,4]", "f64[3,4,2]"], s);
    t.smooth("dot/empty_sum", Dot::matmul(d64), &["f64[2,0]", "f64[0,3]"], s);
    t.smooth("dot/empty_rows", Dot::matmul(d64), &["f64[0,2]", "f64[2,3]"], s);
    t.graph("dot/square", &["f64[3,3]"], &[s], true, |b, x| Ok(vec![b.matmul(x[0], x[0])?]));
    t.graph("dot/flipped", &["f64[2,3]", "f64[3,2]"], &[s], true, |b, x| {
        let f = b.flip(x[0], &[1])?;
        Ok(vec![b.matmul(f, x[1])?])
    });
    for d in FLOATS.into_iter().chain(INTS) {
        let (a, b) = (format!("{d}[2,3]"), format!("{d}[3,2]"));
        t.plain(&format!("dot/{d}"), Dot::matmul(d), &[&a, &b], &[FillKind::Smooth]);
        t.plain(&format!("dot/special_{d}"), Dot::matmul(d), &[&a, &b], &[FillKind::Special]);
    }
    let wide = Dot { acc: DType::F32, out: DType::F32, ..Dot::matmul(DType::BF16) };
    t.plain("dot/bf16_to_f32", wide, &["bf16[2,3]", "bf16[3,2]"], &[s]);
    let wide = Dot { acc: DType::I32, out: DType::I32, ..Dot::matmul(DType::I8) };
    t.plain("dot/i8_to_i32", wide, &["i8[2,3]", "i8[3,2]"], &[FillKind::Special]);
}
