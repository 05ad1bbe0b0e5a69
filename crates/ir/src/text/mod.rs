//! The text form. All graphs can be printed and parsed; tests, bug reports, `--emit` and snapshots use it.
//!
//! ```text
//! graph (%0: f32[2,3], %1: f32[3]) {
//!   %2 = broadcast(%1) {shape=[2,3], dims=[1]} : f32[2,3]
//!   %3 = add(%0, %2) : f32[2,3]
//!   return %3
//! }
//! ```

mod lex;
mod parse;
mod print;

pub use parse::parse;
