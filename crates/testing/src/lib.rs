//! Test support that every crate's suite shares: sample graphs for each op, random graphs, golden values from JAX and
//! PyTorch, and the checks that hold rules, passes and backends to the interpreter.
//!
//! ```
//! use tensorloom_testing::{check, rows, Rng};
//!
//! let mut rng = Rng::new(7);
//! for row in rows::all().iter().filter(|r| r.op() == "tanh") {
//!     check::text(&row.graph).unwrap();
//!     check::vmap(&row.graph, &row.inputs, &mut rng).unwrap();
//! }
//! ```

pub mod backend;
pub mod check;
pub mod compare;
pub mod counting;
pub mod coverage;
pub mod fake;
pub mod fill;
pub mod golden;
pub mod noise;
pub mod python;
pub mod random;
pub mod rng;
pub mod rows;

pub use compare::{Tolerance, assert_close, compare};
pub use coverage::Coverage;
pub use fill::Fill;
pub use rng::Rng;
pub use rows::Row;
