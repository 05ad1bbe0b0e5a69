//! Training: tokenized data, batches, a compiled step, checkpoints, a report.
//!
//! `run` executes a complete run from [`TrainSettings`]; [`LanguageModelTrainer`] is only the compiled
//! step, for programs that build their own batches.

mod batches;
mod bidirectional;
mod classifier;
mod decompress;
mod document_mask;
mod examples;
mod losses;
mod mixture;
pub(crate) mod objective;
mod objective_kind;
mod parquet;
pub(crate) mod pipeline;
mod profile;
mod row_groups;
mod run;
mod settings;
mod setup;
pub(crate) mod sharding;
mod shuffle;
mod source;
mod stages;
mod synthetic_corpus;
mod text;
mod tokens;
mod trainer;

pub use aim::{Aim, DpoForm, PAD};
pub use batches::{Batch, Batches, held_out};
pub use objective::How;
pub use run::{Finished, run, run_on};
pub use settings::{NAMES, OLD_NAMES, Settings, current_name, current_setting};
pub use stories::write_stories;
pub use text::{Part, Texts};
pub use tokens::{Reading, Tokens};
pub use train::{AdamW, Entry, Lock, Log, Observer, Progress, Silent, StepResult, compare, saved, thousands};
pub use trainer::{StepSizes, Trainer};
