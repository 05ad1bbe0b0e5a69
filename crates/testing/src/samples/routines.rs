//! Samples of Fourier transforms, linear algebra, grouped products and random bits.

use super::{FLOATS, SampleTable};
use crate::FillKind;
use ir::ops::{
    Cholesky, Dot, Eigh, Fft, FftKind, Lu, Name, Qr, RaggedDot, RaggedMode, Svd, Threefry2x32, TriangularSolve,
};
use ir::types::Shape;
use ir::{Builder, DType, GraphBuilder, Literal, Value};

pub(super) fn rows(t: &mut SampleTable) {
    fourier(t);
    linalg(t);
    ragged(t);
    t.plain("threefry2x32/0", Threefry2x32, &["u32[4]", "u32[4]", "u32[4]", "u32[4]"], &[FillKind::Special]);
    t.plain("threefry2x32/rank0", Threefry2x32, &["u32[]"; 4], &[FillKind::Special]);
    t.plain("threefry2x32/empty", Threefry2x32, &["u32[0]"; 4], &[FillKind::Special]);
    t.smooth(
        "name/smooth",
        Name::new("a \"name\" \\ of\tany\r\ncharacters: \u{1} é \u{7f}"),
        &["f64[2,3]"],
        FillKind::Smooth,
    );
    t.plain("name/i32", Name::new("n"), &["i32[2]"], &[FillKind::Special]);
}

fn fourier(t: &mut SampleTable) {
    let fft = |kind, axes: &[usize]| Fft { kind, axes: Shape::from_slice(axes) };
    for (k, (ty, axes)) in
        [("f64[4]", &[0usize][..]), ("f64[2,3]", &[1]), ("f64[2,3]", &[1, 0]), ("f64[1]", &[0]), ("f64[0,3]", &[1])]
            .into_iter()
            .enumerate()
    {
        t.smooth(&format!("fft/{k}"), fft(FftKind::Forward, axes), &[ty, ty], FillKind::Smooth);
        t.smooth(&format!("ifft/{k}"), fft(FftKind::Inverse, axes), &[ty, ty], FillKind::Smooth);
        t.smooth(&format!("rfft/{k}"), fft(FftKind::Real, axes), &[ty], FillKind::Smooth);
    }
    for (k, (ty, axes, length)) in
        [("f64[3]", &[0usize][..], 4), ("f64[3]", &[0], 5), ("f64[2,3]", &[0, 1], 4), ("f64[1]", &[0], 1)]
            .into_iter()
            .enumerate()
    {
        t.smooth(&format!("irfft/{k}"), fft(FftKind::InverseReal { length }, axes), &[ty, ty], FillKind::Smooth);
    }
    t.plain("fft/f32", fft(FftKind::Forward, &[0]), &["f32[6]", "f32[6]"], &[FillKind::Smooth]);
    t.plain("rfft/f32", fft(FftKind::Real, &[0]), &["f32[5]"], &[FillKind::Smooth]);
}

/// `x + xᵀ` of the last two axes.
fn symmetric(b: &mut Builder, x: Value) -> ir::Result<Value> {
    let rank = b.ty(x).rank();
    let y = b.move_axis(x, rank - 1, rank - 2)?;
    b.add(x, y)
}

/// `x·xᵀ + I`.
fn positive(b: &mut Builder, x: Value) -> ir::Result<Value> {
    let ty = b.ty(x);
    let rank = ty.rank();
    let y = b.move_axis(x, rank - 1, rank - 2)?;
    let p = b.one(Dot::batched_matmul(ty.dtype, rank - 2).into(), &[x, y])?;
    let one = identity(b, &ty.shape, ty.dtype, 1.0)?;
    b.add(p, one)
}

fn identity(b: &mut Builder, shape: &[usize], dtype: DType, scale: f64) -> ir::Result<Value> {
    let rank = shape.len();
    let (i, j) = (b.iota(DType::I32, shape, rank - 2)?, b.iota(DType::I32, shape, rank - 1)?);
    let same = b.compare(ir::Compare::Eq, i, j)?;
    let one = b.cast(same, dtype)?;
    b.scale(one, scale)
}

