//! Models behind an OpenAI-compatible HTTP interface: continuous batching, streaming, limits, metrics.
//!
//! ```text
//! connections ── gate ── http ──── answer ──┐ queue (bounded, a line for each client)
//!                          │        ▲        ▼
//!              workers: api, tokens │      engine: one thread for each model, `models::Slots`
//!                          └────────┘        │ tokens, one channel for each choice
//!                               stream ◄─────┘
//! ```
//!
//! The engine alone touches programs and caches. Whoever no longer listens to its channel, because the client vanished, was too
//! slow, or has all it asked for, is found out at the next token, and its row is free.

mod answer;
mod api;
mod chunks;
mod connections;
mod engine;
mod fields;
mod gate;
mod http;
mod idle;
mod metrics;
mod pace;
mod queue;
mod run;
mod served;
mod shares;
mod text;
mod workers;

pub use engine::EngineOptions;
pub use http::{Limits, Running, Server};
pub use run::run;
pub use served::{Entry, Served};

/// What can go wrong before or while a server runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model could not be read, or does not fit.
    #[error("{0}")]
    Model(#[from] crate::Error),
    /// The address could not be had.
    #[error("{address}: {reason}; give another `--host` or `--port`")]
    Address {
        /// What was asked for.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// A name that two models have, and the like.
    #[error("{0}")]
    Setup(String),
}

/// Results of this module.
pub type Result<T> = std::result::Result<T, Error>;
