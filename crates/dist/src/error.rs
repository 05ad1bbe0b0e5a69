//! What can go wrong between ranks.

use std::time::Duration;

/// An error of ranks that compute together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank is gone, so nothing can be computed together any more.
    #[error("rank {rank} is gone: {reason}")]
    Gone {
        /// Which.
        rank: usize,
        /// How one knows.
        reason: String,
    },
    /// A rank did not come in time.
    #[error(
        "rank {rank} did not answer for {} s: it hangs, or is much slower; raise TENSORLOOM_COMM_TIMEOUT (seconds) if it is only \
         slow", waited.as_secs_f32()
    )]
    Slow {
        /// Which.
        rank: usize,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Ranks do different things.
    #[error("rank {rank} runs another program: {reason}")]
    Differs {
        /// Who differs from this rank.
        rank: usize,
        /// What is different.
        reason: String,
    },
    /// The ranks could not find each other.
    #[error("{0}")]
    Start(String),
    /// A call that can't be answered.
    #[error("{0}")]
    Call(String),
}

/// Results between ranks.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for compiler::Error {
    fn from(e: Error) -> compiler::Error {
        compiler::Error::Backend(e.to_string())
    }
}
