//! Checks for tests of your own functions.
//!
//! ```
//! use tensorloom::{Tensor, tensor_of, testing};
//!
//! let f = |x: Tensor| x.sin() * x.exp();
//! let x = tensor_of(&[0.3f64, -1.2], &[2]);
//! testing::check_grads(f, x.clone(), 2)?;
//! testing::check_vmap(f, x.clone())?;
//! testing::assert_close(&x.exp().log(), &x, 1e-12, 1e-12);
//! # Ok::<(), tensorloom::Error>(())
//! ```

use crate::function::Function;
use crate::{DType, Error, Result, Tensor, Tree, jvp, random, record, vjp, vmap};

/// Panics unless two trees have equal types and close elements: `|a − b| ≤ atol + rtol·|b|`. NaN is close to NaN.
#[track_caller]
pub fn assert_close<T: Tree>(a: &T, b: &T, rtol: f64, atol: f64) {
    let _here = crate::record::here();
    if let Err(e) = close(a, b, rtol, atol) {
        panic!("{e}");
    }
}

#[track_caller]
fn close<T: Tree>(a: &T, b: &T, rtol: f64, atol: f64) -> Result<()> {
    let (a, b) = (a.leaves(), b.leaves());
    if a.len() != b.len() {
        return Err(record::error("assert_close", format!("{} tensors, expected {}", a.len(), b.len())));
    }
    for (leaf, (x, y)) in a.iter().zip(&b).enumerate() {
        let (lx, ly) = (x.to_literal()?, y.to_literal()?);
        if lx.ty() != ly.ty() {
            return Err(record::error("assert_close", format!("tensor {leaf} is {}, expected {}", lx.ty(), ly.ty())));
        }
        let pairs = lx.scalars().zip(ly.scalars()).map(|(p, q)| (p.to_f64(), q.to_f64()));
        let far = |(p, q): &(f64, f64)| {
            let near = (p - q).abs() <= atol + rtol * q.abs();
            !(near || p == q || (p.is_nan() && q.is_nan()))
        };
        let wrong: Vec<(usize, (f64, f64))> = pairs.enumerate().filter(|(_, pq)| far(pq)).collect();
        if let Some((i, (p, q))) = wrong.first() {
            let text = format!(
                "{} of {} elements of tensor {leaf} ({}) differ; element {i} is {p:e}, expected {q:e}",
                wrong.len(),
                lx.ty().numel(),
                lx.ty()
            );
            return Err(record::error("assert_close", text));
        }
    }
    Ok(())
}

/// Step and tolerance for a dtype: the error of central differences is `h²`, that of rounding `eps/h`.
fn precision(leaves: &[Tensor]) -> (f64, f64) {
    match leaves.iter().all(|t| t.dtype() != DType::F32 || !t.dtype().is_float()) {
        true => (1e-5, 1e-6),
        false => (1e-2, 2e-2),
    }
}

/// Normal numbers of the types of a tree; zeros for integers.
#[track_caller]
fn direction<T: Tree>(like: &T, seed: u64) -> T {
    let mut n = 0;
    like.map(|t| {
        n += 1;
        match t.dtype() {
            d @ (DType::F32 | DType::F64) => random::normal(&random::key(seed + n), t.shape(), d),
            d if d.is_float() => random::normal(&random::key(seed + n), t.shape(), DType::F32).cast(d),
            _ => crate::np::zeros_like(t),
        }
    })
}

#[track_caller]
fn along<T: Tree>(x: &T, v: &T, h: f64) -> T {
    let v = v.leaves();
    let mut next = v.iter();
    x.map(|t| {
        let v = next.next().expect("trees of one structure");
        if t.dtype().is_float() { t + v * h } else { t.clone() }
    })
}

/// `Σ aᵢ·bᵢ` over the float leaves of two trees.
#[track_caller]
fn inner<T: Tree>(a: &T, b: &T) -> Result<f64> {
    let mut sum = 0.0;
    for (x, y) in a.leaves().iter().zip(&b.leaves()).filter(|(x, _)| x.dtype().is_float()) {
        sum += (x.cast(DType::F64) * y.cast(DType::F64)).sum().item::<f64>()?;
    }
    Ok(sum)
}

