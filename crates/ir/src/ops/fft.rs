//! Fourier transforms on pairs of real tensors: a complex tensor is represented by its real and its imaginary part.

use super::elementwise::batch_map;
use super::*;
use crate::dtype::DType;
use crate::scalar::{Binary, Compare, Scalar};
use std::f64::consts::TAU;

/// The kind of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// `(re, im) -> (re, im)`.
    Forward,
    /// `(re, im) -> (re, im)`, divided by the number of points.
    Inverse,
    /// `x -> (re, im)`: the non-redundant half of the spectrum, along the last of the axes.
    Real,
    /// `(re, im) -> x`, divided by the number of points; components that a real signal cannot have are ignored.
    InverseReal {
        /// The size of the last of the axes in the result, which the half spectrum does not determine.
        length: usize,
    },
}

/// `fft(re, im)`, `ifft(re, im)`, `rfft(x)`, `irfft(re, im)`: a discrete Fourier transform over some axes; a complex tensor is
/// represented by two real ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fft {
    /// The kind of the transform.
    pub kind: FftKind,
    /// The axes; `Real` halves the last of them.
    pub axes: Shape,
}

impl Fft {
    fn with_kind(&self, kind: FftKind) -> Fft {
        Fft { kind, axes: self.axes.clone() }
    }

    /// The number of points of the transform, given the shape of its longer side.
    fn points(&self, shape: &[usize]) -> f64 {
        self.axes.iter().map(|&a| shape[a] as f64).product()
    }

    /// `x` times `one` at both ends of the half spectrum, and times `other` at the frequencies that represent two.
    fn weighted(&self, cx: &mut dyn GraphTransforms, x: Value, length: usize, one: f64, other: f64) -> Result<Value> {
        let ty = cx.ty(x);
        let Some(&axis) = self.axes.last() else { return Ok(x) };
        let at = cx.iota(DType::I32, &[ty.shape[axis]], 0)?;
        let zero = cx.full_like(at, 0.0)?;
        let mut ends = cx.compare(Compare::Eq, at, zero)?;
        if length.is_multiple_of(2) {
            let half = cx.full_like(at, (length / 2) as f64)?;
            let middle = cx.compare(Compare::Eq, at, half)?;
            ends = cx.binary(Binary::Or, ends, middle)?;
        }
        let line = ty.with_shape(&[ty.shape[axis]]);
        let one = cx.full(&line, Scalar::from_f64(ty.dtype, one))?;
        let other = cx.full(&line, Scalar::from_f64(ty.dtype, other))?;
        let weight = cx.select(ends, one, other)?;
        let weight = cx.broadcast(weight, &ty.shape, &[axis])?;
        cx.mul(x, weight)
    }
}

