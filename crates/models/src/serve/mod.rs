//! Models behind an OpenAI-compatible HTTP interface: continuous batching, streaming, limits, metrics.
//!
//! ```text
//! connections ── access_control ── http ─── handlers ──┐ queue (bounded, one per client)
//!                                     │        ▲       ▼
//!                         workers: api, tokens │    batch_scheduler: one thread for each model, `models::BatchEngine`
//!                                     └────────┘       │ tokens, one channel for each choice
//!                                          sse ◄───────┘
//! ```
//!
//! Only the engine accesses programs and caches. If a channel's receiver is closed, because the client disconnected, was too
//! slow, or has all tokens that it needs, the engine detects this at the next token and frees the row.

mod access_control;
mod api;
mod batch_scheduler;
mod body;
mod connections;
mod fields;
mod handlers;
mod http;
mod idle;
mod metrics;
mod model_registry;
mod prefill_pacer;
mod queue;
mod quota;
mod run;
mod sse;
mod stop_matcher;
mod workers;

pub use batch_scheduler::ServeEngineOptions;
pub use http::{RunningServer, Server, ServerLimits};
pub use model_registry::{ModelRegistry, ServedModel};
pub use run::run;

/// Errors before or while a server runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model could not be read, or does not fit into memory.
    #[error("{0}")]
    Model(#[from] crate::Error),
    /// The address could not be bound.
    #[error("{address}: {reason}; give another `--host` or `--port`")]
    Address {
        /// The requested address.
        address: String,
        /// The system's error message.
        reason: String,
    },
    /// An invalid configuration, such as two models with the same name.
    #[error("{0}")]
    Setup(String),
}

/// The result type of this module.
pub type Result<T> = std::result::Result<T, Error>;
