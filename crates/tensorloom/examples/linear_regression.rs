//! A plane through points: by gradient descent, and by least squares.
//!
//! ```text
//! cargo run --release -p tensorloom --example linear_regression
//! ```

use tensorloom::Result;
use tensorloom::optimizer::Sgd;
use tensorloom::prelude::*;

/// Fits a layer to points; gives the loss of each step.
pub fn fit(model: &nn::Linear, x: &Tensor, y: &Tensor, steps: usize) -> Result<Vec<f32>> {
    let optimizer = Sgd::with_momentum(model.parameters(), 0.1, 0.5);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = nn::mse_loss(&model.forward(x), y);
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    Ok(losses)
}

/// Weights and, last, the bias that least squares give.
pub fn exact(x: &Tensor, y: &Tensor) -> Tensor {
    let rows = np::concatenate(&[x, &ones((x.shape()[0], 1))], 1);
    linalg::solve(&rows.t().matmul(&rows), &rows.t().matmul(y)).i((.., 0))
}

fn main() -> Result<()> {
    manual_seed(1);
    let x = randn((100, 3));
    let y = x.matmul(&tensor(&[2.0, -1.0, 0.5], (3, 1))) + 0.7 + 0.1 * randn((100, 1));
    let model = nn::Linear::new(3, 1);
    let losses = fit(&model, &x, &y, 100)?;
    println!("loss {:.4} to {:.4}", losses[0], losses[99]);
    model.weight.show();
    exact(&x, &y).show();
    Ok(())
}
