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

pub use ::train::{
    AdamW, DirLock, LogEntry, NoProgress, RunLog, StepProgress, StepResult, TrainObserver, checkpoint, compare,
    format_with_commas,
};
pub use batches::{Batch, BatchSampler, validation_batches};
pub use objective::ObjectiveOptions;
pub use objective_kind::{DpoForm, Objective, PAD_LABEL};
pub use run::{TrainResult, run, run_on_ranks};
pub use settings::{OLD_NAMES, SETTING_DESCRIPTIONS, TrainSettings, current_name, current_setting};
pub use synthetic_corpus::write_stories;
pub use text::{DocumentPart, TextDataset};
pub use tokens::{ReadProgress, TokenDataset};
pub use trainer::{LanguageModelTrainer, StepSizes};
