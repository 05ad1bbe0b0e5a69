//! Training, below all front ends: update rules and steps as graphs, schedules as data, runs with their logs, reports and
//! checkpoints.

pub mod adam;
pub mod buckets;
pub mod checkpoint;
pub mod clip;
mod compare;
mod error;
#[cfg(test)]
mod fault_injection;
pub mod files;
mod grad_reduction;
mod html_page;
mod live_server;
mod lock;
mod log;
pub mod lora;
pub mod moments;
pub mod momentum;
pub mod named_tensor;
pub mod norms;
mod observer;
pub mod report;
pub mod run;
pub mod safetensors_file;
pub mod schedule;
pub mod shard_ranges;
pub mod step;
mod tensorboard;
mod trainer;

pub use adam::{Adam, BiasCorrection};
pub use compare::compare;
pub use error::{Error, FileError, Result};
pub use grad_reduction::GradReduction;
pub use lock::DirLock;
pub use log::{LogEntry, RunLog};
pub use named_tensor::NamedTensor;
pub use observer::{NoProgress, StepProgress, TrainObserver, format_with_commas};
pub use run::{Intervals, TrainLoop, TrainRun};
pub use schedule::Schedule;
pub use step::{AdamW, LossGraph, ParamOptions};
pub use trainer::{Buffer, NUM_STEP_SCALARS, StepInputLayout, StepResult, TrainStep};
