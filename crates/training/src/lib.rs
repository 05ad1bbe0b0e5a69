//! Training, below all front ends: update rules and steps as graphs, schedules as data, runs with their logs, reports and
//! checkpoints.

pub mod adam;
pub mod buckets;
pub mod checkpoint;
pub mod clip;
mod compare;
mod error;
mod tensorboard;
#[cfg(test)]
mod fault_injection;
pub mod files;
mod grad_reduction;
mod live_server;
mod lock;
mod log;
pub mod lora;
pub mod moments;
pub mod momentum;
pub mod named_tensor;
pub mod norms;
mod observer;
mod html_page;
pub mod report;
pub mod run;
pub mod schedule;
pub mod shard_ranges;
pub mod step;
pub mod safetensors_file;
mod trainer;

pub use adam::{Adam, BiasCorrection};
pub use compare::compare;
pub use error::{Error, FileError, Result};
pub use grad_reduction::GradReduction;
pub use lock::DirLock;
pub use log::{LogEntry, RunLog};
pub use named_tensor::NamedTensor;
pub use observer::{NoProgress, TrainObserver, StepProgress, format_with_commas};
pub use run::{Intervals, TrainRun, TrainLoop};
pub use schedule::Schedule;
pub use step::{AdamW, LossGraph, ParamOptions};
pub use trainer::{Buffer, StepInputLayout, NUM_STEP_SCALARS, StepResult, TrainStep};
