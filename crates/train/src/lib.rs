//! Training, below all front ends: update rules and steps as graphs, schedules as data, runs with their logs, reports and
//! checkpoints.

pub mod adam;
pub mod buckets;
pub mod clip;
mod compare;
mod error;
mod events;
#[cfg(test)]
mod failing;
pub mod files;
mod live;
mod lock;
mod log;
pub mod lora;
pub mod moments;
pub mod momentum;
pub mod named_tensor;
pub mod norms;
mod observer;
mod page;
pub mod places;
pub mod report;
pub mod run;
pub mod saved;
pub mod schedule;
pub mod step;
mod sums;
pub mod tensor_file;
mod trainer;

pub use adam::{Adam, Corrections};
pub use compare::compare;
pub use error::{Error, FileError, Result};
pub use lock::Lock;
pub use log::{Entry, Log};
pub use named_tensor::NamedTensor;
pub use observer::{Observer, Progress, Silent, thousands};
pub use run::{Cadence, Run, Task};
pub use schedule::Schedule;
pub use step::{AdamW, Objective, Trained};
pub use sums::Sums;
pub use trainer::{Buffer, Layout, SCALARS, StepResult, Trainer};
