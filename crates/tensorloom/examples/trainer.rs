//! A network that learns rings around a point, by the training loop: checkpoints, a log, a report, and resuming.
//!
//! ```text
//! cargo run --release -p tensorloom --example trainer -- rings        # stop it with a number of steps: rings 100
//! cargo run --release -p tensorloom --example trainer -- rings resume
//! ```

use tensorloom::Result;
use tensorloom::prelude::*;
use tensorloom::train::{Schedule, Settings, StepProgress, TrainObserver, Trainer};

const STEPS: usize = 400;

/// Two layers with a normalisation and dropout between.
#[derive(Module, Tree)]
struct Net {
    up: nn::Linear,
    norm: nn::BatchNorm,
    drop: nn::Dropout,
    down: nn::Linear,
}

impl Net {
    fn new() -> Net {
        let (up, down) = (nn::Linear::without_bias(2, 32), nn::Linear::new(32, 1));
        Net { up, norm: nn::BatchNorm::new(32), drop: nn::Dropout::new(0.05), down }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.down.forward(&self.drop.forward(&self.norm.forward(&self.up.forward(x)).tanh()))
    }
}

/// Prints lines of the log, and stops after some steps.
struct Terminal {
    stop: usize,
    done: usize,
}

impl TrainObserver for Terminal {
    fn on_message(&mut self, text: &str) {
        println!("{text}");
    }
    fn on_train_begin(&mut self, _: usize, _: usize) {}
    fn on_step_end(&mut self, p: &StepProgress) {
        self.done = p.step;
        if p.log_due {
            println!("step {:4}  loss {:.4}  held out {:.4}", p.step, p.loss, p.valid_loss.unwrap_or(f32::NAN));
        }
    }
    fn on_sample(&mut self, _: usize, _: &str) {}
    fn should_stop(&self) -> bool {
        self.done >= self.stop
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let out = words.first().cloned().unwrap_or_else(|| "rings".to_string());
    let resume = words.iter().any(|word| word == "resume");
    let stop = words.iter().find_map(|word| word.parse().ok()).unwrap_or(STEPS);
    manual_seed(1);
    let x = randn((1024, 2)) * 2.0;
    // Inside of the ring from 1 to 2, or not.
    let length = x.square().sum_axes(&[1], true).sqrt();
    let y = np::logical_and(&np::greater(&length, 1.0), &np::less(&length, 2.0)).cast(DType::F32);
    let held_out = (x.narrow(0, 960, 64), y.narrow(0, 960, 64));
    let loader = DataLoader::new((x.narrow(0, 0, 960), y.narrow(0, 0, 960)))?.batch_size(64).shuffle(2);
    let trainer = Trainer::new(Net::new(), |net: &Net, (x, y): (Tensor, Tensor)| {
        nn::binary_cross_entropy_with_logits(&net.forward(&x), &y)
    });
    let settings = Settings {
        out: out.clone().into(),
        name: "rings".to_string(),
        steps: STEPS,
        rate: Schedule::warmup_cosine(3e-2, 20, STEPS, 0.05),
        log_every: 50,
        eval_every: 50,
        resume,
        ..Settings::default()
    };
    let done = trainer.run_with(&settings, |n| loader.at(n), &[held_out], &mut Terminal { stop, done: 0 })?;
    println!("{} of {STEPS} steps; {out}/index.html shows them", done.step);
    Ok(())
}
