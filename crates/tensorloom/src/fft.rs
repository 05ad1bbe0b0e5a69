//! Fourier transforms. A complex tensor is a pair of real ones.
//!
//! ```
//! use tensorloom::{fft, np, tensor};
//!
//! let x = tensor(&[1.0f32, 2.0, 3.0, 4.0], &[4]);
//! let spectrum = fft::rfft(&x, None, -1, fft::Norm::Backward);
//! assert_eq!(spectrum.re.to_vec::<f32>()?, [10.0, -2.0, -2.0]);
//! let back = fft::irfft(&spectrum, Some(4), -1, fft::Norm::Backward);
//! assert!(np::allclose(&back, &x, 1e-6, 1e-6)?);
//! # Ok::<(), tensorloom::Error>(())
//! ```

use crate::{DType, ReduceAxes, Tensor, Tree, np, record};
use ir::Shape;
use ir::ops::{Fft, FftKind};

/// A complex tensor.
#[derive(Clone, Debug, Tree)]
pub struct Complex {
    /// The real part.
    pub re: Tensor,
    /// The imaginary part.
    pub im: Tensor,
}

impl From<&Tensor> for Complex {
    fn from(re: &Tensor) -> Complex {
        let re = floats(re);
        Complex { im: np::zeros_like(&re), re }
    }
}

impl From<&Complex> for Complex {
    fn from(c: &Complex) -> Complex {
        c.map(floats)
    }
}

impl Complex {
    /// The size of each number.
    #[track_caller]
    pub fn abs(&self) -> Tensor {
        let _here = crate::record::here();
        np::hypot(&self.re, &self.im)
    }

    /// The angle of each number.
    #[track_caller]
    pub fn angle(&self) -> Tensor {
        let _here = crate::record::here();
        np::arctan2(&self.im, &self.re)
    }

    /// With the opposite imaginary part.
    #[track_caller]
    pub fn conj(&self) -> Complex {
        let _here = crate::record::here();
        Complex { re: self.re.clone(), im: -&self.im }
    }

    fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Complex {
        Complex { re: f(&self.re), im: f(&self.im) }
    }
}

/// What the results are divided by: n backward, n forward, or √n both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Norm {
    /// The inverse is divided by n.
    #[default]
    Backward,
    /// Both are divided by √n.
    Ortho,
    /// The forward transform is divided by n.
    Forward,
}

#[track_caller]
fn floats(x: &Tensor) -> Tensor {
    let d = if x.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    x.cast(d)
}

/// Cuts or pads with zeros to a size along an axis.
#[track_caller]
fn fit(x: &Tensor, n: Option<usize>, axis: isize) -> Tensor {
    let Some(n) = n else { return x.clone() };
    if let Some(e) = np::need_rank("fft", x, 1) {
        return e;
    }
    let a = match record::axis("fft", x.ty(), axis) {
        Ok(a) => a,
        Err(e) => return Tensor::from_error(e.at(&crate::record::place()).into()),
    };
    let size = x.shape()[a];
    if size >= n {
        return x.slice(axis, 0, n as isize, 1);
    }
    let widths: Vec<(usize, usize)> = (0..x.rank()).map(|i| (0, if i == a { n - size } else { 0 })).collect();
    np::pad(x, &widths, np::PadMode::Constant(0.0.into()))
}

/// The factor for a transform of `points` that is divided by them if `inverse`.
fn factor(points: f64, norm: Norm, inverse: bool) -> f64 {
    match (norm, inverse) {
        (Norm::Backward, _) => 1.0,
        (Norm::Ortho, false) => points.sqrt().recip(),
        (Norm::Ortho, true) => points.sqrt(),
        (Norm::Forward, false) => points.recip(),
        (Norm::Forward, true) => points,
    }
}

/// Emits a transform over axes of operands that have their sizes already.
#[track_caller]
fn emit(kind: FftKind, parts: &[&Tensor], axes: &[isize], norm: Norm) -> Vec<Tensor> {
    let n = if matches!(kind, FftKind::InverseReal { .. }) { 1 } else { 2 };
    record::many(n, parts, |b, v| {
        let ty = b.ty(v[0]);
        let axes: Vec<usize> = axes.iter().map(|&a| record::axis("fft", &ty, a)).collect::<ir::Result<_>>()?;
        let points = |last: Option<usize>| -> f64 {
            let mut sizes: Vec<f64> = axes.iter().map(|&a| ty.shape[a] as f64).collect();
            if let (Some(n), Some(s)) = (last, sizes.last_mut()) {
                *s = n as f64;
            }
            sizes.iter().product()
        };
        let (points, inverse) = match kind {
            FftKind::Forward | FftKind::Real => (points(None), false),
            FftKind::Inverse => (points(None), true),
            FftKind::InverseReal { length } => (points(Some(length)), true),
        };
        if points == 0.0 {
            return Err(record::misfit("fft", &[ty], "a Fourier transform needs at least one point"));
        }
        let outs = b.emit(Fft { kind, axes: Shape::from_slice(&axes) }.into(), v)?;
        match factor(points, norm, inverse) {
            1.0 => Ok(outs),
            c => outs.into_iter().map(|v| b.scale(v, c)).collect(),
        }
    })
}