impl Rules for Fft {
    fn name(&self) -> &'static str {
        match self.kind {
            FftKind::Forward => "fft",
            FftKind::Inverse => "ifft",
            FftKind::Real => "rfft",
            FftKind::InverseReal { .. } => "irfft",
        }
    }

    fn attrs(&self) -> Attrs {
        let mut attrs: Attrs = vec![("axes", self.axes.as_slice().into())];
        if let FftKind::InverseReal { length } = self.kind {
            attrs.push(("length", length.into()));
        }
        attrs
    }

    fn infer(&self, args: &[Type]) -> Infer {
        arity(args, if self.kind == FftKind::Real { 1 } else { 2 })?;
        let x = &args[0];
        if !matches!(x.dtype, DType::F32 | DType::F64) {
            return Err(InferError::DType { operand: 0, expected: "f32 or f64", got: x.dtype });
        }
        if let Some(im) = args.get(1).filter(|im| *im != x) {
            return Err(InferError::other(format!(
                "the real and imaginary parts need the same type, got {x} and {im}"
            )));
        }
        check_axes(&self.axes, x.rank())?;
        let halved = |length: usize| -> std::result::Result<usize, InferError> {
            match self.axes.last() {
                Some(&a) if length > 0 => Ok(a),
                _ => Err(InferError::other("a real transform needs an axis of at least one point")),
            }
        };
        let mut shape = x.shape.clone();
        match self.kind {
            FftKind::Forward | FftKind::Inverse => {}
            FftKind::Real => {
                let axis = halved(self.axes.last().map_or(0, |&a| shape[a]))?;
                shape[axis] = shape[axis] / 2 + 1;
            }
            FftKind::InverseReal { length } => {
                let axis = halved(length)?;
                if shape[axis] != length / 2 + 1 {
                    return Err(InferError::other(format!(
                        "a real signal of {length} points has a half spectrum of {}, but axis {axis} of {x} has {}",
                        length / 2 + 1,
                        shape[axis]
                    )));
                }
                shape[axis] = length;
                return Ok(vec![Type::checked(x.dtype, &shape)?]);
            }
        }
        let ty = Type::checked(x.dtype, &shape)?;
        Ok(vec![ty.clone(), ty])
    }

    fn jvp(&self, cx: &mut dyn GraphTransforms, x: &[Value], dx: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        let mut args = Vec::new();
        for (&v, d) in x.iter().zip(dx) {
            args.push(match d {
                Some(d) => *d,
                None => cx.full_like(v, 0.0)?,
            });
        }
        Ok(cx.emit(self.clone().into(), &args)?.into_iter().map(Some).collect())
    }

    split_whole!();

    /// The matrix of a transform is symmetric and its inverse is its conjugate divided by the number of points, so each is
    /// the other's transpose up to that factor. Frequencies that the half spectrum omits are accounted for by weights.
    fn transpose(&self, cx: &mut dyn GraphTransforms, args: &[TransposeArg], ct: &[Option<Value>]) -> Result<Tangents> {
        let Some(some) = ct.iter().flatten().next().copied() else {
            return Ok(vec![None; args.len()]);
        };
        let out = cx.ty(some);
        let mut c = Vec::new();
        for v in ct {
            c.push(match v {
                Some(v) => *v,
                None => cx.zeros(&out)?,
            });
        }
        let Some(longer) = args.iter().find_map(|a| match a {
            TransposeArg::Linear(t) => Some(t.shape.clone()),
            TransposeArg::Known(_) => None,
        }) else {
            return Ok(vec![None; args.len()]);
        };
        let grads = match self.kind {
            FftKind::Forward | FftKind::Inverse => {
                let n = self.points(&out.shape);
                let (kind, factor) = match self.kind {
                    FftKind::Forward => (FftKind::Inverse, n),
                    _ => (FftKind::Forward, 1.0 / n),
                };
                let turned = cx.emit(self.with_kind(kind).into(), &c)?;
                vec![cx.scale(turned[0], factor)?, cx.scale(turned[1], factor)?]
            }
            FftKind::Real => {
                let n = self.points(&longer);
                let length = self.axes.last().map_or(0, |&a| longer[a]);
                let re = self.weighted(cx, c[0], length, n, n / 2.0)?;
                let im = self.weighted(cx, c[1], length, n, n / 2.0)?;
                let back = self.with_kind(FftKind::InverseReal { length });
                vec![cx.one(back.into(), &[re, im])?]
            }
            FftKind::InverseReal { length } => {
                let n = self.points(&out.shape);
                let back = cx.emit(self.with_kind(FftKind::Real).into(), &c)?;
                vec![
                    self.weighted(cx, back[0], length, 1.0 / n, 2.0 / n)?,
                    self.weighted(cx, back[1], length, 1.0 / n, 2.0 / n)?,
                ]
            }
        };
        Ok(grads.into_iter().zip(args).map(|(g, a)| a.is_linear().then_some(g)).collect())
    }

    fn batch(
        &self,
        cx: &mut dyn GraphTransforms,
        x: &[Value],
        batched: &[bool],
        size: usize,
    ) -> Result<Vec<(Value, bool)>> {
        let wide = Fft { kind: self.kind, axes: self.axes.iter().map(|a| a + 1).collect() };
        batch_map(wide.into(), cx, x, batched, size)
    }

    fn saved_for_backward(&self) -> SavedForBackward {
        SavedForBackward::none()
    }

    fn autocast_rule(&self) -> AutocastRule {
        AutocastRule::Fp32
    }

    fn semantics(&self) -> Semantics {
        Semantics::Opaque
    }

    fn eval(&self, args: &[Literal]) -> Result<Vec<Literal>> {
        let types: Vec<Type> = args.iter().map(|a| a.ty().clone()).collect();
        let outs = self.infer(&types).map_err(|p| Error::Run(format!("{}: {p}", self.name())))?;
        let mut z = Complex::of(args);
        let Some((&last, others)) = self.axes.split_last() else {
            return Ok(args.to_vec());
        };
        let sign = match self.kind {
            FftKind::Forward | FftKind::Real => -1.0,
            _ => 1.0,
        };
        if let FftKind::InverseReal { length } = self.kind {
            for &a in others {
                z = z.transformed(a, sign);
            }
            z = z.completed(last, length).transformed(last, sign);
        } else {
            z = z.transformed(last, sign);
            if self.kind == FftKind::Real {
                z = z.cut(last, outs[0].shape[last]);
            }
            for &a in others {
                z = z.transformed(a, sign);
            }
        }
        let factor = if sign > 0.0 { 1.0 / self.points(&outs[0].shape) } else { 1.0 };
        let parts = [&z.re, &z.im];
        Ok(outs
            .iter()
            .zip(parts)
            .map(|(t, x)| Literal::from_fn(t.clone(), |i| Scalar::from_f64(t.dtype, x[i] * factor)))
            .collect())
    }

    fn parse(name: &str, attrs: &mut AttrReader) -> Option<AttrResult<Fft>> {
        let plain = match name {
            "fft" => Some(FftKind::Forward),
            "ifft" => Some(FftKind::Inverse),
            "rfft" => Some(FftKind::Real),
            "irfft" => None,
            _ => return None,
        };
        let mut read = || {
            Ok(Fft {
                kind: match plain {
                    Some(kind) => kind,
                    None => FftKind::InverseReal { length: attrs.usize("length")? },
                },
                axes: attrs.usizes("axes")?,
            })
        };
        Some(read())
    }
}

