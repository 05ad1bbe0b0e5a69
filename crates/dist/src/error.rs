//! Errors of communication between ranks.

use std::time::Duration;

/// An error of communication between ranks.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank is lost, so that no further communication is possible.
    #[error("lost the connection to rank {rank}: {reason}")]
    RankLost {
        /// The lost rank.
        rank: usize,
        /// How the loss was detected.
        reason: String,
    },
    /// A rank did not respond in time.
    #[error(
        "rank {rank} did not respond for {} s: it hangs or is much slower; raise TENSORLOOM_COMM_TIMEOUT (seconds) if \
         it is only slow", waited.as_secs_f32()
    )]
    Timeout {
        /// The rank.
        rank: usize,
        /// How long this rank has waited.
        waited: Duration,
    },
    /// Ranks execute different operations.
    #[error("rank {rank} runs a different program: {reason}")]
    Mismatch {
        /// The rank that differs from this one.
        rank: usize,
        /// The difference.
        reason: String,
    },
    /// The ranks could not connect to each other.
    #[error("{0}")]
    Rendezvous(String),
    /// An invalid call.
    #[error("{0}")]
    InvalidCall(String),
}

/// Results of communication between ranks.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Error> for compiler::Error {
    fn from(e: Error) -> compiler::Error {
        compiler::Error::Backend(e.to_string())
    }
}
