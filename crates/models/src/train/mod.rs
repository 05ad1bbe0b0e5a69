//! Training: texts to ids to batches, a compiled step, checkpoints, a report.
//!
//! `run` does all of it from [`Settings`]; [`Trainer`] is the compiled step alone, for programs with batches of their
//! own.

mod aim;
mod apart;
mod batches;
mod both_sides;
mod buckets;
mod classifier;
mod compare;
mod compressed;
pub(crate) mod division;
mod events;
mod examples;
mod isolate;
mod live;
mod lock;
mod log;
mod losses;
mod mix;
mod moments;
mod norms;
pub(crate) mod objective;
mod page;
mod parquet;
pub(crate) mod pipeline;
mod profile;
mod report;
mod run;
pub mod saved;
mod settings;
mod setup;
mod shuffle;
mod source;
mod stages;
pub(crate) mod step;
mod stories;
mod text;
mod tokens;
mod trainer;

pub use aim::{Aim, DpoForm, PAD};
pub use batches::{Batch, Batches, held_out};
pub use compare::compare;
pub use lock::Lock;
pub use log::{Entry, Log};
pub use objective::How;
pub use run::{Finished, Observer, Progress, Silent, run, run_on, thousands};
pub use settings::{NAMES, Settings};
pub use step::AdamW;
pub use stories::write_stories;
pub use text::{Part, Texts};
pub use tokens::{Reading, Tokens};
pub use trainer::{StepResult, StepSizes, Trainer};