/// A complex tensor in f64.
struct Complex {
    shape: Shape,
    re: Vec<f64>,
    im: Vec<f64>,
}

impl Complex {
    fn of(parts: &[Literal]) -> Complex {
        let re: Vec<f64> = parts[0].scalars().map(Scalar::to_f64).collect();
        let im = match parts.get(1) {
            Some(im) => im.scalars().map(Scalar::to_f64).collect(),
            None => vec![0.0; re.len()],
        };
        Complex { shape: parts[0].ty().shape.clone(), re, im }
    }

    /// Maps each line along an axis to one of another length.
    fn lines(&self, axis: usize, length: usize, f: impl Fn(&[(f64, f64)]) -> Vec<(f64, f64)>) -> Complex {
        let mut shape = self.shape.clone();
        shape[axis] = length;
        let ty = |s: &Shape| Type::new(DType::F64, s);
        let mut mapped = Vec::new();
        super::sort::for_each_line(&ty(&self.shape), axis, |line| {
            let values: Vec<(f64, f64)> = line.iter().map(|&i| (self.re[i], self.im[i])).collect();
            mapped.push(f(&values));
        });
        let n = shape.iter().product();
        let (mut re, mut im) = (vec![0.0; n], vec![0.0; n]);
        let mut mapped = mapped.into_iter();
        super::sort::for_each_line(&ty(&shape), axis, |line| {
            for (&i, (a, b)) in line.iter().zip(mapped.next().unwrap_or_default()) {
                (re[i], im[i]) = (a, b);
            }
        });
        Complex { shape, re, im }
    }

    /// The discrete Fourier transform by its definition, along one axis.
    fn transformed(&self, axis: usize, sign: f64) -> Complex {
        let n = self.shape[axis];
        self.lines(axis, n, |x| {
            (0..n)
                .map(|k| {
                    x.iter().enumerate().fold((0.0, 0.0), |(re, im), (j, (a, b))| {
                        let (c, s) = unit_root(j as u64 * k as u64 % n as u64, n as u64);
                        let s = s * sign;
                        (re + a * c - b * s, im + a * s + b * c)
                    })
                })
                .collect()
        })
    }

    fn cut(&self, axis: usize, length: usize) -> Complex {
        self.lines(axis, length, |x| x[..length].to_vec())
    }

    /// Completes the spectrum of a real signal from its half.
    fn completed(&self, axis: usize, length: usize) -> Complex {
        self.lines(axis, length, |x| {
            (0..length)
                .map(|k| {
                    let mirror = (length - k) % length;
                    match () {
                        _ if mirror == k => (x[k].0, 0.0),
                        _ if k < x.len() => x[k],
                        _ => (x[mirror].0, -x[mirror].1),
                    }
                })
                .collect()
        })
    }
}

/// Cosine and sine of `2π·k/n`, exact at multiples of a quarter turn.
fn unit_root(k: u64, n: u64) -> (f64, f64) {
    match k * 4 {
        0 => (1.0, 0.0),
        q if q == n => (0.0, 1.0),
        q if q == 2 * n => (-1.0, 0.0),
        q if q == 3 * n => (0.0, -1.0),
        _ => {
            let angle = TAU * k as f64 / n as f64;
            (angle.cos(), angle.sin())
        }
    }
}