fn linalg(t: &mut SampleTable) {
    let s = &[FillKind::Uniform(-1.0, 1.0)];
    for (k, ty) in ["f64[3,3]", "f64[2,2,2]", "f64[1,1]", "f64[0,2,2]", "f64[0,0]"].into_iter().enumerate() {
        t.graph(&format!("cholesky/{k}"), &[ty], s, true, |b, x| {
            let a = positive(b, x[0])?;
            Ok(vec![b.one(Cholesky.into(), &[a])?])
        });
        t.graph(&format!("eigh/{k}"), &[ty], s, true, |b, x| {
            let a = symmetric(b, x[0])?;
            Ok(b.emit(Eigh.into(), &[a])?.to_vec())
        });
        t.graph(&format!("lu/{k}"), &[ty], s, true, |b, x| {
            let shape = b.ty(x[0]).shape;
            let i = identity(b, &shape, DType::F64, 3.0)?;
            let a = b.add(x[0], i)?;
            Ok(b.emit(Lu.into(), &[a])?.to_vec())
        });
    }
    for (k, ty) in ["f64[3,2]", "f64[2,3]", "f64[2,2,2]"].into_iter().enumerate() {
        t.graph(&format!("lu/rectangular{k}"), &[ty], s, true, |b, x| Ok(b.emit(Lu.into(), x)?.to_vec()));
        for full in [false, true] {
            t.graph(&format!("qr/{k}_{full}"), &[ty], s, true, |b, x| Ok(b.emit(Qr { full }.into(), x)?.to_vec()));
        }
        for vectors in [false, true] {
            t.graph(&format!("svd/{k}_{vectors}"), &[ty], s, true, |b, x| {
                Ok(b.emit(Svd { vectors }.into(), x)?.to_vec())
            });
        }
    }
    for bits in 0..16 {
        let [left, lower, transpose, unit] = [1, 2, 4, 8].map(|m| bits & m != 0);
        let op = TriangularSolve { left, lower, transpose, unit };
        let rhs = if left { "f64[3,2]" } else { "f64[2,3]" };
        t.graph(&format!("triangular_solve/{bits}"), &["f64[3,3]", rhs], s, true, |b, x| {
            let i = identity(b, &[3, 3], DType::F64, 2.0)?;
            let a = b.add(x[0], i)?;
            Ok(vec![b.one(op.into(), &[a, x[1]])?])
        });
    }
    let op = TriangularSolve { left: true, lower: true, transpose: false, unit: true };
    t.smooth("triangular_solve/batched", op, &["f64[2,2,2]", "f64[2,2,3]"], FillKind::Smooth);
    for op in ["cholesky", "eigh", "svd", "qr", "lu"] {
        t.graph(&format!("{op}/f32"), &["f32[3,3]"], s, false, |b, x| {
            let a = positive(b, x[0])?;
            let op = match op {
                "cholesky" => Cholesky.into(),
                "eigh" => Eigh.into(),
                "svd" => Svd { vectors: true }.into(),
                "qr" => Qr { full: false }.into(),
                _ => Lu.into(),
            };
            Ok(b.emit(op, &[a])?.to_vec())
        });
    }
    t.with("cholesky/indefinite", Cholesky, vec![Literal::new(&[2, 2], &[1f64, 2.0, 2.0, 1.0])]);
}

fn ragged(t: &mut SampleTable) {
    for (k, offsets) in [&[0i32, 2, 5][..], &[1, 1, 4], &[-3, 9, 2], &[3, 0, 0]].into_iter().enumerate() {
        for (mode, a, b, batch) in
            [(RaggedMode::Rows, "f64[5,3]", "f64[2,3,2]", 0), (RaggedMode::Contract, "f64[5,3]", "f64[5,2]", 0)]
        {
            let op = RaggedDot { mode, batch, ..RaggedDot::rows(DType::F64) };
            t.graph(&format!("ragged_dot/{mode:?}{k}"), &[a, b], &[FillKind::Smooth], true, |g, x| {
                let o = g.constant(Literal::new(&[3], offsets))?;
                Ok(vec![g.one(op.into(), &[x[0], x[1], o])?])
            });
        }
    }
    let op = RaggedDot { batch: 1, ..RaggedDot::rows(DType::F64) };
    let fills = [FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(4)];
    t.graph("ragged_dot/batched", &["f64[2,3,2]", "f64[2,2,2,2]", "i32[2,3]"], &fills, true, |b, x| {
        Ok(vec![b.one(op.into(), x)?])
    });
    for d in FLOATS {
        let (a, b) = (format!("{d}[4,2]"), format!("{d}[2,2,3]"));
        t.plain(
            &format!("ragged_dot/{d}"),
            RaggedDot::rows(d),
            &[&a, &b, "i64[3]"],
            &[FillKind::Smooth, FillKind::Smooth, FillKind::IndexBelow(5)],
        );
    }
}
