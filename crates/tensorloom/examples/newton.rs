//! Logistic regression by Newton's method: gradients and second derivatives of one function, compiled.
//!
//! ```text
//! cargo run --release -p tensorloom --example newton
//! ```

use tensorloom::Result;
use tensorloom::prelude::*;

/// Minus the log-likelihood of labels, with a little decay.
pub fn loss(w: &Tensor, x: &Tensor, y: &Tensor) -> Tensor {
    let z = x.matmul(w);
    (np::logaddexp(0.0, &z) - y * &z).mean() + 0.01 * w.square().sum()
}

/// Weights after some steps from zero, and the loss before each.
pub fn newton(x: &Tensor, y: &Tensor, steps: usize) -> Result<(Tensor, Vec<f32>)> {
    let step = jit(|(w, x, y): (Tensor, Tensor, Tensor)| {
        let f = |w: Tensor| loss(&w, &x, &y);
        let (value, slope) = value_and_grad(f).call(w.clone());
        (&w - linalg::solve(&hessian(f).call(w.clone()), &slope), value)
    });
    let mut w = zeros(x.shape()[1]);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let value;
        (w, value) = step.call((w, x.clone(), y.clone()));
        losses.push(value.item()?);
    }
    Ok((w, losses))
}

/// The gradient that each example has alone, `[n, weights]`.
pub fn per_row(w: &Tensor, x: &Tensor, y: &Tensor) -> Tensor {
    let w = w.clone();
    let one = move |(x, y): (Tensor, Tensor)| {
        let f = move |w: Tensor| {
            let z = (&x * w).sum();
            np::logaddexp(0.0, &z) - &y * z
        };
        grad(f).call(w.clone())
    };
    vmap(one).call((x.clone(), y.clone()))
}

fn main() -> Result<()> {
    manual_seed(10);
    let x = np::concatenate(&[&randn((300, 2)), &ones((300, 1))], 1);
    let y = rand(300).lt(x.matmul(&tensor(&[1.5, -2.0, 0.3], 3)).sigmoid()).float();
    let (w, losses) = newton(&x, &y, 8)?;
    println!("losses {losses:.4?}");
    w.show();
    Ok(())
}
