//! Test support for all crates: sample graphs for each op, random graphs, golden values from JAX and
//! PyTorch, and the checks that compare rules, passes and backends with the interpreter.
//!
//! ```
//! use tensorloom_testing::{Rng, check, samples};
//!
//! let mut rng = Rng::new(7);
//! for row in samples::all_samples().iter().filter(|r| r.op() == "tanh") {
//!     check::check_text_roundtrip(&row.graph).unwrap();
//!     check::check_vmap(&row.graph, &row.inputs, &mut rng).unwrap();
//! }
//! ```

pub mod backend;
pub mod check;
pub mod compare;
pub mod counting_allocator;
pub mod coverage;
pub mod fake_device;
pub mod fill;
pub mod golden;
pub mod python;
pub mod random;
pub mod rng;
pub mod rounding_noise;
pub mod samples;

pub use compare::{Tolerance, assert_close, compare};
pub use coverage::Coverage;
pub use fill::FillKind;
pub use rng::Rng;
pub use samples::OpSample;
