//! Training: texts to ids to batches, a compiled step, checkpoints, a report.

mod batches;
mod objective;
mod schedule;
mod step;
mod stories;
mod text;
mod tokens;
mod trainer;

pub use batches::{Batch, Batches, held_out};
pub use schedule::Schedule;
pub use step::AdamW;
pub use stories::write_stories;
pub use text::Texts;
pub use tokens::Tokens;
pub use trainer::{StepResult, StepSizes, Trainer};
