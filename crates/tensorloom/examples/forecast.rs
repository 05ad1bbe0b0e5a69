//! The next value of a noisy wave, by a GRU that reads the last twelve in both directions.
//!
//! ```text
//! cargo run --release -p tensorloom --example forecast
//! ```

use tensorloom::Result;
use tensorloom::nn::{Gru, Linear, Recurrence};
use tensorloom::optimizer::{Adam, OneCycleLr, Scheduler};
use tensorloom::prelude::*;

/// A recurrent layer and a linear one.
#[derive(Module, Tree)]
pub struct Forecast {
    gru: Gru,
    head: Linear,
}

impl Forecast {
    /// With twelve units in each direction.
    pub fn new() -> Forecast {
        let both = Recurrence { bidirectional: true, ..Default::default() };
        Forecast { gru: Gru::with(1, 12, both), head: Linear::new(24, 1) }
    }
}

impl Layer for Forecast {
    fn forward(&self, x: &Tensor) -> Tensor {
        let (_, h) = self.gru.run(x, None);
        self.head.forward(&np::concatenate(&[&h.i(0), &h.i(1)], -1))
    }
}

/// Twelve values each, `[12, count, 1]`, and what follows, `[count, 1]`.
pub fn windows(series: &Tensor, count: usize) -> (Tensor, Tensor) {
    let parts: Vec<Tensor> = (0..count).map(|i| series.i(i..i + 12)).collect();
    let x = np::stack(&parts.iter().collect::<Vec<_>>(), 1).unsqueeze(-1);
    (x, series.i(12..12 + count).unsqueeze(-1))
}

/// Trains it; gives losses.
pub fn train(model: &Forecast, x: &Tensor, y: &Tensor, steps: u64) -> Result<Vec<f32>> {
    let optimizer = Adam::new(model.parameters(), 0.02);
    let cycle = OneCycleLr { steps: steps + 1, up: 0.3, div: 25.0, final_div: 1e4 };
    let mut scheduler = Scheduler::new(&optimizer, cycle);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = nn::huber_loss(&model.forward(x), y, 0.5);
        optimizer.zero_grad();
        loss.backward()?;
        optimizer.step()?;
        scheduler.step(&optimizer);
        losses.push(loss.item()?);
    }
    Ok(losses)
}

fn main() -> Result<()> {
    manual_seed(5);
    let series = (0.3 * arange(200).float()).sin() + 0.05 * randn(200);
    let (x, y) = windows(&series, 150);
    let model = Forecast::new();
    let losses = train(&model, &x, &y, 100)?;
    let (new, truth) = windows(&series.i(150..), 30);
    let error = (model.forward(&new) - truth).abs().mean().item::<f32>()?;
    println!("loss {:.4} to {:.4}; on new values off by {error:.3}", losses[0], losses[losses.len() - 1]);
    Ok(())
}
