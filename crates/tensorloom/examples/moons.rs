//! Two half moons told apart by a small network, in shuffled batches.
//!
//! ```text
//! cargo run --release -p tensorloom --example moons
//! ```

use tensorloom::Result;
use tensorloom::optimizer::{AdamW, CosineAnnealingLr, Scheduler};
use tensorloom::prelude::*;

/// Two hidden layers.
pub type Net = (nn::Linear, nn::Tanh, nn::Linear, nn::Tanh, nn::Linear);

/// A fresh network.
pub fn net() -> Net {
    (nn::Linear::new(2, 16), nn::Tanh, nn::Linear::new(16, 16), nn::Tanh, nn::Linear::new(16, 1))
}

/// Trains it; gives the loss of each batch.
pub fn train(net: &Net, x: &Tensor, y: &Tensor, epochs: u64) -> Result<Vec<f32>> {
    let loader = DataLoader::new((x.clone(), y.clone()))?.batch_size(20).shuffle(5);
    let optimizer = AdamW::new(net.parameters(), 0.02).weight_decay(0.01);
    let mut scheduler = Scheduler::new(&optimizer, CosineAnnealingLr { steps: 5 * epochs, min: 0.0 });
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch) {
            let (x, y) = batch?;
            let loss = nn::binary_cross_entropy_with_logits(&net.forward(&x), &y);
            optimizer.zero_grad();
            loss.backward()?;
            optimizer.step()?;
            scheduler.step(&optimizer);
            losses.push(loss.item()?);
        }
    }
    Ok(losses)
}

/// The share of points on the right side.
pub fn accuracy(net: &Net, x: &Tensor, y: &Tensor) -> Result<f32> {
    no_grad(|| net.forward(x).gt(0).float().eq(y).float().mean().item())
}

fn main() -> Result<()> {
    manual_seed(2);
    let n = 200;
    let t = rand(n) * std::f64::consts::PI;
    let side = (arange(n) % 2).float();
    let sign = 1 - 2 * &side;
    let x = np::stack(&[&(t.cos() * &sign + &side), &(t.sin() * &sign + 0.5 * &side)], 1) + 0.1 * randn((n, 2));
    let y = side.unsqueeze(1);
    let net = net();
    let losses = train(&net, &x, &y, 20)?;
    println!(
        "loss {:.3} to {:.3}, {:.1} % right",
        losses[0],
        losses[losses.len() - 1],
        100.0 * accuracy(&net, &x, &y)?
    );
    Ok(())
}
