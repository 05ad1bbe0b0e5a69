//! Training, below all front ends: update rules and steps as graphs, schedules as data, runs with their logs, reports and
//! checkpoints.

pub mod adam;
pub mod buckets;
pub mod checkpoint;
pub mod clip;
mod compare;
mod error;
mod events;
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
mod page;
pub mod report;
pub mod run;
pub mod schedule;
pub mod shard_ranges;
pub mod step;
pub mod tensor_file;
mod trainer;

pub use adam::{Adam, BiasCorrection};
pub use compare::compare;
pub use error::{Error, FileError, Result};
pub use grad_reduction::GradReduction;
pub use lock::Lock;
pub use log::{Entry, Log};
pub use named_tensor::NamedTensor;
pub use observer::{NoProgress, Observer, Progress, thousands};
pub use run::{Intervals, Run, TrainLoop};
pub use schedule::Schedule;
pub use step::{AdamW, LossGraph, ParamOptions};
pub use trainer::{Buffer, Layout, SCALARS, StepResult, Trainer};
