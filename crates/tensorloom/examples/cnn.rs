//! A convolutional network with batch normalisation tells rows, columns and diagonals apart.
//!
//! ```text
//! cargo run --release -p tensorloom --example cnn
//! ```

use tensorloom::Result;
use tensorloom::nn::{BatchNorm, Conv2d, CrossEntropy, Linear, PoolOptions, Sliding};
use tensorloom::optimizer::Adam;
use tensorloom::prelude::*;

/// Two convolutions and a linear layer.
#[derive(Module, Tree)]
pub struct Cnn {
    conv1: Conv2d,
    norm1: BatchNorm,
    conv2: Conv2d,
    norm2: BatchNorm,
    head: Linear,
}

impl Cnn {
    /// For pictures of 8 × 8 and three classes.
    pub fn new() -> Cnn {
        let same = Sliding { padding: 1, ..Default::default() };
        Cnn {
            conv1: Conv2d::without_bias(1, 4, 3, same),
            norm1: BatchNorm::new(4),
            conv2: Conv2d::without_bias(4, 8, 3, same),
            norm2: BatchNorm::new(8),
            head: Linear::new(8 * 2 * 2, 3),
        }
    }
}

impl Layer for Cnn {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = nn::max_pool2d(&self.norm1.forward(&self.conv1.forward(x)).relu(), PoolOptions::of(2));
        let x = nn::max_pool2d(&self.norm2.forward(&self.conv2.forward(&x)).relu(), PoolOptions::of(2));
        self.head.forward(&x.reshape((x.shape()[0], -1)))
    }
}

/// Trains it; gives the loss of each batch.
pub fn train(model: &Cnn, x: &Tensor, y: &Tensor, epochs: u64) -> Result<Vec<f32>> {
    let loader = DataLoader::new((x.clone(), y.clone()))?.batch_size(12).shuffle(7);
    let optimizer = Adam::new(model.parameters(), 0.01);
    // The whole step is one compiled program, statistics of the normalisation and all.
    let step = compile(|(x, y): (Tensor, Tensor)| {
        let options = CrossEntropy { label_smoothing: 0.1, ..Default::default() };
        let loss = nn::cross_entropy(&model.forward(&x), &y, options);
        optimizer.zero_grad();
        loss.backward().and_then(|()| optimizer.step()).map_or_else(Tensor::from_error, |()| loss)
    });
    let mut losses = Vec::new();
    for epoch in 0..epochs {
        for batch in loader.epoch(epoch) {
            losses.push(step.call(batch?)?.item()?);
        }
    }
    Ok(losses)
}

fn main() -> Result<()> {
    manual_seed(3);
    let n = 90;
    let y = arange(n) % 3;
    let rows: Vec<Tensor> = (0..n)
        .map(|i| {
            let x = 0.3 * randn((8, 8));
            let at = 1 + i % 6;
            match i % 3 {
                0 => x.i(at).add_(1.5),
                1 => x.i((.., at)).add_(1.5),
                _ => x.add_(1.5 * np::eye(8, 8, 0, DType::F32)),
            };
            x
        })
        .collect();
    let x = np::stack(&rows.iter().collect::<Vec<_>>(), 0).unsqueeze(1);
    let model = Cnn::new();
    let losses = train(&model, &x, &y, 10)?;
    model.train(false);
    let right = model.forward(&x).argmax(-1).eq(&y).float().mean().item::<f32>()?;
    println!("loss {:.3} to {:.3}, {:.1} % right", losses[0], losses[losses.len() - 1], 100.0 * right);
    Ok(())
}
