//! The training loop for modules: steps compiled as a whole, gradient clipping, schedules, checkpoints, `log.jsonl`, a report, and
//! resuming to the same bits. `loom train` runs `.module` models by the same loop.
//!
//! ```
//! use tensorloom::prelude::*;
//! use tensorloom::train::{Schedule, Settings, Trainer};
//!
//! #[derive(Module, Tree)]
//! struct Mlp {
//!     up: nn::Linear,
//!     down: nn::Linear,
//! }
//!
//! # let out = std::env::temp_dir().join(format!("tensorloom-train-doc-{}", std::process::id()));
//! # let _ = std::fs::remove_dir_all(&out);
//! let model = Mlp { up: nn::Linear::new(2, 16), down: nn::Linear::new(16, 1) };
//! let x = randn((64, 2));
//! let y = x.square().sum_axes(&[1], true);
//! let loader = DataLoader::new((x, y))?.batch_size(16).shuffle(1);
//! let trainer = Trainer::new(model, |m: &Mlp, (x, y): (Tensor, Tensor)| {
//!     nn::mse_loss(&m.down.forward(&m.up.forward(&x).tanh()), &y)
//! });
//! let settings = Settings { out: out.clone(), steps: 200, rate: Schedule::warmup_cosine(3e-2, 10, 200, 0.1), ..Settings::default() };
//! let done = trainer.run(&settings, |n| loader.at(n), &[])?;
//! assert!(done.complete && done.loss < 0.5, "{}", done.loss);
//! assert!(out.join("index.html").exists() && out.join("model.safetensors").exists());
//! # std::fs::remove_dir_all(&out).unwrap();
//! # Ok::<(), tensorloom::Error>(())
//! ```

mod objective;
mod settings;
mod task;
mod trainer;

pub use settings::Settings;
pub use train::{AdamW, NoProgress, Schedule, StepProgress, TrainObserver};
pub use trainer::{Finished, Trainer};