#[track_caller]
fn complex(kind: FftKind, x: Complex, sizes: Option<&[usize]>, axes: &[isize], norm: Norm) -> Complex {
    let x = match sizes {
        None => x,
        Some(sizes) if sizes.len() != axes.len() => {
            let bad = record::invalid("fft", format!("{} sizes for {} axes", sizes.len(), axes.len()));
            return Complex { re: bad.clone(), im: bad };
        }
        Some(sizes) => sizes.iter().zip(axes).fold(x, |x, (&n, &a)| x.map(|t| fit(t, Some(n), a))),
    };
    let mut outs = emit(kind, &[&x.re, &x.im], axes, norm);
    let im = outs.swap_remove(1);
    Complex { re: outs.swap_remove(0), im }
}

/// All axes if none are given, or as many of the last as there are sizes.
fn default_axes(x: &Tensor, sizes: Option<&[usize]>, axes: Option<&[isize]>) -> Vec<isize> {
    let count = sizes.map_or(x.rank(), <[usize]>::len) as isize;
    axes.map_or_else(|| (-count..0).collect(), <[isize]>::to_vec)
}

/// The transform along an axis, of `n` points if given.
#[track_caller]
pub fn fft(x: impl Into<Complex>, n: Option<usize>, axis: isize, norm: Norm) -> Complex {
    let _here = crate::record::here();
    complex(FftKind::Forward, x.into(), n.as_ref().map(std::slice::from_ref), &[axis], norm)
}

/// The inverse transform along an axis.
#[track_caller]
pub fn ifft(x: impl Into<Complex>, n: Option<usize>, axis: isize, norm: Norm) -> Complex {
    let _here = crate::record::here();
    complex(FftKind::Inverse, x.into(), n.as_ref().map(std::slice::from_ref), &[axis], norm)
}

/// The transform along several axes, or all.
#[track_caller]
pub fn fftn(x: impl Into<Complex>, sizes: Option<&[usize]>, axes: impl Into<ReduceAxes>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    let x = x.into();
    let axes = default_axes(&x.re, sizes, axes);
    complex(FftKind::Forward, x, sizes, &axes, norm)
}

/// The inverse transform along several axes, or all.
#[track_caller]
pub fn ifftn(x: impl Into<Complex>, sizes: Option<&[usize]>, axes: impl Into<ReduceAxes>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    let x = x.into();
    let axes = default_axes(&x.re, sizes, axes);
    complex(FftKind::Inverse, x, sizes, &axes, norm)
}

/// The transform along the last two axes.
#[track_caller]
pub fn fft2(x: impl Into<Complex>, sizes: Option<&[usize]>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    fftn(x, sizes, [-2, -1], norm)
}

/// The inverse transform along the last two axes.
#[track_caller]
pub fn ifft2(x: impl Into<Complex>, sizes: Option<&[usize]>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    ifftn(x, sizes, [-2, -1], norm)
}

/// The transform of real numbers: the half of the spectrum that determines the rest.
#[track_caller]
pub fn rfft(x: &Tensor, n: Option<usize>, axis: isize, norm: Norm) -> Complex {
    let _here = crate::record::here();
    rfftn(x, n.as_ref().map(std::slice::from_ref), axis, norm)
}

/// The real numbers of a half spectrum: `n` of them, an even number by default.
#[track_caller]
pub fn irfft(x: impl Into<Complex>, n: Option<usize>, axis: isize, norm: Norm) -> Tensor {
    let _here = crate::record::here();
    irfftn(x, n.as_ref().map(std::slice::from_ref), axis, norm)
}

