//! Convolutions and pooling by PyTorch's names.

use super::Sliding;
use crate::{Tensor, record};
use ir::ops::{Conv, ReduceKind, WindowConfig};
use ir::{GraphBuilder, Value};

#[track_caller]
fn conv(op: &'static str, n: usize, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, s: Sliding) -> Tensor {
    let args: Vec<&Tensor> = [x, w].into_iter().chain(bias).collect();
    record::one(&args, |b, v| {
        let (tx, tw) = (b.ty(v[0]), b.ty(v[1]));
        if tx.rank() != n + 2 || tw.rank() != n + 2 || tx.dtype != tw.dtype {
            let why = format!("needs an input and a kernel with {} axes and one dtype", n + 2);
            return Err(record::misfit(op, &[tx, tw], why));
        }
        let mut windows = WindowConfig::unit_stride(n);
        for i in 0..n {
            (windows.strides[i], windows.window_dilation[i]) = (s.stride, s.dilation);
            (windows.low[i], windows.high[i]) = (s.padding as i64, s.padding as i64);
        }
        let op = Conv { groups: s.groups, ..Conv::new(tx.dtype, windows) };
        let y = b.one(op.into(), &[v[0], v[1]])?;
        match v.get(2) {
            None => Ok(y),
            Some(&bias) => {
                let wide = b.broadcast(bias, &b.ty(y).shape, &[1])?;
                b.add(y, wide)
            }
        }
    })
}

/// A convolution of `[N, C, L]` by `[O, C/groups, K]`.
#[track_caller]
pub fn conv1d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, sliding: Sliding) -> Tensor {
    conv("conv1d", 1, x, weight, bias, sliding)
}

/// A convolution of `[N, C, H, W]` by `[O, C/groups, K, L]`.
#[track_caller]
pub fn conv2d(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, sliding: Sliding) -> Tensor {
    conv("conv2d", 2, x, weight, bias, sliding)
}

fn pool(b: &mut dyn GraphBuilder, x: Value, kind: ReduceKind, window: &[usize], p: PoolOptions) -> ir::Result<Value> {
    let ty = b.ty(x);
    let n = window.len();
    if ty.rank() < n || p.padding * 2 > p.window {
        let why = format!("needs {n} axes to slide along, and padding of at most half the window");
        return Err(record::misfit("pool", &[ty], why));
    }
    let lead = ty.rank() - n;
    let mut windows = WindowConfig::unit_stride(ty.rank());
    let mut sizes = vec![1; ty.rank()];
    for i in lead..ty.rank() {
        sizes[i] = p.window;
        windows.strides[i] = p.stride;
        (windows.low[i], windows.high[i]) = (p.padding as i64, p.padding as i64);
    }
    b.reduce_window(kind, x, &sizes, windows)
}

/// How pooling slides along each axis.
#[derive(Clone, Copy, Debug)]
pub struct PoolOptions {
    /// Elements of a window.
    pub window: usize,
    /// Places from one window to the next.
    pub stride: usize,
    /// Room on both sides: zeros for means, nothing for maxima.
    pub padding: usize,
}

impl PoolOptions {
    /// Windows side by side.
    pub fn of(window: usize) -> PoolOptions {
        PoolOptions { window, stride: window, padding: 0 }
    }
}

macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident $n:expr, $mean:expr),*) => { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Tensor, p: PoolOptions) -> Tensor {
            record::one(&[x], |b, v| {
                if !$mean {
                    return pool(b, v[0], ReduceKind::Max, &[p.window; $n], p);
                }
                // The sum of a window may be larger than the largest f16.
                let dtype = b.ty(v[0]).dtype;
                let x = b.cast(v[0], dtype.accumulator())?;
                let s = pool(b, x, ReduceKind::Sum, &[p.window; $n], p)?;
                let m = b.scale(s, 1.0 / (p.window.max(1) as f64).powi($n))?;
                b.cast(m, dtype)
            })
        }
    )* };
}
pools! {
    /// The largest of each window along the last axis.
    max_pool1d 1, false,
    /// The largest of each window along the last two axes.
    max_pool2d 2, false,
    /// The mean of each window along the last axis; padding counts as zeros.
    avg_pool1d 1, true,
    /// The mean of each window along the last two axes; padding counts as zeros.
    avg_pool2d 2, true
}
