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

pub use aim::{Objective, DpoForm, PAD};
pub use batches::{Batch, Batches, validation_batches};
pub use objective::ObjectiveOptions;
pub use run::{Finished, run, run_on};
pub use settings::{NAMES, Settings};
pub use stories::write_stories;
pub use text::{Part, TextDataset};
pub use tokens::{Reading, TokenDataset};
pub use trainer::{StepSizes, Trainer};
pub use training::{AdamW, Entry, Lock, Log, Observer, Progress, NoProgress, StepResult, compare, saved, thousands};
