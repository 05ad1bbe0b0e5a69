//! Sliding windows, grouped products, Fourier transforms, linear algebra, random bits and names.

use super::{GraphGenerator, Move};
use crate::FillKind;
use ir::ops::{
    Cholesky, Conv, Dot, Eigh, Fft, FftKind, Lu, Name, Qr, RaggedDot, RaggedMode, ReduceKind, ReduceWindow, Svd,
    Threefry2x32, TriangularSolve, WindowConfig, WindowGather, WindowScatter,
};
use ir::types::Shape;
use ir::{Binary, DType, Literal, Scalar, Type, Value};

pub(super) const MOVES: &[Move] = &[
    (3, true, conv),
    (3, true, pool),
    (1, true, window_places),
    (2, true, ragged),
    (2, true, fft),
    (3, true, factor),
    (1, false, threefry),
    (1, true, name),
];

fn float(g: &mut GraphGenerator, narrow: bool, rank: std::ops::RangeInclusive<usize>) -> Option<Value> {
    let smooth = g.smooth();
    g.pick(|t| {
        let dtype = if smooth { t.dtype == DType::F64 } else { t.dtype.is_float() };
        dtype && (narrow || matches!(t.dtype, DType::F32 | DType::F64)) && rank.contains(&t.rank())
    })
}

fn windows(g: &mut GraphGenerator, rank: usize) -> WindowConfig {
    WindowConfig {
        strides: (0..rank).map(|_| 1 + g.rng.below(2)).collect(),
        low: (0..rank).map(|_| g.rng.range(-1, 2)).collect(),
        high: (0..rank).map(|_| g.rng.range(-1, 2)).collect(),
        base_dilation: (0..rank).map(|_| 1 + g.rng.bernoulli(0.2) as usize).collect(),
        window_dilation: (0..rank).map(|_| 1 + g.rng.bernoulli(0.2) as usize).collect(),
    }
}

fn conv(g: &mut GraphGenerator) -> Option<()> {
    let smooth = g.smooth();
    let x = g.pick(|t| (2..=4).contains(&t.rank()) && t.dtype != DType::Bool && (!smooth || t.dtype == DType::F64))?;
    let ty = g.ty(x);
    let spatial = ty.rank() - 2;
    let windows = windows(g, spatial);
    let (n, c) = (ty.shape[0], ty.shape[1]);
    let divides = |d: usize, n: usize| n > 0 && n.is_multiple_of(d);
    let (groups, batch_groups) = match g.rng.below(4) {
        0 if divides(2, c) => (2, 1),
        1 if divides(2, n) => (1, 2),
        2 if c > 0 => (c, 1),
        _ => (1, 1),
    };
    let outs = groups * batch_groups * (1 + g.rng.below(2));
    let mut shape = vec![outs, c / groups];
    shape.extend((0..spatial).map(|_| 1 + g.rng.below(2)));
    let k = g.like(&Type::new(ty.dtype, &shape))?;
    g.one(Conv { groups, batch_groups, ..Conv::new(ty.dtype, windows) }, &[x, k])?;
    Some(())
}

fn pool(g: &mut GraphGenerator) -> Option<()> {
    let kind = *g.rng.pick(&ReduceKind::ALL);
    let x = g.any()?;
    let rank = g.ty(x).rank();
    let window: Shape = (0..rank).map(|_| 1 + g.rng.below(2)).collect();
    let windows = windows(g, rank);
    g.one(ReduceWindow { kind, window, windows }, &[x])?;
    Some(())
}

fn window_places(g: &mut GraphGenerator) -> Option<()> {
    let keys = g.any()?;
    let ty = g.ty(keys);
    let rank = ty.rank();
    let (max, window) = (g.rng.bernoulli(0.5), (0..rank).map(|_| 1 + g.rng.below(2)).collect());
    let windows = windows(g, rank);
    let gather = WindowGather { max, window, windows };
    if g.rng.bernoulli(0.5) {
        let x = g.like(&ty)?;
        g.one(gather, &[keys, x])?;
    } else {
        let count = ir::Rules::infer(&gather, &[ty.clone(), ty]).ok()?.remove(0);
        if count.numel() > g.options.max_numel {
            return None;
        }
        let y = g.like(&count)?;
        g.one(WindowScatter { max, window: gather.window, windows: gather.windows }, &[keys, y])?;
    }
    Some(())
}

fn ragged(g: &mut GraphGenerator) -> Option<()> {
    let a = float(g, true, 2..=2)?;
    let ty = g.ty(a);
    let groups = 1 + g.rng.below(2);
    let offsets: Vec<i32> = (0..=groups).map(|_| g.rng.range(-1, 5) as i32).collect();
    let offsets = g.constant(Literal::new(&[groups + 1], &offsets))?;
    let n = 1 + g.rng.below(2);
    let (mode, shape) = match g.rng.bernoulli(0.5) {
        true => (RaggedMode::Rows, vec![groups, ty.shape[1], n]),
        false => (RaggedMode::Contract, vec![ty.shape[0], n]),
    };
    let b = g.like(&ty.with_shape(&shape))?;
    g.one(RaggedDot { mode, ..RaggedDot::rows(ty.dtype) }, &[a, b, offsets])?;
    Some(())
}

