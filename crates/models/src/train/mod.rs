//! Training: texts to ids to batches, a compiled step, checkpoints, a report.
//!
//! `run` does all of it from [`Settings`]; [`Trainer`] is the compiled step alone, for programs with batches of their
//! own.

mod batches;
mod compressed;
mod isolate;
mod lock;
mod log;
mod objective;
mod profile;
mod recipe;
mod report;
mod run;
pub mod saved;
mod schedule;
mod settings;
mod step;
mod stories;
mod text;
mod tokens;
mod trainer;

pub use batches::{Batch, Batches, held_out};
pub use lock::Lock;
pub use log::{Entry, Log};
pub use objective::How;
pub use run::{Finished, Observer, Progress, Silent, run, thousands};
pub use schedule::Schedule;
pub use settings::{NAMES, Settings};
pub use step::AdamW;
pub use stories::write_stories;
pub use text::{Part, Texts};
pub use tokens::{Reading, Tokens};
pub use trainer::{StepResult, StepSizes, Trainer};