/// [`rfft`] along the last of several axes, [`fft`] along the others.
#[track_caller]
pub fn rfftn(x: &Tensor, sizes: Option<&[usize]>, axes: impl Into<ReduceAxes>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    let mut x = floats(x);
    let axes = default_axes(&x, sizes, axes);
    if let Some(sizes) = sizes {
        x = sizes.iter().zip(&axes).fold(x, |x, (&n, &a)| fit(&x, Some(n), a));
    }
    let mut outs = emit(FftKind::Real, &[&x], &axes, norm);
    let im = outs.swap_remove(1);
    Complex { re: outs.swap_remove(0), im }
}

/// The inverse of [`rfftn`].
#[track_caller]
pub fn irfftn(x: impl Into<Complex>, sizes: Option<&[usize]>, axes: impl Into<ReduceAxes>, norm: Norm) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    let mut x = x.into();
    let axes = default_axes(&x.re, sizes, axes);
    let Some(&last) = axes.last() else {
        return record::invalid("irfftn", "there is no axis to transform");
    };
    if let Some(e) = np::need_rank("irfftn", &x.re, 1) {
        return e;
    }
    if record::axis("irfftn", x.re.ty(), last).is_err() {
        return record::invalid("irfftn", format!("{} has no axis {last}", x.re.ty()));
    }
    let length = match sizes.and_then(<[usize]>::last) {
        Some(&n) => n,
        None => 2 * (x.re.size(last).max(1) - 1),
    };
    if let Some(sizes) = sizes {
        for (&n, &a) in sizes.iter().zip(&axes).take(axes.len() - 1) {
            x = x.map(|t| fit(t, Some(n), a));
        }
    }
    let x = x.map(|t| fit(t, Some(length / 2 + 1), last));
    emit(FftKind::InverseReal { length }, &[&x.re, &x.im], &axes, norm).swap_remove(0)
}

/// [`rfftn`] along the last two axes.
#[track_caller]
pub fn rfft2(x: &Tensor, sizes: Option<&[usize]>, norm: Norm) -> Complex {
    let _here = crate::record::here();
    rfftn(x, sizes, [-2, -1], norm)
}

/// The inverse of [`rfft2`].
#[track_caller]
pub fn irfft2(x: impl Into<Complex>, sizes: Option<&[usize]>, norm: Norm) -> Tensor {
    let _here = crate::record::here();
    irfftn(x, sizes, [-2, -1], norm)
}

/// The other direction of a norm.
fn swapped(norm: Norm) -> Norm {
    match norm {
        Norm::Backward => Norm::Forward,
        Norm::Ortho => Norm::Ortho,
        Norm::Forward => Norm::Backward,
    }
}

/// The real spectrum of a signal that is its own mirror image, given by its half.
#[track_caller]
pub fn hfft(x: impl Into<Complex>, n: Option<usize>, axis: isize, norm: Norm) -> Tensor {
    let _here = crate::record::here();
    irfft(&x.into().conj(), n, axis, swapped(norm))
}

/// The inverse of [`hfft`].
#[track_caller]
pub fn ihfft(x: &Tensor, n: Option<usize>, axis: isize, norm: Norm) -> Complex {
    let _here = crate::record::here();
    rfft(x, n, axis, swapped(norm)).conj()
}

/// The frequencies of the points of [`fft`], for samples `d` apart.
#[track_caller]
pub fn fftfreq(n: usize, d: f64) -> Tensor {
    let _here = crate::record::here();
    let at = |i: usize| if 2 * i < n + n % 2 { i as f64 } else { i as f64 - n as f64 };
    let all: Vec<f32> = (0..n).map(|i| (at(i) / (n as f64 * d)) as f32).collect();
    crate::tensor(&all, &[n])
}

/// The frequencies of the points of [`rfft`], for samples `d` apart.
#[track_caller]
pub fn rfftfreq(n: usize, d: f64) -> Tensor {
    let _here = crate::record::here();
    let all: Vec<f32> = (0..=n / 2).map(|i| (i as f64 / (n as f64 * d)) as f32).collect();
    crate::tensor(&all, &[all.len()])
}

/// Moves frequency 0 to the middle, along axes or all.
#[track_caller]
pub fn fftshift(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    default_axes(x, None, axes).iter().fold(x.clone(), |x, &a| {
        let n = x.size(a) as isize;
        np::roll(&x, n / 2, Some(a))
    })
}

/// The inverse of [`fftshift`].
#[track_caller]
pub fn ifftshift(x: &Tensor, axes: impl Into<ReduceAxes>) -> Tensor {
    let _here = crate::record::here();
    let axes = axes.into().axes;
    let axes = axes.as_deref();
    default_axes(x, None, axes).iter().fold(x.clone(), |x, &a| {
        let n = x.size(a) as isize;
        np::roll(&x, -(n / 2), Some(a))
    })
}
