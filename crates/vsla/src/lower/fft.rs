//! Fourier transforms as graphs: Stockham's algorithm, whose every stage is a map over views (§4.2).
//!
//! A stage of radix `r` reads `[rows, r, m, s]` and writes `[rows, m, r, s]`: the transposition sorts the result, so no
//! bit reversal remains. Stages compile to vector kernels over planned workspace. The twiddles are constants of the
//! program, and tables of one length are made once per process (the plan cache).

use crate::error::Result;
use ir::{Build, Builder, DType, Literal, Value};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Points of the transform for a result of this length: the next power of two.
pub(crate) fn points(length: usize) -> usize {
    length.next_power_of_two()
}

/// Cosines and sines of one stage, for each output of its butterfly but the first.
pub(crate) struct Stage {
    radix: usize,
    twiddles: Vec<(Literal, Literal)>,
}

static PLANS: Mutex<BTreeMap<usize, Arc<Vec<Stage>>>> = Mutex::new(BTreeMap::new());
static MADE: AtomicUsize = AtomicUsize::new(0);

/// How many transform lengths have had their tables made in this process.
pub fn plans_made() -> usize {
    MADE.load(Ordering::SeqCst)
}

/// The stages of a transform of `n` points, from the cache.
pub(crate) fn plan(n: usize) -> Arc<Vec<Stage>> {
    let mut plans = PLANS.lock().unwrap_or_else(|e| e.into_inner());
    let make = || {
        MADE.fetch_add(1, Ordering::SeqCst);
        Arc::new(stages(n))
    };
    plans.entry(n).or_insert_with(make).clone()
}

fn stages(n: usize) -> Vec<Stage> {
    let mut out = Vec::new();
    let mut rest = n;
    while rest > 1 {
        let radix = if rest >= 4 { 4 } else { 2 };
        let m = rest / radix;
        let table = |k: usize| {
            // The angle is reduced exactly before it is scaled: p·k stays below `rest`'s multiples.
            let angle = |p: usize| -std::f64::consts::TAU * ((p * k) % rest) as f64 / rest as f64;
            let of = |f: fn(f64) -> f64| Literal::new(&[m], &(0..m).map(|p| f(angle(p))).collect::<Vec<f64>>());
            (of(f64::cos), of(f64::sin))
        };
        let twiddles = if m == 1 { Vec::new() } else { (1..radix).map(table).collect() };
        out.push(Stage { radix, twiddles });
        rest = m;
    }
    out
}

/// A complex value: real and imaginary part.
type Complex = (Value, Value);

/// `x * y` of f64 rows through one transform of `x + i·y` and one back.
///
/// With `Z` the spectrum of `x + iy` and `W[k] = conj(Z[-k])`, the product of the two spectra is `(Z² - W²) / 4i`.
pub(crate) fn convolve(b: &mut Builder, x: Value, y: Value) -> Result<Value> {
    let (rows, m, n) = (b.ty(x).shape[0], b.ty(x).shape[1], b.ty(y).shape[1]);
    let length = m + n - 1;
    let l = points(length);
    let re = super::promote(b, x, &[rows, l])?;
    let im = super::promote(b, y, &[rows, l])?;
    let (zr, zi) = transform(b, (re, im), l, false)?;
    let (wr, wi) = (mirrored(b, zr, l)?, mirrored(b, zi, l)?);
    // With W = (wr, -wi): Z² - W² = (zr² - zi² - wr² + wi²) + i·(2·zr·zi + 2·wr·wi); divided by 4i.
    let sq = |b: &mut Builder, v: Value| b.mul(v, v);
    let (a, c, d, e) = (sq(b, zr)?, sq(b, zi)?, sq(b, wr)?, sq(b, wi)?);
    let (ac, de) = (b.sub(a, c)?, b.sub(d, e)?);
    let real = b.sub(ac, de)?;
    let (zz, ww) = (b.mul(zr, zi)?, b.mul(wr, wi)?);
    let imag = b.add(zz, ww)?;
    let pr = b.scale(imag, 0.5 / l as f64)?;
    let pi = b.scale(real, -0.25 / l as f64)?;
    let (out, _) = transform(b, (pr, pi), l, true)?;
    super::cut(b, out, &[rows, length])
}

