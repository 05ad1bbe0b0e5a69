//! Training, below all front ends: update rules as graph functions, schedules as data.

pub mod adam;
pub mod clip;
pub mod lora;
pub mod momentum;
pub mod schedule;

pub use adam::{Adam, Corrections};
pub use schedule::Schedule;