fn compare(what: &str, got: f64, want: f64, scale: f64, tolerance: f64) -> std::result::Result<(), String> {
    let bound = tolerance * (1.0 + want.abs() + scale);
    let near = (got - want).abs() <= bound;
    if near { Ok(()) } else { Err(format!("{what} returns {got}, expected {want} within {bound:.1e}")) }
}

/// Checks a function's derivatives at a point: forward mode against central differences along a random direction, and
/// reverse mode against forward mode; with `order` 2 those of its gradient too. f64 arguments make it sharp.
#[track_caller]
pub fn check_grads<A: Tree, F: Function<A>>(f: F, args: A, order: usize) -> Result<()>
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    first_order(&f, &args)?;
    if order < 2 {
        return Ok(());
    }
    let weights = direction(&f.apply(args.map(|t| t.clone())), 77);
    let floats: Vec<usize> = (0..args.leaves().len()).filter(|&i| args.leaves()[i].dtype().is_float()).collect();
    // The gradient of a weighted sum of the results is a function like any other.
    let gradient = |x: A| {
        let (_, back) = vjp(|x: A| f.apply(x), x);
        let g = back.call(weights.map(|t| t.clone())).leaves();
        floats.iter().map(|&i| g[i].clone()).collect::<Vec<Tensor>>()
    };
    first_order(&gradient, &args)
}

#[track_caller]
fn first_order<A: Tree, F: Function<A>>(f: &F, args: &A) -> Result<()>
where
    F::Out: Tree,
{
    let at = record::place();
    let (h, tolerance) = precision(&args.leaves());
    let apply = |x: A| f.apply(x);
    let v = direction(args, 7);
    let (y, dy) = jvp(apply, args.map(|t| t.clone()), v.map(|t| t.clone()));
    if let Some(e) = dy.leaves().iter().chain(&y.leaves()).find_map(|t| t.error()) {
        return Err(e);
    }
    let w = direction(&y, 1234);
    let forward = inner(&dy, &w)?;
    let (up, down) = (f.apply(along(args, &v, h)), f.apply(along(args, &v, -h)));
    let difference = (inner(&up, &w)? - inner(&down, &w)?) / (2.0 * h);
    let scale = inner(&y, &y)?.sqrt();
    let (_, back) = vjp(apply, args.map(|t| t.clone()));
    let reverse = inner(&back.call(w), &v)?;
    compare("forward mode", forward, difference, scale, tolerance)
        .and_then(|()| compare("reverse mode", reverse, forward, scale, tolerance))
        .map_err(|reason| Error::Call { op: "check_grads", reason, at })
}

/// Checks that a function over a batch is the function of each element: `args` have the batch in front.
#[track_caller]
pub fn check_vmap<A: Tree, F: Function<A>>(f: F, args: A) -> Result<()>
where
    F::Out: Tree,
{
    let _here = crate::record::here();
    let sizes: Vec<Option<usize>> = args.leaves().iter().map(|t| t.shape().first().copied()).collect();
    let Some(Some(n)) = sizes.first().copied().filter(|n| sizes.iter().all(|m| m == n)) else {
        return Err(record::error("check_vmap", "arguments need a common first axis to map over"));
    };
    let together = vmap(|x: A| f.apply(x)).call(args.map(|t| t.clone()));
    let (rtol, atol) = match precision(&args.leaves()).1 < 1e-3 {
        true => (1e-10, 1e-10),
        false => (1e-4, 1e-4),
    };
    for i in 0..n as isize {
        let one = f.apply(args.map(|t| t.index(0, i)));
        let same = close(&together.map(|t| t.index(0, i)), &one, rtol, atol);
        same.map_err(|e| match e {
            Error::Call { reason, at, .. } => Error::Call { op: "check_vmap", reason: format!("at {i}: {reason}"), at },
            other => other,
        })?;
    }
    Ok(())
}