/// Element `k` of the result is element `-k mod l`.
fn mirrored(b: &mut Builder, v: Value, l: usize) -> Result<Value> {
    if l == 1 {
        return Ok(v);
    }
    let first = b.slice_axis(v, 1, 0, 1)?;
    let rest = b.slice_axis(v, 1, 1, l)?;
    let rest = b.flip(rest, &[1])?;
    Ok(b.concat(&[first, rest], 1)?)
}

/// The transform of `[rows, n]`, not divided by `n`. The inverse exchanges the parts before and after:
/// `ifft(a + ib) = swap(fft(b + ia))`.
fn transform(b: &mut Builder, z: Complex, n: usize, inverse: bool) -> Result<Complex> {
    let rows = b.ty(z.0).shape[0];
    let (mut re, mut im) = if inverse { (z.1, z.0) } else { z };
    let (mut rest, mut s) = (n, 1);
    for stage in plan(n).iter() {
        let (r, m) = (stage.radix, rest / stage.radix);
        let read = [rows, r, m, s];
        let (wide_re, wide_im) = (b.reshape(re, &read)?, b.reshape(im, &read)?);
        let mut parts = Vec::with_capacity(r);
        for j in 0..r {
            parts.push((line(b, wide_re, j)?, line(b, wide_im, j)?));
        }
        let mut outs = if r == 4 { butterfly4(b, &parts)? } else { butterfly2(b, &parts)? };
        for (z, (cos, sin)) in outs[1..].iter_mut().zip(&stage.twiddles) {
            *z = turned(b, *z, cos, sin, &[rows, 1, m, s])?;
        }
        let mut gather = |pick: fn(&Complex) -> Value| -> Result<Value> {
            let columns: Vec<Value> =
                (outs.iter().map(pick)).map(|v| b.reshape(v, &[rows, m, 1, s])).collect::<ir::Result<_>>()?;
            let joined = b.concat(&columns, 2)?;
            Ok(b.reshape(joined, &[rows, n])?)
        };
        (re, im) = (gather(|z| z.0)?, gather(|z| z.1)?);
        rest = m;
        s *= r;
    }
    Ok(if inverse { (im, re) } else { (re, im) })
}

fn line(b: &mut Builder, x: Value, j: usize) -> Result<Value> {
    Ok(b.slice_axis(x, 1, j, j + 1)?)
}

fn add(b: &mut Builder, x: Complex, y: Complex) -> Result<Complex> {
    Ok((b.add(x.0, y.0)?, b.add(x.1, y.1)?))
}

fn sub(b: &mut Builder, x: Complex, y: Complex) -> Result<Complex> {
    Ok((b.sub(x.0, y.0)?, b.sub(x.1, y.1)?))
}

fn butterfly2(b: &mut Builder, x: &[Complex]) -> Result<Vec<Complex>> {
    Ok(vec![add(b, x[0], x[1])?, sub(b, x[0], x[1])?])
}

fn butterfly4(b: &mut Builder, x: &[Complex]) -> Result<Vec<Complex>> {
    let (even, even_gap) = (add(b, x[0], x[2])?, sub(b, x[0], x[2])?);
    let (odd, odd_gap) = (add(b, x[1], x[3])?, sub(b, x[1], x[3])?);
    // -i·z
    let turned = (odd_gap.1, b.neg(odd_gap.0)?);
    Ok(vec![add(b, even, odd)?, add(b, even_gap, turned)?, sub(b, even, odd)?, sub(b, even_gap, turned)?])
}

/// `z · (cos + i·sin)` along the third axis.
fn turned(b: &mut Builder, z: Complex, cos: &Literal, sin: &Literal, shape: &[usize]) -> Result<Complex> {
    debug_assert_eq!(cos.ty().dtype, DType::F64);
    let c = b.constant(cos.clone())?;
    let c = b.broadcast(c, shape, &[2])?;
    let s = b.constant(sin.clone())?;
    let s = b.broadcast(s, shape, &[2])?;
    let (rc, is) = (b.mul(z.0, c)?, b.mul(z.1, s)?);
    let (rs, ic) = (b.mul(z.0, s)?, b.mul(z.1, c)?);
    Ok((b.sub(rc, is)?, b.add(rs, ic)?))
}
