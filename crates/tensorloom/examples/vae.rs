//! A variational autoencoder as a pure function of its parameters: named parameters, keys, `optim`, one compiled step.
//!
//! ```text
//! cargo run --release -p tensorloom --example vae
//! ```

use std::collections::BTreeMap;
use tensorloom::Result;
use tensorloom::nn::Linear;
use tensorloom::optim::OptState;
use tensorloom::prelude::*;

/// Parameters by name.
pub type Params = BTreeMap<String, Tensor>;

/// Eight bits in, two numbers between, eight bits out.
#[derive(Module, Tree)]
pub struct Vae {
    encode: Linear,
    mean: Linear,
    log_var: Linear,
    decode: Linear,
    out: Linear,
}

impl Vae {
    /// With twelve hidden units.
    pub fn new() -> Vae {
        Vae {
            encode: Linear::new(8, 12),
            mean: Linear::new(12, 2),
            log_var: Linear::new(12, 2),
            decode: Linear::new(2, 12),
            out: Linear::new(12, 8),
        }
    }

    /// The bound on the likelihood, negated.
    pub fn loss(&self, x: &Tensor, key: &Tensor) -> Tensor {
        let h = self.encode.forward(x).relu();
        let (mean, log_var) = (self.mean.forward(&h), self.log_var.forward(&h));
        let z = &mean + (&log_var / 2).exp() * random::normal(key, mean.shape(), DType::F32);
        let y = self.out.forward(&self.decode.forward(&z).relu());
        let bits = x.shape()[1];
        let kl = -0.5 * (1 + &log_var - mean.square() - log_var.exp()).sum_axes(-1, false).mean();
        nn::binary_cross_entropy_with_logits(&y, x) * bits + kl
    }
}

/// Trains it; gives its parameters and the losses.
pub fn train(model: &Vae, x: &Tensor, steps: usize) -> Result<(Params, Vec<f32>)> {
    let optimizer = optim::adam(0.01);
    let mut params = model.params();
    let mut state = optimizer.init(&params);
    let step = jit(|(params, state, x, key): (Params, OptState, Tensor, Tensor)| {
        let loss = |p: Params| match nn::functional_call(model, &p) {
            Ok(model) => model.loss(&x, &key),
            Err(e) => Tensor::from_error(e),
        };
        let (loss, slopes) = value_and_grad(loss).call(params.clone());
        let (updates, state) = optimizer.update(&slopes, &state, &params);
        (optim::apply_updates(&params, &updates), state, loss)
    });
    let mut losses = Vec::new();
    for i in 0..steps {
        let key = random::fold_in(&random::key(9), i as u32);
        let loss;
        (params, state, loss) = step.call((params, state, x.clone(), key));
        losses.push(loss.item()?);
    }
    Ok((params, losses))
}

fn main() -> Result<()> {
    manual_seed(8);
    let x = rand((200, 8)).lt(np::linspace(0.1, 0.9, 8, true, DType::F32)).float();
    let (_, losses) = train(&Vae::new(), &x, 500)?;
    println!("loss {:.3} to {:.3}", losses[0], losses[losses.len() - 1]);
    Ok(())
}
