//! Training: texts to ids to batches, a compiled step, checkpoints, a report.
//!
//! `run` does all of it from [`Settings`]; [`Trainer`] is the compiled step alone, for programs with batches of their
//! own.

mod aim;
mod batches;
mod both_sides;
mod classifier;
mod compressed;
pub(crate) mod division;
mod examples;
mod isolate;
mod losses;
mod mix;
pub(crate) mod objective;
mod parquet;
pub(crate) mod pipeline;
mod profile;
mod row_groups;
mod run;
mod settings;
mod setup;
mod shuffle;
mod source;
mod stages;
mod stories;
mod text;
mod tokens;
mod trainer;

pub use aim::{Aim, DpoForm, PAD};
pub use batches::{Batch, Batches, held_out};
pub use objective::How;
pub use run::{Finished, run, run_on};
pub use settings::{NAMES, Settings};
pub use stories::write_stories;
pub use text::{Part, Texts};
pub use tokens::{Reading, Tokens};
pub use train::{AdamW, Entry, Lock, Log, Observer, Progress, Silent, StepResult, compare, saved, thousands};
pub use trainer::{StepSizes, Trainer};
