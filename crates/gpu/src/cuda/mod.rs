//! CUDA: the text of grids for its compiler.

mod print;

pub use print::{FLAGS, PRELUDE, function, print};