fn fft(g: &mut GraphGenerator) -> Option<()> {
    let x = float(g, false, 1..=4)?;
    let ty = g.ty(x);
    let mut axes: Shape = g.some_axes(ty.rank()).into_iter().collect();
    if axes.is_empty() {
        axes.push(g.rng.below(ty.rank()));
    }
    let last = ty.shape[*axes.last()?];
    let kind = match g.rng.below(4) {
        0 => FftKind::Forward,
        1 => FftKind::Inverse,
        2 => FftKind::Real,
        _ => FftKind::InverseReal { length: (2 * last).saturating_sub(1 + g.rng.below(2)) },
    };
    let mut args = vec![x];
    if kind != FftKind::Real {
        args.push(g.like(&ty)?);
    }
    g.emit(Fft { kind, axes }, &args)?;
    Some(())
}

/// `scale · I` of a matrix type.
fn identity(g: &mut GraphGenerator, ty: &Type, scale: f64) -> Option<Value> {
    let n = ty.shape[ty.rank() - 1];
    let square = ty.shape[ty.rank() - 2] * n;
    let literal = Literal::from_fn(ty.clone(), |i| {
        let at = i % square.max(1);
        Scalar::from_f64(ty.dtype, if at / n == at % n { scale } else { 0.0 })
    });
    g.constant(literal)
}

/// `x` plus a matrix without zeros and with a large diagonal, because a column that is zero below the diagonal is not
/// reflected like adjacent ones.
fn dense(g: &mut GraphGenerator, x: Value) -> Option<Value> {
    let ty = g.ty(x);
    let i = identity(g, &ty, 4.0)?;
    let literal = FillKind::Uniform(0.2, 0.7).random_tensor(&ty, &mut g.rng);
    let c = g.constant(literal)?;
    let a = g.one(Binary::Add, &[x, i])?;
    g.one(Binary::Add, &[a, c])
}

fn factor(g: &mut GraphGenerator) -> Option<()> {
    let x = float(g, false, 2..=3)?;
    let ty = g.ty(x);
    let (m, n) = (ty.shape[ty.rank() - 2], ty.shape[ty.rank() - 1]);
    let swapped: Shape = (0..ty.rank() - 2).chain([ty.rank() - 1, ty.rank() - 2]).collect();
    match g.rng.below(6) {
        0 if m == n => {
            // x·xᵀ + I is positive definite.
            let t = g.one(ir::ops::Permute { perm: swapped }, &[x])?;
            let p = g.one(Dot::batched_matmul(ty.dtype, ty.rank() - 2), &[x, t])?;
            let i = identity(g, &ty, 1.0)?;
            let a = g.one(Binary::Add, &[p, i])?;
            g.one(Cholesky, &[a])?;
        }
        1 if m == n => {
            let t = g.one(ir::ops::Permute { perm: swapped }, &[x])?;
            let a = g.one(Binary::Add, &[x, t])?;
            g.emit(Eigh, &[a])?;
        }
        2 if m == n => {
            let i = identity(g, &ty, 4.0)?;
            let a = g.one(Binary::Add, &[x, i])?;
            let [left, lower, transpose, unit] = [(); 4].map(|()| g.rng.bernoulli(0.5));
            let mut rhs = ty.clone();
            let k = rhs.rank() - if left { 1 } else { 2 };
            rhs.shape[k] = 1 + g.rng.below(2);
            let b = g.like(&rhs)?;
            g.one(TriangularSolve { left, lower, transpose, unit }, &[a, b])?;
        }
        3 => {
            let vectors = g.rng.bernoulli(0.5);
            g.emit(Svd { vectors }, &[x])?;
        }
        4 => {
            let a = dense(g, x)?;
            g.emit(Lu, &[a])?;
        }
        _ => {
            let a = dense(g, x)?;
            let full = g.rng.bernoulli(0.3);
            g.emit(Qr { full }, &[a])?;
        }
    }
    Some(())
}

fn threefry(g: &mut GraphGenerator) -> Option<()> {
    let x = g.any()?;
    let ty = g.ty(x).with_dtype(DType::U32);
    let args: Option<Vec<Value>> = (0..4).map(|_| g.like(&ty)).collect();
    g.emit(Threefry2x32, &args?)?;
    Some(())
}

fn name(g: &mut GraphGenerator) -> Option<()> {
    let x = g.pick(|_| true)?;
    let name = *g.rng.pick(&["h", "attention/out", "\"quoted\""]);
    g.one(Name::new(name), &[x])?;
    Some(())
}
