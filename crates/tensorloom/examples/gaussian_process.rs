//! Gaussian process regression by Cholesky, with hyperparameters from the gradient of the marginal likelihood.

mod plot;

use tensorloom::{DType, Tensor, jit, linalg, np, optim, random, tensor, value_and_grad};

/// Covariances of a smooth function at two sets of places; `h` has the logarithms of size and length.
fn kernel(h: &Tensor, a: &Tensor, b: &Tensor) -> Tensor {
    let d = (a.unsqueeze(1) - b.unsqueeze(0)) / h.index(0, 1).exp();
    (d.square() * -0.5).exp() * (h.index(0, 0) * 2.0).exp()
}

/// The lower factor of the covariances of what was measured, and the weights of the measurements.
fn fit(h: &Tensor, x: &Tensor, y: &Tensor) -> (Tensor, Tensor) {
    let noise = np::identity(x.numel(), DType::F64) * ((h.index(0, 2) * 2.0).exp() + 1e-9);
    let l = linalg::cholesky(&(kernel(h, x, x) + noise));
    let half = linalg::triangular_solve(&l, &y.unsqueeze(-1), true, true, false);
    let weights = linalg::triangular_solve(&l, &half, true, true, true);
    (l, weights)
}

/// Minus the logarithm of the marginal likelihood.
fn loss((h, x, y): (Tensor, Tensor, Tensor)) -> Tensor {
    let (l, weights) = fit(&h, &x, &y);
    (y.unsqueeze(-1) * weights).sum() * 0.5 + np::diagonal(&l, 0, 0, 1).log().sum()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = random::split(&random::key(4), 2);
    let x = random::uniform(&keys.index(0, 0), &[30], DType::F64, -4.0, 4.0);
    let y = (&x * 1.5).sin() * (&x * 0.25).exp() + random::normal(&keys.index(0, 1), &[30], DType::F64) * 0.15;

    let optimizer = optim::adam(0.05);
    let mut h = tensor(&[0.0, 0.0, -1.0], &[3]);
    let mut state = optimizer.init(&h);
    let step = jit(|(h, state): (Tensor, optim::OptState)| {
        let (value, g) = value_and_grad(|h: Tensor| loss((h, x.clone(), y.clone()))).call(h.clone());
        let (updates, state) = optimizer.update(&g, &state, &h);
        (optim::apply_updates(&h, &updates), state, value)
    });
    let mut value = tensor(&[0.0], &[]);
    for _ in 0..300 {
        (h, state, value) = step.call((h, state));
    }
    let found = h.exp().to_vec::<f64>()?;
    let value = value.item::<f64>()?;
    println!("-log p = {value:.2}: size {:.2}, length {:.2}, noise {:.2}", found[0], found[1], found[2]);

    let at = np::linspace(-5.0, 5.0, 200, true, DType::F64);
    let (l, weights) = fit(&h, &x, &y);
    let across = kernel(&h, &at, &x);
    let mean = across.matmul(&weights).squeeze(-1);
    let half = linalg::triangular_solve(&l, &across.t(), true, true, false);
    let spread = ((h.index(0, 0) * 2.0).exp() - half.square().sum_axes(&[0], false)).sqrt();
    let (at, mean, spread) = (at.to_vec::<f64>()?, mean.to_vec::<f64>()?, spread.to_vec::<f64>()?);

    let mut picture = plot::Canvas::new(1000, 500, [-5.0, 5.0, -4.0, 4.0]);
    let edge = |k: f64| mean.iter().zip(&spread).map(|(m, s)| m + k * s).collect::<Vec<_>>();
    picture.band(&at, &edge(-2.0), &edge(2.0), plot::PALE);
    picture.line(&at.iter().copied().zip(mean.iter().copied()).collect::<Vec<_>>(), 1.8, plot::BLUE);
    for (x, y) in x.to_vec::<f64>()?.into_iter().zip(y.to_vec::<f64>()?) {
        picture.dot(x, y, 3.5, plot::INK);
    }
    picture.save("gaussian_process")
}
